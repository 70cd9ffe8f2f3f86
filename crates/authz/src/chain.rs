//! [`Chain`]: the ordered list of authorizers, and the only place that makes a [`Permit`].

use std::sync::Arc;

use authn::{Caller, User, names};
use value::{Str, format_smolstr};

use crate::attributes::Attributes;
use crate::config::AuthorizerType;
use crate::decision::{Answer, Decision, Permit, Reason, Refusal};
use crate::node::NodeAuthorizer;
use crate::observe::{Observer, Unobserved};
use crate::webhook::Webhook;
use crate::{abac, rbac};

/// All kinds of authorizers.
#[derive(Clone, Debug)]
pub enum Authorizer {
    /// Allows everything.
    AlwaysAllow,
    /// Has no opinion on anything, with a reason: what nobody else allows is refused with it.
    AlwaysDeny,
    /// Roles and bindings among the stored objects.
    Rbac(Arc<rbac::Index>),
    /// Nodes, and what their pods need.
    Node(Arc<NodeAuthorizer>),
    /// A policy file.
    Abac(Arc<abac::Policies>),
    /// A remote service.
    Webhook(Arc<Webhook>),
}

/// What an explanation calls the rule that comes before every step.
const MASTERS_STEP: &str = "kubernetes.io/system-privileged-group";

/// One authorizer of a chain, under its name.
#[derive(Clone, Debug)]
pub struct Step {
    /// The name, unique in the chain: `rbac`, or as the configuration says.
    pub name: Str,
    /// The authorizer.
    pub authorizer: Authorizer,
}

/// Two steps of a chain have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duplicate authorizer name `{0}`")]
pub struct DuplicateName(pub Str);

/// The authorizers in the order they are asked.
#[derive(Clone)]
pub struct Chain {
    steps: Vec<Step>,
    observer: Arc<dyn Observer>,
}

impl Chain {
    /// A chain of these steps.
    pub fn new(steps: Vec<Step>) -> Result<Self, DuplicateName> {
        for (i, step) in steps.iter().enumerate() {
            if steps.iter().take(i).any(|earlier| earlier.name == step.name) {
                return Err(DuplicateName(step.name.clone()));
            }
        }
        Ok(Chain { steps, observer: Arc::new(Unobserved) })
    }

    /// This chain, with somebody to hear of its decisions.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Asks whether a caller may do what it asks.
    pub async fn authorize(&self, caller: &Caller, attributes: Attributes) -> Result<Permit, Refusal> {
        let answer = self.decide(caller.user(), &attributes).await;
        match answer.decision {
            Decision::Allow => Ok(Permit::new(caller.clone(), attributes, answer.reason)),
            // An error on the way denies: `Refusal::of` turns it into a 500, never into a permit.
            Decision::Deny | Decision::NoOpinion => Err(Refusal::of(caller.user(), &attributes, answer)),
        }
    }

    /// Asks whether somebody may do something: the first allow or deny decides. When no step has an opinion, the answer
    /// carries every step's reason and error.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Answer {
        if user.is_in(names::MASTERS) {
            return Answer::allow(Reason::None);
        }
        self.ask_all(user, attributes, &mut |_, _| {}).await
    }

    /// As [`Chain::decide`], with what each step that was asked answered.
    pub async fn explain(&self, user: &User, attributes: &Attributes) -> (Answer, Vec<(Str, Answer)>) {
        let mut asked = Vec::new();
        if user.is_in(names::MASTERS) {
            let answer = Answer::allow(Reason::None);
            return (answer.clone(), vec![(Str::new_static(MASTERS_STEP), answer)]);
        }
        let answer = self
            .ask_all(user, attributes, &mut |step, answer| asked.push((step.name.clone(), answer.clone())))
            .await;
        (answer, asked)
    }

    async fn ask_all(
        &self,
        user: &User,
        attributes: &Attributes,
        heard: &mut (dyn FnMut(&Step, &Answer) + Send),
    ) -> Answer {
        let mut reasons: Vec<Str> = Vec::new();
        let mut errors: Vec<String> = Vec::new();
        for step in &self.steps {
            let answer = step.authorizer.decide(user, attributes).await;
            self.observer.decided(step.authorizer.kind(), &step.name, answer.decision);
            heard(step, &answer);
            if answer.decision != Decision::NoOpinion {
                return answer;
            }
            if !answer.reason.is_empty() {
                reasons.push(format_smolstr!("{}: {}", step.name, answer.reason));
            }
            errors.extend(answer.error);
        }
        let error = (!errors.is_empty()).then(|| api::field::aggregate(&errors));
        if reasons.is_empty() {
            return Answer { decision: Decision::NoOpinion, reason: Reason::None, error };
        }
        Answer { error, ..Answer::no_opinion(reasons.join("\n")) }
    }

    /// Everything somebody may do in a namespace, as far as the steps can list it.
    pub fn rules_for(&self, user: &User, namespace: &str) -> rbac::Rules {
        let mut all = rbac::Rules::default();
        let mut errors: Vec<String> = Vec::new();
        for step in &self.steps {
            let mut rules = step.authorizer.rules_for(user, namespace);
            all.rules.append(&mut rules.rules);
            all.incomplete |= rules.incomplete;
            errors.extend(rules.error);
        }
        all.error = (!errors.is_empty()).then(|| api::field::aggregate(&errors));
        all
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

impl Authorizer {
    /// Its type.
    pub fn kind(&self) -> AuthorizerType {
        match self {
            Authorizer::AlwaysAllow => AuthorizerType::AlwaysAllow,
            Authorizer::AlwaysDeny => AuthorizerType::AlwaysDeny,
            Authorizer::Rbac(_) => AuthorizerType::Rbac,
            Authorizer::Node(_) => AuthorizerType::Node,
            Authorizer::Abac(_) => AuthorizerType::Abac,
            Authorizer::Webhook(_) => AuthorizerType::Webhook,
        }
    }

    async fn decide(&self, user: &User, attributes: &Attributes) -> Answer {
        match self {
            Authorizer::AlwaysAllow => Answer::allow(Reason::None),
            Authorizer::AlwaysDeny => Answer::no_opinion("Everything is forbidden."),
            Authorizer::Rbac(index) => index.decide(user, attributes),
            Authorizer::Node(nodes) => nodes.decide(user, attributes),
            Authorizer::Abac(policies) => policies.decide(user, attributes),
            Authorizer::Webhook(webhook) => webhook.decide(user, attributes).await,
        }
    }

    fn rules_for(&self, user: &User, namespace: &str) -> rbac::Rules {
        match self {
            Authorizer::AlwaysAllow => rbac::Rules { rules: rbac::everything(), ..rbac::Rules::default() },
            Authorizer::AlwaysDeny => rbac::Rules::default(),
            Authorizer::Rbac(index) => index.rules_for(user, namespace),
            Authorizer::Node(nodes) => nodes.rules_for(user),
            Authorizer::Abac(policies) => policies.rules_for(user, namespace),
            Authorizer::Webhook(_) => rbac::Rules {
                rules: Vec::new(),
                incomplete: true,
                error: Some("webhook authorizer does not support user rule resolution".to_owned()),
            },
        }
    }
}

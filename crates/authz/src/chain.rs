//! [`AuthorizerChain`]: the ordered list of authorizers. Only this module creates a [`Permit`].

use std::sync::Arc;

use authn::{Caller, User, names};
use value::{Str, format_smolstr};

use crate::attributes::AuthorizationAttributes;
use crate::config::AuthorizerType;
use crate::decision::{AuthorizerDecision, Decision, DecisionReason, Denial, Permit};
use crate::node::NodeAuthorizer;
use crate::observe::{AuthorizationObserver, NoObserver};
use crate::webhook::WebhookAuthorizer;
use crate::{abac, rbac};

#[derive(Clone, Debug)]
pub enum Authorizer {
    AlwaysAllow,
    /// Has no opinion on any request, but gives a reason: without other authorizers everything is denied with
    /// it.
    AlwaysDeny,
    Rbac(Arc<rbac::RbacIndex>),
    Node(Arc<NodeAuthorizer>),
    Abac(Arc<abac::AbacPolicies>),
    Webhook(Arc<WebhookAuthorizer>),
}

/// The name under which explanations list the rule for `system:masters`, which precedes all authorizers.
const MASTERS_STEP: &str = "kubernetes.io/system-privileged-group";

#[derive(Clone, Debug)]
pub struct ChainStep {
    /// Unique in the chain: `rbac`, or the name in the configuration.
    pub name: Str,
    pub authorizer: Authorizer,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duplicate authorizer name `{0}`")]
pub struct DuplicateName(pub Str);

/// Authorizers in the order in which they are asked.
#[derive(Clone)]
pub struct AuthorizerChain {
    steps: Vec<ChainStep>,
    observer: Arc<dyn AuthorizationObserver>,
}

impl AuthorizerChain {
    /// Fails if two steps have the same name.
    pub fn new(steps: Vec<ChainStep>) -> Result<Self, DuplicateName> {
        for (i, step) in steps.iter().enumerate() {
            if steps.iter().take(i).any(|earlier| earlier.name == step.name) {
                return Err(DuplicateName(step.name.clone()));
            }
        }
        Ok(AuthorizerChain { steps, observer: Arc::new(NoObserver) })
    }

    /// Reports decisions to `observer`.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn AuthorizationObserver>) -> Self {
        self.observer = observer;
        self
    }

    pub fn steps(&self) -> &[ChainStep] {
        &self.steps
    }

    /// Authorizes a request. Only this returns a [`Permit`].
    pub async fn authorize(
        &self,
        caller: &Caller,
        attributes: AuthorizationAttributes,
    ) -> Result<Permit, Denial> {
        let answer = self.decide(caller.user(), &attributes).await;
        match answer.decision {
            Decision::Allow => Ok(Permit::new(caller.clone(), attributes, answer.reason)),
            // With an error, `Denial::of` returns a 500.
            Decision::Deny | Decision::NoOpinion => Err(Denial::of(caller.user(), &attributes, answer)),
        }
    }

    /// Decides about any user: the first allow or deny counts. If no authorizer has an opinion, the result
    /// combines all reasons and errors.
    pub async fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        if user.is_in(names::MASTERS) {
            return AuthorizerDecision::allow(DecisionReason::None);
        }
        self.ask_all(user, attributes, &mut |_, _| {}).await
    }

    /// Like [`AuthorizerChain::decide`], and returns the decision of each authorizer that was asked.
    pub async fn explain(
        &self,
        user: &User,
        attributes: &AuthorizationAttributes,
    ) -> (AuthorizerDecision, Vec<(Str, AuthorizerDecision)>) {
        let mut asked = Vec::new();
        if user.is_in(names::MASTERS) {
            let answer = AuthorizerDecision::allow(DecisionReason::None);
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
        attributes: &AuthorizationAttributes,
        on_decision: &mut (dyn FnMut(&ChainStep, &AuthorizerDecision) + Send),
    ) -> AuthorizerDecision {
        let mut reasons: Vec<Str> = Vec::new();
        let mut errors: Vec<String> = Vec::new();
        for step in &self.steps {
            let answer = step.authorizer.decide(user, attributes).await;
            self.observer.decided(step.authorizer.kind(), &step.name, answer.decision);
            on_decision(step, &answer);
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
            return AuthorizerDecision { decision: Decision::NoOpinion, reason: DecisionReason::None, error };
        }
        AuthorizerDecision { error, ..AuthorizerDecision::no_opinion(reasons.join("\n")) }
    }

    /// Lists the rules of a user in a namespace, as far as the authorizers can enumerate them.
    pub fn rules_for(&self, user: &User, namespace: &str) -> rbac::SubjectRules {
        let mut all = rbac::SubjectRules::default();
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

impl std::fmt::Debug for AuthorizerChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

impl Authorizer {
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

    async fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        match self {
            Authorizer::AlwaysAllow => AuthorizerDecision::allow(DecisionReason::None),
            Authorizer::AlwaysDeny => AuthorizerDecision::no_opinion("Everything is forbidden."),
            Authorizer::Rbac(index) => index.decide(user, attributes),
            Authorizer::Node(nodes) => nodes.decide(user, attributes),
            Authorizer::Abac(policies) => policies.decide(user, attributes),
            Authorizer::Webhook(webhook) => webhook.decide(user, attributes).await,
        }
    }

    fn rules_for(&self, user: &User, namespace: &str) -> rbac::SubjectRules {
        match self {
            Authorizer::AlwaysAllow => {
                rbac::SubjectRules { rules: rbac::everything(), ..rbac::SubjectRules::default() }
            }
            Authorizer::AlwaysDeny => rbac::SubjectRules::default(),
            Authorizer::Rbac(index) => index.rules_for(user, namespace),
            Authorizer::Node(nodes) => nodes.rules_for(user),
            Authorizer::Abac(policies) => policies.rules_for(user, namespace),
            Authorizer::Webhook(_) => rbac::SubjectRules {
                rules: Vec::new(),
                incomplete: true,
                error: Some("webhook authorizer does not support user rule resolution".to_owned()),
            },
        }
    }
}

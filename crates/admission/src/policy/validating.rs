//! The stage of validating policies: all of them are evaluated, and what they say becomes one answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use api::{GroupResource, Status, StatusCause, StatusDetails};
use value::{Str, Value, write};

use super::judge::{Decision, Judgement, Noted, judge};
use super::params::{self, Params};
use super::shown::Shown;
use super::snapshot::Current;
use super::{Action, Binding, Hook, Snapshot, Source, ValidatingPolicy};
use crate::expression::{Checks, Facts, Scope, namespace_shown};
use crate::matching::{Asked, Match};
use crate::meter::{CheckError, Meter, counters};
use crate::{Attributes, Cluster, InForce, Later, Notes, ParamError, Seen, Stage};

/// The key of the audit annotation that lists failed validations.
const FAILURES: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The most failures it lists.
const MOST_FAILURES: usize = 50;
/// The longest value of an audit annotation.
const LONGEST_ANNOTATION: usize = 10 * 1024;

/// `ValidatingAdmissionPolicy`.
pub struct Validating {
    current: Current<ValidatingPolicy>,
    meter: Arc<dyn Meter>,
}

impl Validating {
    /// The stage without any policies.
    pub fn new(meter: Arc<dyn Meter>) -> Self {
        Validating { current: Current::default(), meter }
    }

    /// Puts other policies in force.
    pub fn replace(&self, snapshot: Snapshot<ValidatingPolicy>) {
        self.current.replace(snapshot);
    }
}

impl Stage for Validating {
    fn begin(&self, in_force: &InForce) {
        in_force.validating_policies(|| self.current.take());
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        cluster: &'a dyn Cluster,
        notes: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let snapshot = attributes.in_force.validating_policies(|| self.current.take());
        if snapshot.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move {
            let asked = Asked::new(attributes, object.stored(), cluster);
            run(&snapshot, &asked, object, notes, &*self.meter).await
        })
    }
}

/// A policy that is about the request, and as what it matched.
struct Concerned<'a> {
    hook: &'a Hook<ValidatingPolicy>,
    matched: Result<usize, String>,
}

async fn run(
    snapshot: &Snapshot<ValidatingPolicy>,
    asked: &Asked<'_>,
    object: &Seen<'_>,
    notes: &mut Notes,
    meter: &dyn Meter,
) -> Result<(), Status> {
    let mut matches: Vec<Match> = Vec::new();
    let concerned = concerned(snapshot, asked, &mut matches);
    if concerned.is_empty() {
        return Ok(());
    }
    let checks = Checks::default();
    let namespace = namespace_shown(asked);
    let mut shown: Vec<Result<Shown<'_>, String>> = Vec::with_capacity(matches.len());
    for matched in &matches {
        shown.push(Shown::of(asked, object, &matched.kind).await);
    }
    let facts: Vec<Facts<'_>> = matches
        .iter()
        .zip(&shown)
        .map(|(matched, shown)| {
            let shown = shown.as_ref().ok();
            let object = shown.and_then(|shown| shown.object.as_deref());
            let old = shown.and_then(|shown| shown.old.as_deref());
            Facts::new(asked, matched, object, old, namespace.as_ref(), &checks)
        })
        .collect();
    let scopes: Vec<Scope<'_>> = facts.iter().map(Scope::new).collect();

    let mut verdict =
        Verdict { denied: None, failures: Vec::new(), refuses: false, evaluated: false, notes, meter };
    for Concerned { hook, matched } in concerned {
        let policy = &hook.policy.policy;
        verdict.begin();
        let position = match matched {
            Ok(position) => position,
            Err(why) => {
                verdict.misconfigured(&hook.policy, None, &why);
                verdict.end(hook);
                continue;
            }
        };
        let served = match params::served(policy, asked) {
            Ok(served) => served,
            Err(ParamError::Unreadable(why)) => return Err(why),
            Err(ParamError::Misconfigured(why)) => {
                verdict.misconfigured(&hook.policy, None, &why);
                verdict.end(hook);
                continue;
            }
        };
        let (Some(scope), Some(shown)) = (scopes.get(position), shown.get(position)) else { continue };
        let mut collected: Vec<(Str, Vec<String>)> = Vec::new();
        let mut bound_here = false;
        for binding in &hook.bindings {
            let params = match bound(binding, served.as_ref(), asked).await {
                Ok(Some(params)) => params,
                Ok(None) => continue,
                Err(ParamError::Unreadable(why)) => return Err(why),
                Err(ParamError::Misconfigured(why)) => {
                    bound_here = true;
                    verdict.misconfigured(&hook.policy, Some(binding), &why);
                    continue;
                }
            };
            let (unset, each): (&[()], &[Arc<Value>]) = match &params {
                Params::Unset => (&[()], &[]),
                Params::Each(each) => (&[], each),
            };
            if unset.is_empty() && each.is_empty() {
                continue;
            }
            bound_here = true;
            if let Err(why) = shown {
                let why = format!("failed to convert object version: {why}");
                verdict.misconfigured(&hook.policy, Some(binding), &why);
                continue;
            }
            if namespace.is_none() {
                namespace_exists(asked)?;
            }
            let each = each.iter().map(|param| Some(&**param));
            for param in unset.iter().map(|()| None).chain(each) {
                let judgement = loop {
                    let operation = asked.attributes.operation;
                    match judge(&hook.policy, scope, param, operation, meter) {
                        Ok(judgement) => break judgement,
                        Err(pause) => checks.resume(pause, asked).await?,
                    }
                };
                verdict.add(hook, binding, judgement, &mut collected);
                if asked.pace().is_due() {
                    asked.rest().await?;
                }
            }
        }
        if bound_here {
            verdict.end(hook);
        }
        for (key, values) in collected {
            verdict.notes.annotate(format!("{}/{key}", policy.name), values.join(", "));
        }
    }
    verdict.settle(asked)
}

/// The policies whose constraints match, in order.
fn concerned<'a>(
    snapshot: &'a Snapshot<ValidatingPolicy>,
    asked: &Asked<'_>,
    matches: &mut Vec<Match>,
) -> Vec<Concerned<'a>> {
    let mut concerned = Vec::new();
    let mut as_itself = None;
    for hook in snapshot.candidates(asked) {
        let outcome = match &hook.policy.policy.criteria {
            Err(why) => Err(why.clone()),
            Ok(criteria) => criteria.matches(asked).map_err(|status| status.message().to_owned()),
        };
        let matched = match outcome {
            Ok(None) => continue,
            Err(why) => Err(why),
            Ok(Some(Cow::Borrowed(itself))) => Ok(*as_itself.get_or_insert_with(|| place(matches, itself))),
            Ok(Some(Cow::Owned(other))) => Ok(place(matches, &other)),
        };
        concerned.push(Concerned { hook, matched });
    }
    concerned
}

/// Where a match is in a list, which gets it if it is new.
fn place(matches: &mut Vec<Match>, matched: &Match) -> usize {
    matches.iter().position(|known| known == matched).unwrap_or_else(|| {
        matches.push(matched.clone());
        matches.len() - 1
    })
}

/// The parameters of a binding that is about the request; nothing if it is not.
async fn bound(
    binding: &Binding,
    served: Option<&crate::Served>,
    asked: &Asked<'_>,
) -> Result<Option<Params>, ParamError> {
    match &binding.criteria {
        None => {}
        Some(Err(why)) => return Err(why.clone().into()),
        Some(Ok(criteria)) => {
            let matched = criteria.matches(asked).map_err(|status| status.message().to_owned())?;
            if matched.is_none() {
                return Ok(None);
            }
        }
    }
    params::collect(served, binding.params.as_ref(), asked).await.map(Some)
}

/// What is evaluated for an object in a namespace needs that namespace.
pub(super) fn namespace_exists(asked: &Asked<'_>) -> Result<(), Status> {
    let name = asked.namespace();
    let is_one = asked.attributes.is_kind("", "Namespace");
    if name.is_empty() || is_one || asked.namespace_object().is_some() {
        return Ok(());
    }
    Err(Status::not_found(&GroupResource::new("", "namespaces"), name))
}

/// What has been said so far.
struct Verdict<'a> {
    /// The first refusal: message and reason.
    denied: Option<(String, Str)>,
    failures: Vec<String>,
    /// Whether the policy at hand refuses.
    refuses: bool,
    /// Whether the policy at hand was evaluated: its match conditions do not exclude the request.
    evaluated: bool,
    notes: &'a mut Notes,
    meter: &'a dyn Meter,
}

impl Verdict<'_> {
    fn begin(&mut self) {
        self.refuses = false;
        self.evaluated = false;
    }

    /// Ends what is said about a policy that matches the request.
    fn end(&mut self, hook: &Hook<ValidatingPolicy>) {
        let policy = &hook.policy.policy;
        policy.account.called();
        if self.refuses {
            policy.account.denied();
        }
        if self.evaluated && hook.source == Source::Manifest {
            self.notes.manifests.policy(&policy.name);
        }
    }

    fn deny(&mut self, policy: &str, binding: Option<&str>, message: &str, reason: &Str) {
        self.refuses = true;
        if self.denied.is_some() {
            return;
        }
        let message = match binding {
            Some(binding) => {
                format!(
                    "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
                )
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        };
        self.denied = Some((message, reason.clone()));
    }

    /// A policy or binding that cannot be used.
    fn misconfigured(&mut self, validating: &ValidatingPolicy, binding: Option<&Binding>, why: &str) {
        let policy = &validating.policy;
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        self.evaluated = true;
        policy.account.failed(&message, self.meter.now());
        if !policy.fails_closed {
            return;
        }
        self.deny(&policy.name, binding.map(|binding| binding.name.as_str()), &message, &Str::default());
    }

    /// What a policy said through a binding.
    fn add(
        &mut self,
        hook: &Hook<ValidatingPolicy>,
        binding: &Binding,
        judgement: Judgement,
        collected: &mut Vec<(Str, Vec<String>)>,
    ) {
        self.evaluated |= !judgement.excluded;
        let policy = &hook.policy.policy.name;
        let meter = self.meter;
        let count = |error: CheckError, action: &str, took: Duration| {
            for meter in counters(meter, hook.source == Source::Manifest) {
                meter.policy_checked(policy, &binding.name, error, action, took);
            }
        };
        for decision in judgement.decisions {
            let error = CheckError::of(&decision.message);
            if !decision.denies {
                count(error, "allow", decision.took);
                continue;
            }
            for action in &binding.actions {
                match action {
                    Action::Deny => {
                        self.deny(policy, Some(&binding.name), &decision.message, &decision.reason);
                    }
                    Action::Audit => {
                        if self.failures.len() < MOST_FAILURES {
                            self.failures.push(failure(binding, &decision));
                        }
                    }
                    Action::Warn => self.notes.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                        binding.name, decision.message
                    )),
                }
                count(error, action.label(), decision.took);
            }
        }
        for noted in judgement.annotations {
            match noted {
                Noted::Value(key, mut value) => {
                    value.truncate(value.floor_char_boundary(LONGEST_ANNOTATION));
                    match collected.iter_mut().find(|(known, _)| *known == key) {
                        None => collected.push((key, vec![value])),
                        Some((_, values)) if !values.contains(&value) => values.push(value),
                        Some(_) => {}
                    }
                }
                Noted::Failed(error, took) => {
                    self.deny(policy, Some(&binding.name), &error, &Str::default());
                    count(CheckError::of(&error), "deny", took);
                }
            }
        }
    }

    /// One answer of all.
    fn settle(self, asked: &Asked<'_>) -> Result<(), Status> {
        if !self.failures.is_empty() {
            self.notes.annotate(FAILURES, format!("[{}]", self.failures.join(",")));
        }
        let Some((message, reason)) = self.denied else { return Ok(()) };
        let reason = if reason.is_empty() { Str::new_static("Invalid") } else { reason };
        let code = match reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        let cause = StatusCause { reason: Str::default(), message: message.clone(), field: String::new() };
        Err(forbidden(asked, &message, vec![cause]).with_code(code).with_reason(reason))
    }
}

/// 403, with the name that Kubernetes finds for an object that may not have one yet.
pub(super) fn forbidden(asked: &Asked<'_>, why: &str, causes: Vec<StatusCause>) -> Status {
    let attributes = asked.attributes;
    let name = match (attributes.name.as_str(), asked.object) {
        ("", Some(object)) => match (api::meta::name(object), api::meta::text(object, "generateName")) {
            ("", "") => "Unknown",
            ("", base) => base,
            (name, _) => name,
        },
        ("", None) => "Unknown",
        (name, _) => name,
    };
    let details = StatusDetails {
        name: name.to_owned(),
        group: attributes.resource.group.clone(),
        kind: attributes.resource.resource.clone(),
        causes,
        ..StatusDetails::default()
    };
    Status::forbidden(&attributes.resource, name, why).with_details(details)
}

/// A failure as the audit annotation shows it.
fn failure(binding: &Binding, decision: &Decision) -> String {
    let text = |text: &str| write::to_string(&Value::from(text));
    let actions: Vec<String> = binding.actions.iter().map(|action| text(action.as_str())).collect();
    format!(
        r#"{{"message":{},"policy":{},"binding":{},"expressionIndex":{},"validationActions":[{}]}}"#,
        text(&decision.message),
        text(&binding.policy),
        text(&binding.name),
        decision.index,
        actions.join(",")
    )
}

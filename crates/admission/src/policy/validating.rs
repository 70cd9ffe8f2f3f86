//! `ValidatingAdmissionPolicy`: evaluates all policies and combines their results.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use api::{GroupResource, Status, StatusCause, StatusDetails};
use value::{Str, Value, write};

use super::converted_objects::ConvertedObjects;
use super::evaluate::{AnnotationOutcome, PolicyDecision, PolicyOutcome, evaluate};
use super::params::{self, PolicyParams};
use super::snapshot::CurrentPolicies;
use super::{BoundPolicy, PolicyBinding, PolicySnapshot, PolicySource, ValidatingPolicy, ValidationAction};
use crate::expression::{Activations, AuthorizerDecisions, ExpressionInput, visible_namespace};
use crate::matching::{MatchedResource, RequestContext};
use crate::metrics::{AdmissionMetrics, PolicyErrorType, metrics_for};
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AdmissionSnapshot, AsyncPlugin, ClusterView,
    ParamError, VersionedObject,
};

/// The key of the audit annotation that lists failed validations.
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";
/// The audit annotation lists at most this many failures.
const MAX_FAILURES: usize = 50;
/// Failures are listed until they have so many bytes; one is always listed.
const MAX_FAILURE_BYTES: usize = 256 << 10;
/// Total bytes of the values of audit annotations of policies. Of those beyond it, only the first value of each key of a
/// policy is recorded.
const MAX_ANNOTATION_BYTES: usize = 1 << 20;

/// The admission plugin `ValidatingAdmissionPolicy`.
pub struct ValidatingPolicies {
    current: CurrentPolicies<ValidatingPolicy>,
    metrics: Arc<dyn AdmissionMetrics>,
}

impl ValidatingPolicies {
    /// A plugin without policies.
    pub fn new(metrics: Arc<dyn AdmissionMetrics>) -> Self {
        ValidatingPolicies { current: CurrentPolicies::default(), metrics }
    }

    pub fn replace(&self, snapshot: PolicySnapshot<ValidatingPolicy>) {
        self.current.replace(snapshot);
    }
}

impl AsyncPlugin for ValidatingPolicies {
    fn pin_snapshot(&self, snapshot: &AdmissionSnapshot) {
        snapshot.validating_policies(|| self.current.load());
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        notes: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let snapshot = attributes.snapshot.validating_policies(|| self.current.load());
        if snapshot.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move {
            let context = RequestContext::new(attributes, object.stored(), cluster);
            run(&snapshot, &context, object, notes, &*self.metrics).await
        })
    }
}

/// A policy that selects the request. `matched` is an index into the list of matched resources, or an error.
struct MatchedPolicy<'a> {
    bound: &'a BoundPolicy<ValidatingPolicy>,
    matched: Result<usize, String>,
}

async fn run(
    snapshot: &PolicySnapshot<ValidatingPolicy>,
    context: &RequestContext<'_>,
    object: &VersionedObject<'_>,
    notes: &mut AdmissionNotes,
    metrics: &dyn AdmissionMetrics,
) -> Result<(), Status> {
    let mut matches: Vec<MatchedResource> = Vec::new();
    let matched_policies = matched_policies(snapshot, context, &mut matches);
    if matched_policies.is_empty() {
        return Ok(());
    }
    let checks = AuthorizerDecisions::default();
    let namespace = visible_namespace(context);
    let mut converted: Vec<Result<ConvertedObjects<'_>, String>> = Vec::with_capacity(matches.len());
    for matched in &matches {
        converted.push(ConvertedObjects::of(context, object, &matched.kind).await);
    }
    let input: Vec<ExpressionInput<'_>> = matches
        .iter()
        .zip(&converted)
        .map(|(matched, converted)| {
            let converted = converted.as_ref().ok();
            let object = converted.and_then(|converted| converted.object.as_deref());
            let old = converted.and_then(|converted| converted.old.as_deref());
            ExpressionInput::new(context, matched, object, old, namespace.as_ref(), &checks)
        })
        .collect();
    let activations_list: Vec<Activations<'_>> = input.iter().map(Activations::new).collect();

    let mut report = ValidationReport {
        denied: None,
        failures: Vec::new(),
        failure_bytes: 0,
        denies: false,
        evaluated: false,
        annotations: Vec::new(),
        annotation_bytes: 0,
        notes,
        metrics,
    };
    let validator = PolicyValidator { context, checks: &checks, has_namespace: namespace.is_some(), metrics };
    for MatchedPolicy { bound, matched } in matched_policies {
        report.begin_policy();
        let position = match matched {
            Ok(position) => position,
            Err(why) => {
                report.misconfigured(&bound.policy, None, &why);
                report.end(bound);
                continue;
            }
        };
        let (Some(activations), Some(converted)) = (activations_list.get(position), converted.get(position))
        else {
            continue;
        };
        let conversion_error = converted.as_ref().err();
        if validator.evaluate_bindings(bound, activations, conversion_error, &mut report).await? {
            report.end(bound);
        }
    }
    report.into_result(context)
}

/// Evaluates the policies of one request. Authorizer decisions are shared by all of them.
struct PolicyValidator<'a> {
    context: &'a RequestContext<'a>,
    checks: &'a AuthorizerDecisions,
    /// Whether expressions see the request's namespace.
    has_namespace: bool,
    metrics: &'a dyn AdmissionMetrics,
}

impl PolicyValidator<'_> {
    /// Evaluates a policy with each of its bindings that selects the request. Returns false if there is none.
    async fn evaluate_bindings(
        &self,
        bound: &BoundPolicy<ValidatingPolicy>,
        activations: &Activations<'_>,
        conversion_error: Option<&String>,
        report: &mut ValidationReport<'_>,
    ) -> Result<bool, Status> {
        let mapping = match params::mapping(&bound.policy.policy, self.context) {
            Ok(mapping) => mapping,
            Err(ParamError::Unreadable(why)) => return Err(why),
            Err(ParamError::Misconfigured(why)) => {
                report.misconfigured(&bound.policy, None, &why);
                return Ok(true);
            }
        };
        let mut has_matching_binding = false;
        for binding in &bound.bindings {
            let params = match params::of_binding(binding, mapping.as_ref(), self.context).await {
                Ok(Some(params)) => params,
                Ok(None) => continue,
                Err(ParamError::Unreadable(why)) => return Err(why),
                Err(ParamError::Misconfigured(why)) => {
                    has_matching_binding = true;
                    report.misconfigured(&bound.policy, Some(binding), &why);
                    continue;
                }
            };
            let (unset, each): (&[()], &[Arc<Value>]) = match &params {
                PolicyParams::Unset => (&[()], &[]),
                PolicyParams::Each(each) => (&[], each),
            };
            if unset.is_empty() && each.is_empty() {
                continue;
            }
            has_matching_binding = true;
            if let Some(why) = conversion_error {
                let why = format!("failed to convert object version: {why}");
                report.misconfigured(&bound.policy, Some(binding), &why);
                continue;
            }
            if !self.has_namespace {
                namespace_exists(self.context)?;
            }
            let each = each.iter().map(|param| Some(&**param));
            for param in unset.iter().map(|()| None).chain(each) {
                let outcome = self.evaluate(&bound.policy, activations, param).await?;
                report.add(bound, binding, outcome);
                if self.context.pacer().is_due() {
                    self.context.yield_if_due().await?;
                }
            }
        }
        Ok(has_matching_binding)
    }

    async fn evaluate(
        &self,
        policy: &ValidatingPolicy,
        activations: &Activations<'_>,
        param: Option<&Value>,
    ) -> Result<PolicyOutcome, Status> {
        loop {
            let operation = self.context.attributes.operation;
            match evaluate(policy, activations, param, operation, self.metrics) {
                Ok(outcome) => return Ok(outcome),
                Err(pause) => self.checks.resume(pause, self.context).await?,
            }
        }
    }
}

/// The policies whose constraints match, in order. Adds the matched resources to `matches`, each once.
fn matched_policies<'a>(
    snapshot: &'a PolicySnapshot<ValidatingPolicy>,
    context: &RequestContext<'_>,
    matches: &mut Vec<MatchedResource>,
) -> Vec<MatchedPolicy<'a>> {
    let mut matched_policies = Vec::new();
    let mut own_index = None;
    for bound in snapshot.candidates(context) {
        let outcome = match &bound.policy.policy.criteria {
            Err(why) => Err(why.clone()),
            Ok(criteria) => criteria.matches(context).map_err(|status| status.message().to_owned()),
        };
        let matched = match outcome {
            Ok(None) => continue,
            Err(why) => Err(why),
            Ok(Some(Cow::Borrowed(own_match))) => {
                Ok(*own_index.get_or_insert_with(|| intern_match(matches, own_match)))
            }
            Ok(Some(Cow::Owned(other))) => Ok(intern_match(matches, &other)),
        };
        matched_policies.push(MatchedPolicy { bound, matched });
    }
    matched_policies
}

/// The index of a match in the list, to which it is added if missing.
fn intern_match(matches: &mut Vec<MatchedResource>, matched: &MatchedResource) -> usize {
    matches.iter().position(|known| known == matched).unwrap_or_else(|| {
        matches.push(matched.clone());
        matches.len() - 1
    })
}

/// Fails with 404 if the request's namespace does not exist.
pub(super) fn namespace_exists(context: &RequestContext<'_>) -> Result<(), Status> {
    let name = context.namespace();
    let is_one = context.attributes.is_kind("", "Namespace");
    if name.is_empty() || is_one || context.namespace_object().is_some() {
        return Ok(());
    }
    Err(Status::not_found(&GroupResource::new("", "namespaces"), name))
}

/// The results of the policies evaluated so far.
struct ValidationReport<'a> {
    /// Message and reason of the first denial.
    denied: Option<(String, Str)>,
    failures: Vec<String>,
    failure_bytes: usize,
    /// Whether the current policy denies the request.
    denies: bool,
    /// Whether the current policy was evaluated, that is, not excluded by its match conditions.
    evaluated: bool,
    /// The audit annotations of the current policy: key and distinct values.
    annotations: Vec<(Str, Vec<String>)>,
    /// Bytes of the annotations of all policies.
    annotation_bytes: usize,
    notes: &'a mut AdmissionNotes,
    metrics: &'a dyn AdmissionMetrics,
}

impl ValidationReport<'_> {
    fn begin_policy(&mut self) {
        self.denies = false;
        self.evaluated = false;
        self.annotations.clear();
    }

    /// Updates the inventory and writes the annotations after a policy is done.
    fn end(&mut self, bound: &BoundPolicy<ValidatingPolicy>) {
        let policy = &bound.policy.policy;
        policy.inventory.count_call();
        if self.denies {
            policy.inventory.count_denial();
        }
        if self.evaluated && bound.source == PolicySource::Manifest {
            self.notes.manifests.record_policy(&policy.name);
        }
        for (key, values) in self.annotations.drain(..) {
            self.notes.annotate(format!("{}/{key}", policy.name), values.join(", "));
        }
    }

    fn deny(&mut self, policy: &str, binding: Option<&str>, message: &str, reason: &Str) {
        self.denies = true;
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

    /// Handles a policy or binding that cannot be used, by its failure policy.
    fn misconfigured(&mut self, validating: &ValidatingPolicy, binding: Option<&PolicyBinding>, why: &str) {
        let policy = &validating.policy;
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        self.evaluated = true;
        policy.inventory.record_error(&message, self.metrics.now());
        if !policy.fails_closed {
            return;
        }
        self.deny(&policy.name, binding.map(|binding| binding.name.as_str()), &message, &Str::default());
    }

    /// Adds the result of a policy for one binding and parameter object.
    fn add(
        &mut self,
        bound: &BoundPolicy<ValidatingPolicy>,
        binding: &PolicyBinding,
        outcome: PolicyOutcome,
    ) {
        self.evaluated |= !outcome.excluded;
        let policy = &bound.policy.policy.name;
        let metrics = self.metrics;
        let count = |error: PolicyErrorType, action: &str, took: Duration| {
            for metrics in metrics_for(metrics, bound.source == PolicySource::Manifest) {
                metrics.policy_checked(policy, &binding.name, error, action, took);
            }
        };
        for decision in outcome.decisions {
            let error = PolicyErrorType::from_message(&decision.message);
            if !decision.denies {
                count(error, "allow", decision.took);
                continue;
            }
            for action in &binding.actions {
                match action {
                    ValidationAction::Deny => {
                        self.deny(policy, Some(&binding.name), &decision.message, &decision.reason);
                    }
                    ValidationAction::Audit => {
                        if self.failures.len() < MAX_FAILURES && self.failure_bytes < MAX_FAILURE_BYTES {
                            let failure = failure_json(binding, &decision);
                            self.failure_bytes += failure.len();
                            self.failures.push(failure);
                        }
                    }
                    ValidationAction::Warn if self.notes.can_send_warnings() => self.notes.warn(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {}",
                        binding.name, decision.message
                    )),
                    ValidationAction::Warn => {}
                }
                count(error, action.label(), decision.took);
            }
        }
        for noted in outcome.annotations {
            match noted {
                AnnotationOutcome::Value(key, value) => {
                    let bytes = value.len();
                    let fits = self.annotation_bytes.saturating_add(bytes) <= MAX_ANNOTATION_BYTES;
                    match self.annotations.iter_mut().find(|(known, _)| *known == key) {
                        None => self.annotations.push((key, vec![value])),
                        Some((_, values)) if fits && !values.contains(&value) => values.push(value),
                        Some(_) => continue,
                    }
                    self.annotation_bytes += bytes;
                }
                AnnotationOutcome::Failed(error, took) => {
                    self.deny(policy, Some(&binding.name), &error, &Str::default());
                    count(PolicyErrorType::from_message(&error), "deny", took);
                }
            }
        }
    }

    fn into_result(self, context: &RequestContext<'_>) -> Result<(), Status> {
        if !self.failures.is_empty() {
            self.notes.annotate(FAILURE_ANNOTATION, format!("[{}]", self.failures.join(",")));
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
        Err(forbidden(context, &message, vec![cause]).with_code(code).with_reason(reason))
    }
}

/// 403, with the name by which kube-apiserver identifies an object that may not have one yet.
pub(super) fn forbidden(context: &RequestContext<'_>, why: &str, causes: Vec<StatusCause>) -> Status {
    let attributes = context.attributes;
    let name = match (attributes.name.as_str(), context.object) {
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

/// A failed validation as JSON for the audit annotation.
fn failure_json(binding: &PolicyBinding, decision: &PolicyDecision) -> String {
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

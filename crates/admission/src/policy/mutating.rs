//! `MutatingAdmissionPolicy`: runs policies in order, each on the object as changed by the previous ones.

use std::sync::Arc;

use api::{Status, StatusCause};
use value::{Str, Value};

use super::compiled::PolicyMutation;
use super::evaluate::{BUDGET, with_params};
use super::params::{self, PolicyParams};
use super::snapshot::CurrentPolicies;
use super::validating::{forbidden, namespace_exists};
use super::{BoundPolicy, MutatingPolicy, PolicyBinding, PolicySnapshot, PolicySource, patch};
use crate::expression::{
    Activations, AuthorizerDecisions, DeclaredVariables, EvaluationPause, EvaluationStop, ExpressionInput,
    OUT_OF_BUDGET, PolicyEvaluation, visible_namespace,
};
use crate::matching::{ConditionResult, MatchedResource, RequestContext};
use crate::metrics::{AdmissionMetrics, MatchConditionLabels, PolicyErrorType, metrics_for};
use crate::patched::to_stored;
use crate::{
    AdmissionAttributes, AdmissionNotes, AdmissionSnapshot, AsyncPlugin, BoxFuture, ClusterView,
    MutatingRequest, Operation, ParamError, Reinvocation,
};

/// The admission plugin `MutatingAdmissionPolicy`.
pub struct MutatingPolicies {
    current: CurrentPolicies<MutatingPolicy>,
    metrics: Arc<dyn AdmissionMetrics>,
}

impl MutatingPolicies {
    /// A plugin without policies.
    pub fn new(metrics: Arc<dyn AdmissionMetrics>) -> Self {
        MutatingPolicies { current: CurrentPolicies::default(), metrics }
    }

    pub fn replace(&self, snapshot: PolicySnapshot<MutatingPolicy>) {
        self.current.replace(snapshot);
    }
}

impl AsyncPlugin for MutatingPolicies {
    fn pin_snapshot(&self, snapshot: &AdmissionSnapshot) {
        snapshot.mutating_policies(|| self.current.load());
    }

    fn mutate<'a>(
        &'a self,
        request: &'a mut MutatingRequest<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let snapshot = request.attributes.snapshot.mutating_policies(|| self.current.load());
        // There is no object to change in a delete.
        let object = object.filter(|_| request.attributes.operation != Operation::Delete);
        let (Some(object), false) = (object, snapshot.is_empty()) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        Box::pin(async move {
            let MutatingRequest { attributes, cluster, reinvocation, notes } = request;
            run(&snapshot, attributes, object, *cluster, reinvocation, notes, &*self.metrics).await
        })
    }
}

/// One evaluation of a policy, with one binding and at most one parameter object.
struct PolicyInvocation<'a> {
    bound: &'a BoundPolicy<MutatingPolicy>,
    binding: &'a PolicyBinding,
    matched: MatchedResource,
    param: Option<Arc<Value>>,
}

impl PolicyInvocation<'_> {
    /// Identifies the invocation in [`Reinvocation`].
    fn key(&self) -> Str {
        let param = self.param.as_deref().map(|param| (api::meta::namespace(param), api::meta::name(param)));
        let (namespace, name) = param.unwrap_or_default();
        format!("{}/{}/{namespace}/{name}", self.bound.policy.policy.name, self.binding.name).into()
    }
}

/// A failure that rejects the request under `failurePolicy: Fail`.
struct PolicyFailure {
    message: String,
    /// Whether evaluation failed, as opposed to configuration.
    evaluation_failure: bool,
}

/// Failures and notes of the mutating policies of one request.
struct MutationReport<'a> {
    failures: Vec<PolicyFailure>,
    notes: &'a mut AdmissionNotes,
}

impl MutationReport<'_> {
    /// Records a policy from a manifest file as evaluated, for the audit event.
    fn evaluated(&mut self, bound: &BoundPolicy<MutatingPolicy>) {
        if bound.source == PolicySource::Manifest {
            self.notes.manifests.record_policy(&bound.policy.policy.name);
        }
    }
}

async fn run(
    snapshot: &PolicySnapshot<MutatingPolicy>,
    attributes: &AdmissionAttributes<'_>,
    object: &mut Value,
    cluster: &dyn ClusterView,
    reinvocation: &mut Reinvocation,
    notes: &mut AdmissionNotes,
    metrics: &dyn AdmissionMetrics,
) -> Result<(), Status> {
    let mut report = MutationReport { failures: Vec::new(), notes };
    let invocations = {
        let context = RequestContext::new(attributes, Some(object), cluster);
        invocations(snapshot, &context, &mut report, metrics).await?
    };
    if !invocations.is_empty() {
        let outcome =
            dispatch(&invocations, attributes, object, cluster, reinvocation, metrics, &mut report).await;
        reinvocation.policies.set_last_output(object);
        outcome?;
    }
    refuse(&RequestContext::new(attributes, Some(object), cluster), &report.failures)
}

/// The invocations of all policies that match. They are determined before the first one changes the object.
async fn invocations<'a>(
    snapshot: &'a PolicySnapshot<MutatingPolicy>,
    context: &RequestContext<'_>,
    report: &mut MutationReport<'_>,
    metrics: &dyn AdmissionMetrics,
) -> Result<Vec<PolicyInvocation<'a>>, Status> {
    let mut invocations = Vec::new();
    for bound in snapshot.candidates(context) {
        let policy = &bound.policy.policy;
        let mut configuration_failure = |binding: Option<&PolicyBinding>, why: &str| {
            report.evaluated(bound);
            policy.inventory.count_call();
            policy.inventory.record_error(why, metrics.now());
            if policy.fails_closed {
                policy.inventory.count_denial();
                report.failures.push(configuration_failure(bound, binding, why));
            }
        };
        let matched = match &policy.criteria {
            Err(why) => Err(why.clone()),
            Ok(criteria) => criteria.matches(context).map_err(|status| status.message().to_owned()),
        };
        let matched = match matched {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(why) => {
                configuration_failure(None, &why);
                continue;
            }
        };
        let mapping = match params::mapping(policy, context) {
            Ok(mapping) => mapping,
            Err(ParamError::Unreadable(why)) => return Err(why),
            Err(ParamError::Misconfigured(why)) => {
                configuration_failure(None, &why);
                continue;
            }
        };
        for binding in &bound.bindings {
            let affects_quota = match &binding.criteria {
                None => Ok(true),
                Some(Err(why)) => Err(why.clone()),
                Some(Ok(criteria)) => criteria
                    .matches(context)
                    .map(|matched| matched.is_some())
                    .map_err(|status| status.message().to_owned()),
            };
            match affects_quota {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    configuration_failure(Some(binding), &why);
                    continue;
                }
            }
            let params = params::collect(mapping.as_ref(), binding.params.as_ref(), context).await;
            let params = match params {
                Ok(PolicyParams::Unset) => vec![None],
                Ok(PolicyParams::Each(each)) => each.into_iter().map(Some).collect(),
                Err(ParamError::Unreadable(why)) => return Err(why),
                Err(ParamError::Misconfigured(why)) => {
                    configuration_failure(Some(binding), &why);
                    continue;
                }
            };
            let runs = params.into_iter().map(|param| PolicyInvocation {
                bound,
                binding,
                matched: matched.clone().into_owned(),
                param: param.map(without_type_meta),
            });
            invocations.extend(runs);
        }
    }
    Ok(invocations)
}

/// Removes `apiVersion` and `kind` from parameters of built-in kinds, as Kubernetes' typed clients do for
/// mutating policies.
fn without_type_meta(param: Arc<Value>) -> Arc<Value> {
    let kind = api::meta::gvk(&param);
    if schema::of(&kind.group, &kind.version, &kind.kind).is_none() {
        return param;
    }
    let mut param = Arc::unwrap_or_clone(param);
    let map = param.make_map();
    map.remove("apiVersion");
    map.remove("kind");
    Arc::new(param)
}

async fn dispatch(
    invocations: &[PolicyInvocation<'_>],
    attributes: &AdmissionAttributes<'_>,
    object: &mut Value,
    cluster: &dyn ClusterView,
    reinvocation: &mut Reinvocation,
    metrics: &dyn AdmissionMetrics,
    report: &mut MutationReport<'_>,
) -> Result<(), Status> {
    if reinvocation.is_second() && reinvocation.policies.is_output_changed(object) {
        reinvocation.policies.require_reinvocation();
    }
    let checks = AuthorizerDecisions::default();
    let context = RequestContext::new(attributes, None, cluster);
    namespace_exists(&context)?;
    let namespace = visible_namespace(&context);
    let mut changed = false;
    for invocation in invocations {
        let policy = &invocation.bound.policy.policy;
        let failures = &mut report.failures;
        let mut fail = |message: &str| {
            policy.inventory.record_error(message, metrics.now());
            if policy.fails_closed {
                policy.inventory.count_denial();
                failures.push(evaluation_failure(invocation, message));
            }
        };
        let kind = &invocation.matched.kind;
        let mut converted = match cluster.convert(object, kind).await {
            Ok(converted) => converted,
            Err(why) => return Err(Status::internal(why)),
        };
        let old = match attributes.old_object.stored() {
            Some(old) => Some(cluster.convert(old, kind).await.map_err(Status::internal)?),
            None => None,
        };
        context.yield_if_due().await?;
        let ask = |converted: &Value| {
            let input = ExpressionInput::new(
                &context,
                &invocation.matched,
                Some(converted),
                old.as_ref(),
                namespace.as_ref(),
                &checks,
            );
            evaluate_conditions(invocation, &Activations::new(&input), attributes.operation, metrics)
        };
        let matched = loop {
            match ask(&converted) {
                Ok(matched) => break matched,
                Err(pause) => checks.resume(pause, &context).await?,
            }
        };
        if matched != ConditionResult::Exclude && invocation.bound.source == PolicySource::Manifest {
            report.notes.manifests.record_policy(&policy.name);
        }
        match matched {
            ConditionResult::Include => {}
            ConditionResult::Exclude => continue,
            ConditionResult::Failed(why) => {
                fail(&why);
                continue;
            }
        }
        let key = invocation.key();
        if reinvocation.is_second() && !reinvocation.policies.should_reinvoke(&key) {
            continue;
        }
        policy.inventory.count_call();
        let before = converted.clone();
        for mutation in &invocation.bound.policy.mutations {
            let started = metrics.now();
            let outcome = loop {
                let progress = {
                    let input = ExpressionInput::new(
                        &context,
                        &invocation.matched,
                        Some(&converted),
                        old.as_ref(),
                        namespace.as_ref(),
                        &checks,
                    );
                    mutate(mutation, invocation, &converted, &Activations::new(&input), &context)
                };
                match progress {
                    MutationStep::EvaluationPause(pause) => checks.resume(pause, &context).await?,
                    MutationStep::Done(outcome) => break outcome,
                }
            };
            let outcome = match outcome {
                Err(why) => Err(MutationError::Policy(why)),
                Ok(patched) if patched == converted => Ok(None),
                Ok(mut patched) => match patch::check_kind_unchanged(&mut patched, kind) {
                    Err(why) => Err(MutationError::Decoding(why)),
                    Ok(()) => match to_stored(patched, kind, true, attributes, cluster).await {
                        Ok(adopted) => Ok(Some(adopted)),
                        Err(why) if matches!(mutation, PolicyMutation::Json(_)) => {
                            Err(MutationError::Decoding(why))
                        }
                        Err(why) => Err(MutationError::Policy(patch::conversion_error(kind, why))),
                    },
                },
            };
            let took = metrics.now().saturating_sub(started);
            let count = |error: PolicyErrorType| {
                for metrics in metrics_for(metrics, invocation.bound.source == PolicySource::Manifest) {
                    metrics.mutation_checked(&policy.name, &invocation.binding.name, error, took);
                }
            };
            match outcome {
                Ok(None) => count(PolicyErrorType::None),
                Ok(Some(adopted)) => {
                    count(PolicyErrorType::None);
                    *object = adopted;
                    converted = cluster.convert(object, kind).await.map_err(Status::internal)?;
                }
                Err(MutationError::Policy(why)) => {
                    count(PolicyErrorType::from_message(&why));
                    fail(&why);
                }
                Err(MutationError::Decoding(why)) => {
                    count(PolicyErrorType::Invalid);
                    policy.inventory.record_error(&why, metrics.now());
                    policy.inventory.count_denial();
                    return Err(Status::internal(why));
                }
            }
        }
        if converted != before {
            changed = true;
            reinvocation.policies.require_reinvocation();
            reinvocation.request_second_pass();
        }
        if invocation.bound.policy.reinvoke_if_needed {
            reinvocation.policies.add_reinvocable(key);
        }
    }
    if changed {
        reinvocation.policies.require_reinvocation();
    }
    Ok(())
}

/// A mutation that could not be applied.
enum MutationError {
    /// An evaluation error; the failure policy applies.
    Policy(String),
    /// The result is not an object of the right kind; rejects the request regardless of the failure policy.
    Decoding(String),
}

fn evaluate_conditions(
    invocation: &PolicyInvocation<'_>,
    activations: &Activations<'_>,
    operation: Operation,
    metrics: &dyn AdmissionMetrics,
) -> Result<ConditionResult, EvaluationPause> {
    let policy = &invocation.bound.policy.policy;
    let Some(conditions) = &policy.conditions else { return Ok(ConditionResult::Include) };
    let base = with_params(activations, conditions.declared_variables(), invocation.param.as_deref());
    let labels = MatchConditionLabels { name: &policy.name, kind: "policy", phase: "validate", operation };
    conditions.evaluate_with(&policy.variables, &base, activations.pacer(), &labels, metrics)
}

/// The progress of a mutation.
enum MutationStep {
    EvaluationPause(EvaluationPause),
    /// The changed object, or an error message.
    Done(Result<Value, String>),
}

fn mutate(
    mutation: &PolicyMutation,
    invocation: &PolicyInvocation<'_>,
    converted: &Value,
    activations: &Activations<'_>,
    context: &RequestContext<'_>,
) -> MutationStep {
    let policy = &invocation.bound.policy.policy;
    let declared = DeclaredVariables {
        params: policy.params.is_some(),
        composed: true,
        conditions: false,
        authorizer: true,
    };
    let base = with_params(activations, declared, invocation.param.as_deref());
    let evaluation = PolicyEvaluation::new(&policy.variables, &base, activations.pacer());
    let (PolicyMutation::Apply(expression) | PolicyMutation::Json(expression)) = mutation;
    if let Some(error) = expression.compile_error() {
        return MutationStep::Done(Err(error.detail().to_owned()));
    }
    let mut budget = BUDGET;
    let value = match expression.evaluate(&evaluation, &mut budget) {
        Err(EvaluationStop::Check(check)) => {
            return MutationStep::EvaluationPause(EvaluationPause::Check(check));
        }
        Err(EvaluationStop::Late) => return MutationStep::EvaluationPause(EvaluationPause::Late),
        Err(EvaluationStop::Budget) => return MutationStep::Done(Err(OUT_OF_BUDGET.to_owned())),
        Ok(Err(why)) => return MutationStep::Done(Err(why)),
        Ok(Ok(value)) => value,
    };
    MutationStep::Done(match mutation {
        PolicyMutation::Json(_) => patch::apply_json_patch(&value, converted),
        PolicyMutation::Apply(_) => {
            let kind = &invocation.matched.kind;
            // Only kinds of resources can be applied, also in versions that are no longer served. `Scale` is
            // not one.
            let is_equivalent = || context.equivalents().iter().any(|other| other.kind == *kind);
            let is_resource =
                context.cluster.rest_mapping(kind).is_some() || is_binding(kind) || is_equivalent();
            let stored_kind = Some(&context.attributes.stored_kind);
            let schema = if is_resource { context.cluster.schema(kind, stored_kind) } else { None };
            patch::apply_configuration(&value, converted, kind, schema.as_ref().map(schema::Link::get))
        }
    })
}

fn is_binding(kind: &api::GroupVersionKind) -> bool {
    kind.group.is_empty() && kind.kind == "Binding"
}

fn configuration_failure(
    bound: &BoundPolicy<MutatingPolicy>,
    binding: Option<&PolicyBinding>,
    why: &str,
) -> PolicyFailure {
    let policy = &bound.policy.policy.name;
    let message = match binding {
        Some(binding) => {
            let binding = &binding.name;
            format!(
                "policy '{policy}' with binding '{binding}' denied request: failed to configure binding: {why}"
            )
        }
        None => {
            let policy = api::field::quote(policy);
            format!("policy {policy} denied request: failed to configure policy: {why}")
        }
    };
    PolicyFailure { message, evaluation_failure: false }
}

fn evaluation_failure(invocation: &PolicyInvocation<'_>, why: &str) -> PolicyFailure {
    let (policy, binding) = (&invocation.bound.policy.policy.name, &invocation.binding.name);
    let message = format!("policy '{policy}' with binding '{binding}' denied request: {why}");
    PolicyFailure { message, evaluation_failure: true }
}

/// 403 with the message of the first failure, and all messages as causes.
fn refuse(context: &RequestContext<'_>, failures: &[PolicyFailure]) -> Result<(), Status> {
    let Some(first) = failures.first() else { return Ok(()) };
    let causes = failures.iter().map(|failure| StatusCause {
        reason: Str::default(),
        message: failure.message.clone(),
        field: String::new(),
    });
    let status = forbidden(context, "", causes.collect()).with_message(first.message.clone());
    Err(if first.evaluation_failure { status.with_reason("Invalid") } else { status })
}

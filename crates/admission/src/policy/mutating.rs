//! `MutatingAdmissionPolicy`: runs policies in order, each on the object as changed by the previous ones.

mod mutator;

use std::sync::Arc;

use api::{GroupVersionKind, Status, StatusCause};
use value::{Str, Value};

use self::mutator::PolicyMutator;
use super::params::{self, PolicyParams};
use super::snapshot::CurrentPolicies;
use super::validating::{forbidden, namespace_exists};
use super::{BoundPolicy, MutatingPolicy, PolicyBinding, PolicySnapshot, PolicySource};
use crate::matching::{MatchedResource, RequestContext};
use crate::metrics::AdmissionMetrics;
use crate::{
    AdmissionFuture, AdmissionNotes, AdmissionSnapshot, AsyncPlugin, MutatingRequest, Operation, ParamError,
    Reinvocation,
};

/// A rejection lists at most this many failures, and failures until they have so many bytes, but at least one.
const MAX_FAILURES: usize = 500;
const MAX_FAILURE_BYTES: usize = 1 << 20;

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
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let snapshot = request.attributes.snapshot.mutating_policies(|| self.current.load());
        // There is no object to change in a delete.
        let object = object.filter(|_| request.attributes.operation != Operation::Delete);
        let (Some(object), false) = (object, snapshot.is_empty()) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        Box::pin(async move { run(&snapshot, request, object, &*self.metrics).await })
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
    failure_bytes: usize,
    notes: &'a mut AdmissionNotes,
    metrics: &'a dyn AdmissionMetrics,
}

impl MutationReport<'_> {
    /// Records a policy from a manifest file as evaluated, for the audit event.
    fn evaluated(&mut self, bound: &BoundPolicy<MutatingPolicy>) {
        if bound.source == PolicySource::Manifest {
            self.notes.manifests.record_policy(&bound.policy.policy.name);
        }
    }

    /// Handles a policy or binding that cannot be used, by its failure policy.
    fn misconfigured(
        &mut self,
        bound: &BoundPolicy<MutatingPolicy>,
        binding: Option<&PolicyBinding>,
        why: &str,
    ) {
        self.evaluated(bound);
        bound.policy.policy.inventory.count_call();
        self.fail(bound, why, || configuration_failure(bound, binding, why));
    }

    /// Handles an evaluation error by the failure policy.
    fn evaluation_failed(&mut self, invocation: &PolicyInvocation<'_>, why: &str) {
        self.fail(invocation.bound, why, || evaluation_failure(invocation, why));
    }

    fn fail(
        &mut self,
        bound: &BoundPolicy<MutatingPolicy>,
        why: &str,
        failure: impl FnOnce() -> PolicyFailure,
    ) {
        let policy = &bound.policy.policy;
        policy.inventory.record_error(why, self.metrics.now());
        if policy.fails_closed {
            policy.inventory.count_denial();
            if self.failures.len() < MAX_FAILURES && self.failure_bytes < MAX_FAILURE_BYTES {
                let failure = failure();
                self.failure_bytes += failure.message.len();
                self.failures.push(failure);
            }
        }
    }
}

async fn run(
    snapshot: &PolicySnapshot<MutatingPolicy>,
    request: &mut MutatingRequest<'_, '_>,
    object: &mut Value,
    metrics: &dyn AdmissionMetrics,
) -> Result<(), Status> {
    let MutatingRequest { attributes, cluster, notes, reinvocation } = request;
    let mut report = MutationReport { failures: Vec::new(), failure_bytes: 0, notes, metrics };
    let invocations = {
        let context = RequestContext::new(attributes, Some(object), *cluster);
        invocations(snapshot, &context, &mut report).await?
    };
    if !invocations.is_empty() {
        // Without the object, because the invocations change it.
        let context = RequestContext::new(attributes, None, *cluster);
        let outcome = dispatch(&invocations, &context, object, reinvocation, &mut report).await;
        reinvocation.policies.set_last_output(object);
        outcome?;
    }
    refuse(&RequestContext::new(attributes, Some(object), *cluster), &report.failures)
}

/// The invocations of all policies that match. They are determined before the first one changes the object.
async fn invocations<'a>(
    snapshot: &'a PolicySnapshot<MutatingPolicy>,
    context: &RequestContext<'_>,
    report: &mut MutationReport<'_>,
) -> Result<Vec<PolicyInvocation<'a>>, Status> {
    let mut invocations = Vec::new();
    for bound in snapshot.candidates(context) {
        let policy = &bound.policy.policy;
        let matched = match &policy.criteria {
            Err(why) => Err(why.clone()),
            Ok(criteria) => criteria.matches(context).map_err(|status| status.message().to_owned()),
        };
        let matched = match matched {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(why) => {
                report.misconfigured(bound, None, &why);
                continue;
            }
        };
        let mapping = match params::mapping(policy, context) {
            Ok(mapping) => mapping,
            Err(ParamError::Unreadable(why)) => return Err(why),
            Err(ParamError::Misconfigured(why)) => {
                report.misconfigured(bound, None, &why);
                continue;
            }
        };
        for binding in &bound.bindings {
            let params = match params::of_binding(binding, mapping.as_ref(), context).await {
                Ok(None) => continue,
                Ok(Some(PolicyParams::Unset)) => vec![None],
                Ok(Some(PolicyParams::Each(each))) => each.into_iter().map(Some).collect(),
                Err(ParamError::Unreadable(why)) => return Err(why),
                Err(ParamError::Misconfigured(why)) => {
                    report.misconfigured(bound, Some(binding), &why);
                    continue;
                }
            };
            invocations.extend(params.into_iter().map(|param| PolicyInvocation {
                bound,
                binding,
                matched: matched.clone().into_owned(),
                param: param.map(|param| without_type_meta(param, policy.params.as_ref())),
            }));
        }
    }
    Ok(invocations)
}

/// Removes `apiVersion` and `kind` from parameters of built-in kinds, as Kubernetes' typed clients do for
/// mutating policies. `kind` is the policy's `paramKind`.
fn without_type_meta(param: Arc<Value>, kind: Option<&GroupVersionKind>) -> Arc<Value> {
    let is_built_in = |kind: &GroupVersionKind| schema::of(&kind.group, &kind.version, &kind.kind).is_some();
    if !kind.is_some_and(is_built_in) {
        return param;
    }
    let mut param = Arc::unwrap_or_clone(param);
    let map = param.make_map();
    map.remove("apiVersion");
    map.remove("kind");
    Arc::new(param)
}

/// Runs the invocations in order. Requests a second pass of the chain if they change the object.
async fn dispatch(
    invocations: &[PolicyInvocation<'_>],
    context: &RequestContext<'_>,
    object: &mut Value,
    reinvocation: &mut Reinvocation,
    report: &mut MutationReport<'_>,
) -> Result<(), Status> {
    if reinvocation.is_second() && reinvocation.policies.is_output_changed(object) {
        reinvocation.policies.require_reinvocation();
    }
    namespace_exists(context)?;
    let mutator = PolicyMutator::new(context, report.metrics);
    let mut changed = false;
    for invocation in invocations {
        changed |= mutator.invoke(invocation, object, reinvocation, report).await?;
    }
    if changed {
        reinvocation.policies.require_reinvocation();
    }
    Ok(())
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

//! Runs one policy invocation: match conditions, then the mutations in order.

use api::Status;
use cel::OUT_OF_BUDGET;
use value::Value;

use super::{MutationReport, PolicyInvocation};
use crate::Reinvocation;
use crate::expression::{
    Activations, AuthorizerDecisions, DeclaredVariables, EvaluationPause, EvaluationStop, ExpressionInput,
    PolicyEvaluation, visible_namespace,
};
use crate::matching::{ConditionResult, RequestContext};
use crate::metrics::{AdmissionMetrics, MatchConditionLabels, PolicyErrorType, metrics_for};
use crate::patched::{check_size, to_stored};
use crate::policy::compiled::PolicyMutation;
use crate::policy::evaluate::{BUDGET, with_params};
use crate::policy::{PolicySource, patch};

/// Runs the invocations of one request. Authorizer decisions are shared by all of them.
pub(super) struct PolicyMutator<'a> {
    context: &'a RequestContext<'a>,
    namespace: Option<Value>,
    checks: AuthorizerDecisions,
    metrics: &'a dyn AdmissionMetrics,
}

/// The object and the old object in the version that the policy matched.
struct InvocationObjects {
    object: Value,
    old: Option<Value>,
}

/// A mutation that could not be applied.
enum MutationError {
    /// An evaluation error; the failure policy applies.
    Policy(String),
    /// The result is not an object of the right kind; rejects the request regardless of the failure policy.
    Decoding(String),
    /// The result is too large to be stored; rejects the request regardless of the failure policy.
    TooLarge(Status),
}

enum MutationStep {
    EvaluationPause(EvaluationPause),
    /// The changed object, or an error message.
    Done(Result<Value, String>),
}

impl<'a> PolicyMutator<'a> {
    pub(super) fn new(context: &'a RequestContext<'a>, metrics: &'a dyn AdmissionMetrics) -> Self {
        let namespace = visible_namespace(context);
        PolicyMutator { context, namespace, checks: AuthorizerDecisions::default(), metrics }
    }

    /// Runs one invocation. Returns true if it changed `object`, which is in the storage version.
    pub(super) async fn invoke(
        &self,
        invocation: &PolicyInvocation<'_>,
        object: &mut Value,
        reinvocation: &mut Reinvocation,
        report: &mut MutationReport<'_>,
    ) -> Result<bool, Status> {
        let policy = &invocation.bound.policy;
        let mut objects = self.convert(invocation, object).await?;
        self.context.yield_if_due().await?;
        match self.match_conditions(invocation, &objects).await? {
            ConditionResult::Include => report.evaluated(invocation.bound),
            ConditionResult::Exclude => return Ok(false),
            ConditionResult::Failed(why) => {
                report.evaluated(invocation.bound);
                report.evaluation_failed(invocation, &why);
                return Ok(false);
            }
        }
        let key = invocation.key();
        if reinvocation.is_second() && !reinvocation.policies.should_reinvoke(&key) {
            return Ok(false);
        }
        policy.policy.inventory.count_call();
        let before = objects.object.clone();
        for mutation in &policy.mutations {
            self.apply(mutation, invocation, object, &mut objects, report).await?;
        }
        let changed = objects.object != before;
        if changed {
            reinvocation.policies.require_reinvocation();
            reinvocation.request_second_pass();
        }
        if policy.reinvoke_if_needed {
            reinvocation.policies.add_reinvocable(key);
        }
        Ok(changed)
    }

    async fn convert(
        &self,
        invocation: &PolicyInvocation<'_>,
        object: &Value,
    ) -> Result<InvocationObjects, Status> {
        let RequestContext { attributes, cluster, .. } = self.context;
        let kind = &invocation.matched.kind;
        let object = cluster.convert(object, kind).await.map_err(Status::internal)?;
        let old = match attributes.old_object.stored() {
            Some(old) => Some(cluster.convert(old, kind).await.map_err(Status::internal)?),
            None => None,
        };
        Ok(InvocationObjects { object, old })
    }

    async fn match_conditions(
        &self,
        invocation: &PolicyInvocation<'_>,
        objects: &InvocationObjects,
    ) -> Result<ConditionResult, Status> {
        loop {
            match self.evaluate_conditions(invocation, objects) {
                Ok(matched) => return Ok(matched),
                Err(pause) => self.checks.resume(pause, self.context).await?,
            }
        }
    }

    fn evaluate_conditions(
        &self,
        invocation: &PolicyInvocation<'_>,
        objects: &InvocationObjects,
    ) -> Result<ConditionResult, EvaluationPause> {
        let policy = &invocation.bound.policy.policy;
        let Some(conditions) = &policy.conditions else { return Ok(ConditionResult::Include) };
        let input = self.input(invocation, objects);
        let activations = Activations::new(&input);
        let base = with_params(&activations, conditions.declared_variables(), invocation.param.as_deref());
        let operation = self.context.attributes.operation;
        let labels =
            MatchConditionLabels { name: &policy.name, kind: "policy", phase: "validate", operation };
        conditions.evaluate_with(&policy.variables, &base, activations.pacer(), &labels, self.metrics)
    }

    fn input<'x>(
        &'x self,
        invocation: &'x PolicyInvocation<'_>,
        objects: &'x InvocationObjects,
    ) -> ExpressionInput<'x> {
        ExpressionInput::new(
            self.context,
            &invocation.matched,
            Some(&objects.object),
            objects.old.as_ref(),
            self.namespace.as_ref(),
            &self.checks,
        )
    }

    /// Applies one mutation to `object` and, converted again, to `objects`. The failure policy decides about
    /// evaluation errors; fails if the result is not an object of the right kind.
    async fn apply(
        &self,
        mutation: &PolicyMutation,
        invocation: &PolicyInvocation<'_>,
        object: &mut Value,
        objects: &mut InvocationObjects,
        report: &mut MutationReport<'_>,
    ) -> Result<(), Status> {
        let policy = &invocation.bound.policy.policy;
        let started = self.metrics.now();
        let outcome = loop {
            match self.evaluate_mutation(mutation, invocation, objects) {
                MutationStep::EvaluationPause(pause) => self.checks.resume(pause, self.context).await?,
                MutationStep::Done(outcome) => break outcome,
            }
        };
        let outcome = match outcome {
            Err(why) => Err(MutationError::Policy(why)),
            Ok(patched) if patched == objects.object => Ok(None),
            Ok(patched) => match check_size(&patched) {
                Ok(()) => self.to_stored(patched, mutation, invocation).await.map(Some),
                Err(status) => Err(MutationError::TooLarge(status)),
            },
        };
        let outcome =
            outcome.and_then(|stored| self.check_conversion(&invocation.matched.kind).map(|()| stored));
        let took = self.metrics.now().saturating_sub(started);
        let count = |error: PolicyErrorType| {
            for metrics in metrics_for(self.metrics, invocation.bound.source == PolicySource::Manifest) {
                metrics.mutation_checked(&policy.name, &invocation.binding.name, error, took);
            }
        };
        match outcome {
            Ok(None) => count(PolicyErrorType::None),
            Ok(Some(stored)) => {
                count(PolicyErrorType::None);
                *object = stored;
                let kind = &invocation.matched.kind;
                objects.object =
                    self.context.cluster.convert(object, kind).await.map_err(Status::internal)?;
            }
            Err(MutationError::Policy(why)) => {
                count(PolicyErrorType::from_message(&why));
                report.evaluation_failed(invocation, &why);
            }
            Err(MutationError::Decoding(why)) => {
                count(PolicyErrorType::Invalid);
                policy.inventory.record_error(&why, self.metrics.now());
                policy.inventory.count_denial();
                return Err(Status::internal(why));
            }
            Err(MutationError::TooLarge(status)) => {
                count(PolicyErrorType::Invalid);
                policy.inventory.record_error(status.message(), self.metrics.now());
                policy.inventory.count_denial();
                return Err(status);
            }
        }
        Ok(())
    }

    /// The patched object in the storage version.
    async fn to_stored(
        &self,
        mut patched: Value,
        mutation: &PolicyMutation,
        invocation: &PolicyInvocation<'_>,
    ) -> Result<Value, MutationError> {
        let kind = &invocation.matched.kind;
        patch::check_kind_unchanged(&mut patched, kind).map_err(MutationError::Decoding)?;
        let RequestContext { attributes, cluster, .. } = self.context;
        to_stored(patched, kind, true, attributes, *cluster).await.map_err(|why| match mutation {
            PolicyMutation::Json(_) => MutationError::Decoding(why),
            PolicyMutation::Apply(_) => MutationError::Policy(patch::conversion_error(kind, why)),
        })
    }

    /// kube-apiserver converts the result of each mutation directly to the version of the request. It has no such
    /// conversion between versions of built-in kinds, so the mutation fails, even if it changed nothing. Rules for
    /// versions that are not served match only here, and work.
    fn check_conversion(&self, matched: &api::GroupVersionKind) -> Result<(), MutationError> {
        let RequestContext { attributes, cluster, .. } = self.context;
        let is_converted = attributes.kind != *matched
            && cluster.serves_built_in(matched)
            && !cluster.is_custom(&attributes.resource, &attributes.version);
        if is_converted {
            return Err(MutationError::Policy(patch::unknown_conversion(matched, &attributes.kind)));
        }
        Ok(())
    }

    fn evaluate_mutation(
        &self,
        mutation: &PolicyMutation,
        invocation: &PolicyInvocation<'_>,
        objects: &InvocationObjects,
    ) -> MutationStep {
        let policy = &invocation.bound.policy.policy;
        let declared = DeclaredVariables {
            params: policy.params.is_some(),
            composed: true,
            conditions: false,
            authorizer: true,
        };
        let input = self.input(invocation, objects);
        let activations = Activations::new(&input);
        let base = with_params(&activations, declared, invocation.param.as_deref());
        let evaluation = PolicyEvaluation::new(&policy.variables, &base, activations.pacer());
        let (PolicyMutation::Apply(expression) | PolicyMutation::Json(expression)) = mutation;
        if let Some(error) = expression.compile_error() {
            return MutationStep::Done(Err(error.to_owned()));
        }
        let mut budget = BUDGET;
        let value = match expression.evaluate(&evaluation, &mut budget) {
            Err(EvaluationStop::Pause(pause)) => return MutationStep::EvaluationPause(pause),
            Err(EvaluationStop::Budget) => return MutationStep::Done(Err(OUT_OF_BUDGET.to_owned())),
            Ok(Err(why)) => return MutationStep::Done(Err(why)),
            Ok(Ok(value)) => value,
        };
        MutationStep::Done(match mutation {
            PolicyMutation::Json(_) => patch::apply_json_patch(&value, &objects.object),
            PolicyMutation::Apply(_) => {
                let kind = &invocation.matched.kind;
                // Only kinds of resources can be applied, also in versions that are no longer served. `Scale` is
                // not one.
                let is_equivalent = || self.context.equivalents().iter().any(|other| other.kind == *kind);
                let is_resource =
                    self.context.cluster.rest_mapping(kind).is_some() || is_binding(kind) || is_equivalent();
                let stored_kind = Some(&self.context.attributes.stored_kind);
                let schema = if is_resource { self.context.cluster.schema(kind, stored_kind) } else { None };
                patch::apply_configuration(
                    &value,
                    &objects.object,
                    kind,
                    schema.as_ref().map(schema::Link::get),
                )
            }
        })
    }
}

fn is_binding(kind: &api::GroupVersionKind) -> bool {
    kind.group.is_empty() && kind.kind == "Binding"
}

//! The stage of mutating policies: each in order changes the object that the next one sees.

use std::sync::Arc;

use api::{Cause, Status};
use value::{Str, Value};

use super::definition::Mutation;
use super::judge::{BUDGET, with_params};
use super::params::{self, Params};
use super::snapshot::Current;
use super::validating::{forbidden, namespace_exists};
use super::{Binding, Hook, MutatingPolicy, Snapshot, Source, patch};
use crate::expression::{Checks, Facts, Frame, OUT_OF_BUDGET, Pause, Scope, Shape, Stop, namespace_shown};
use crate::matching::{Asked, Match, Matched};
use crate::meter::{CheckError, Conditions as Owner, Meter, counters};
use crate::patched::adopt;
use crate::{Attributes, Cluster, InForce, Later, Notes, Operation, ParamError, Pass, Reinvocation, Stage};

/// `MutatingAdmissionPolicy`.
pub struct Mutating {
    current: Current<MutatingPolicy>,
    meter: Arc<dyn Meter>,
}

impl Mutating {
    /// The stage without any policies.
    pub fn new(meter: Arc<dyn Meter>) -> Self {
        Mutating { current: Current::default(), meter }
    }

    /// Puts other policies in force.
    pub fn replace(&self, snapshot: Snapshot<MutatingPolicy>) {
        self.current.replace(snapshot);
    }
}

impl Stage for Mutating {
    fn begin(&self, in_force: &InForce) {
        in_force.mutating_policies(|| self.current.take());
    }

    fn mutate<'a>(
        &'a self,
        pass: &'a mut Pass<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> Later<'a, Result<(), Status>> {
        let snapshot = pass.attributes.in_force.mutating_policies(|| self.current.take());
        // What is deleted has nothing that could be changed.
        let object = object.filter(|_| pass.attributes.operation != Operation::Delete);
        let (Some(object), false) = (object, snapshot.is_empty()) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        Box::pin(async move {
            let Pass { attributes, cluster, passes, notes } = pass;
            run(&snapshot, attributes, object, *cluster, passes, notes, &*self.meter).await
        })
    }
}

/// One run of a policy: with one binding and one object as parameters.
struct Invocation<'a> {
    hook: &'a Hook<MutatingPolicy>,
    binding: &'a Binding,
    matched: Match,
    param: Option<Arc<Value>>,
}

impl Invocation<'_> {
    /// What tells it from other runs.
    fn key(&self) -> Str {
        let param = self.param.as_deref().map(|param| (api::meta::namespace(param), api::meta::name(param)));
        let (namespace, name) = param.unwrap_or_default();
        format!("{}/{}/{namespace}/{name}", self.hook.policy.policy.name, self.binding.name).into()
    }
}

/// What refuses the request, if its policy fails closed.
struct Failure {
    message: String,
    /// Whether the expression, not the configuration, is to blame.
    invalid: bool,
}

/// What the evaluation of mutating policies reports besides the changed object.
struct Said<'a> {
    failures: Vec<Failure>,
    notes: &'a mut Notes,
}

impl Said<'_> {
    /// A policy was evaluated: its match conditions do not exclude the request.
    fn evaluated(&mut self, hook: &Hook<MutatingPolicy>) {
        if hook.source == Source::Manifest {
            self.notes.manifests.policy(&hook.policy.policy.name);
        }
    }
}

async fn run(
    snapshot: &Snapshot<MutatingPolicy>,
    attributes: &Attributes<'_>,
    object: &mut Value,
    cluster: &dyn Cluster,
    passes: &mut Reinvocation,
    notes: &mut Notes,
    meter: &dyn Meter,
) -> Result<(), Status> {
    let mut said = Said { failures: Vec::new(), notes };
    let invocations = {
        let asked = Asked::new(attributes, Some(object), cluster);
        invocations(snapshot, &asked, &mut said, meter).await?
    };
    if !invocations.is_empty() {
        let outcome = dispatch(&invocations, attributes, object, cluster, passes, meter, &mut said).await;
        passes.policies.left(object);
        outcome?;
    }
    refuse(&Asked::new(attributes, Some(object), cluster), &said.failures)
}

/// Every policy that is about the request, with each of its bindings and parameters. All of it is decided before the first change.
async fn invocations<'a>(
    snapshot: &'a Snapshot<MutatingPolicy>,
    asked: &Asked<'_>,
    said: &mut Said<'_>,
    meter: &dyn Meter,
) -> Result<Vec<Invocation<'a>>, Status> {
    let mut invocations = Vec::new();
    for hook in snapshot.candidates(asked) {
        let policy = &hook.policy.policy;
        let mut misconfigured = |binding: Option<&Binding>, why: &str| {
            said.evaluated(hook);
            policy.account.called();
            policy.account.failed(why, meter.now());
            if policy.fails_closed {
                policy.account.denied();
                said.failures.push(misconfigured(hook, binding, why));
            }
        };
        let matched = match &policy.criteria {
            Err(why) => Err(why.clone()),
            Ok(criteria) => criteria.matches(asked).map_err(|status| status.message().to_owned()),
        };
        let matched = match matched {
            Ok(None) => continue,
            Ok(Some(matched)) => matched,
            Err(why) => {
                misconfigured(None, &why);
                continue;
            }
        };
        let served = match params::served(policy, asked) {
            Ok(served) => served,
            Err(ParamError::Unreadable(why)) => return Err(why),
            Err(ParamError::Misconfigured(why)) => {
                misconfigured(None, &why);
                continue;
            }
        };
        for binding in &hook.bindings {
            let concerns = match &binding.criteria {
                None => Ok(true),
                Some(Err(why)) => Err(why.clone()),
                Some(Ok(criteria)) => criteria
                    .matches(asked)
                    .map(|matched| matched.is_some())
                    .map_err(|status| status.message().to_owned()),
            };
            match concerns {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    misconfigured(Some(binding), &why);
                    continue;
                }
            }
            let params = params::collect(served.as_ref(), binding.params.as_ref(), asked).await;
            let params = match params {
                Ok(Params::Unset) => vec![None],
                Ok(Params::Each(each)) => each.into_iter().map(Some).collect(),
                Err(ParamError::Unreadable(why)) => return Err(why),
                Err(ParamError::Misconfigured(why)) => {
                    misconfigured(Some(binding), &why);
                    continue;
                }
            };
            let runs = params.into_iter().map(|param| Invocation {
                hook,
                binding,
                matched: matched.clone().into_owned(),
                param: param.map(untyped),
            });
            invocations.extend(runs);
        }
    }
    Ok(invocations)
}

/// Mutating policies see parameters of built-in kinds without `apiVersion` and `kind`, as Kubernetes' typed clients have them.
fn untyped(param: Arc<Value>) -> Arc<Value> {
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
    invocations: &[Invocation<'_>],
    attributes: &Attributes<'_>,
    object: &mut Value,
    cluster: &dyn Cluster,
    passes: &mut Reinvocation,
    meter: &dyn Meter,
    said: &mut Said<'_>,
) -> Result<(), Status> {
    if passes.is_second() && passes.policies.changed_since(object) {
        passes.policies.require_again();
    }
    let checks = Checks::default();
    let asked = Asked::new(attributes, None, cluster);
    namespace_exists(&asked)?;
    let namespace = namespace_shown(&asked);
    let mut changed = false;
    for invocation in invocations {
        let policy = &invocation.hook.policy.policy;
        let failures = &mut said.failures;
        let mut fail = |message: &str| {
            policy.account.failed(message, meter.now());
            if policy.fails_closed {
                policy.account.denied();
                failures.push(invalid(invocation, message));
            }
        };
        let kind = &invocation.matched.kind;
        let mut shown = match cluster.convert(object, kind).await {
            Ok(shown) => shown,
            Err(why) => return Err(Status::internal(why)),
        };
        let old = match attributes.old_object.stored() {
            Some(old) => Some(cluster.convert(old, kind).await.map_err(Status::internal)?),
            None => None,
        };
        asked.rest().await?;
        let ask = |shown: &Value| {
            let facts = Facts::new(
                &asked,
                &invocation.matched,
                Some(shown),
                old.as_ref(),
                namespace.as_ref(),
                &checks,
            );
            conditions(invocation, &Scope::new(&facts), attributes.operation, meter)
        };
        let matched = loop {
            match ask(&shown) {
                Ok(matched) => break matched,
                Err(pause) => checks.resume(pause, &asked).await?,
            }
        };
        if matched != Matched::No && invocation.hook.source == Source::Manifest {
            said.notes.manifests.policy(&policy.name);
        }
        match matched {
            Matched::Yes => {}
            Matched::No => continue,
            Matched::Failed(why) => {
                fail(&why);
                continue;
            }
        }
        let key = invocation.key();
        if passes.is_second() && !passes.policies.is_required(&key) {
            continue;
        }
        policy.account.called();
        let before = shown.clone();
        for mutation in &invocation.hook.policy.mutations {
            let started = meter.now();
            let outcome = loop {
                let step = {
                    let facts = Facts::new(
                        &asked,
                        &invocation.matched,
                        Some(&shown),
                        old.as_ref(),
                        namespace.as_ref(),
                        &checks,
                    );
                    mutate(mutation, invocation, &shown, &Scope::new(&facts), &asked)
                };
                match step {
                    Step::Pause(pause) => checks.resume(pause, &asked).await?,
                    Step::Done(outcome) => break outcome,
                }
            };
            let outcome = match outcome {
                Err(why) => Err(Refused::Policy(why)),
                Ok(patched) if patched == shown => Ok(None),
                Ok(mut patched) => match patch::same_kind(&mut patched, kind) {
                    Err(why) => Err(Refused::Decoding(why)),
                    Ok(()) => match adopt(patched, kind, true, attributes, cluster).await {
                        Ok(adopted) => Ok(Some(adopted)),
                        Err(why) if matches!(mutation, Mutation::Json(_)) => Err(Refused::Decoding(why)),
                        Err(why) => Err(Refused::Policy(patch::unconverted(kind, why))),
                    },
                },
            };
            let took = meter.now().saturating_sub(started);
            let count = |error: CheckError| {
                for meter in counters(meter, invocation.hook.source == Source::Manifest) {
                    meter.mutation_checked(&policy.name, &invocation.binding.name, error, took);
                }
            };
            match outcome {
                Ok(None) => count(CheckError::None),
                Ok(Some(adopted)) => {
                    count(CheckError::None);
                    *object = adopted;
                    shown = cluster.convert(object, kind).await.map_err(Status::internal)?;
                }
                Err(Refused::Policy(why)) => {
                    count(CheckError::of(&why));
                    fail(&why);
                }
                Err(Refused::Decoding(why)) => {
                    count(CheckError::Invalid);
                    policy.account.failed(&why, meter.now());
                    policy.account.denied();
                    return Err(Status::internal(why));
                }
            }
        }
        if shown != before {
            changed = true;
            passes.policies.require_again();
            passes.want();
        }
        if invocation.hook.policy.reinvoked {
            passes.policies.ran(key);
        }
    }
    if changed {
        passes.policies.require_again();
    }
    Ok(())
}

/// Why a mutation did not happen.
enum Refused {
    /// The policy's failure, for its failure policy to judge.
    Policy(String),
    /// It made something that cannot be an object of its kind.
    Decoding(String),
}

fn conditions(
    invocation: &Invocation<'_>,
    scope: &Scope<'_>,
    operation: Operation,
    meter: &dyn Meter,
) -> Result<Matched, Pause> {
    let policy = &invocation.hook.policy.policy;
    let Some(conditions) = &policy.conditions else { return Ok(Matched::Yes) };
    let base = with_params(scope, conditions.shape(), invocation.param.as_deref());
    let owner = Owner { name: &policy.name, kind: "policy", phase: "validate", operation };
    conditions.evaluate_with(&policy.variables, &base, scope.pace(), &owner, meter)
}

/// How far a mutation has come.
enum Step {
    /// Something must be done first.
    Pause(Pause),
    /// The changed object, or why there is none.
    Done(Result<Value, String>),
}

fn mutate(
    mutation: &Mutation,
    invocation: &Invocation<'_>,
    shown: &Value,
    scope: &Scope<'_>,
    asked: &Asked<'_>,
) -> Step {
    let policy = &invocation.hook.policy.policy;
    let shape = Shape { params: policy.params.is_some(), composed: true, conditions: false, may_ask: true };
    let base = with_params(scope, shape, invocation.param.as_deref());
    let frame = Frame::new(&policy.variables, &base, scope.pace());
    let (Mutation::Apply(expression) | Mutation::Json(expression)) = mutation;
    if let Some(error) = expression.compile_error() {
        return Step::Done(Err(error.detail().to_owned()));
    }
    let mut budget = BUDGET;
    let value = match expression.evaluate(&frame, &mut budget) {
        Err(Stop::Check(check)) => return Step::Pause(Pause::Check(check)),
        Err(Stop::Late) => return Step::Pause(Pause::Late),
        Err(Stop::Budget) => return Step::Done(Err(OUT_OF_BUDGET.to_owned())),
        Ok(Err(why)) => return Step::Done(Err(why)),
        Ok(Ok(value)) => value,
    };
    Step::Done(match mutation {
        Mutation::Json(_) => patch::patch(&value, shown),
        Mutation::Apply(_) => {
            let kind = &invocation.matched.kind;
            // Only the kind of a resource can be applied, also in a version that is no longer served: a `Scale` is none.
            let is_equivalent = || asked.equivalents().iter().any(|other| other.kind == *kind);
            let is_resource = asked.cluster.served(kind).is_some() || is_binding(kind) || is_equivalent();
            let stored_kind = Some(&asked.attributes.stored_kind);
            let schema = if is_resource { asked.cluster.schema(kind, stored_kind) } else { None };
            patch::configure(&value, shown, kind, schema.as_ref().map(schema::Link::get))
        }
    })
}

fn is_binding(kind: &api::GroupVersionKind) -> bool {
    kind.group.is_empty() && kind.kind == "Binding"
}

fn misconfigured(hook: &Hook<MutatingPolicy>, binding: Option<&Binding>, why: &str) -> Failure {
    let policy = &hook.policy.policy.name;
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
    Failure { message, invalid: false }
}

fn invalid(invocation: &Invocation<'_>, why: &str) -> Failure {
    let (policy, binding) = (&invocation.hook.policy.policy.name, &invocation.binding.name);
    let message = format!("policy '{policy}' with binding '{binding}' denied request: {why}");
    Failure { message, invalid: true }
}

/// 403 with the first failure's message, and all of them as causes.
fn refuse(asked: &Asked<'_>, failures: &[Failure]) -> Result<(), Status> {
    let Some(first) = failures.first() else { return Ok(()) };
    let causes = failures.iter().map(|failure| Cause {
        reason: Str::default(),
        message: failure.message.clone(),
        field: String::new(),
    });
    let status = forbidden(asked, "", causes.collect()).with_message(first.message.clone());
    Err(if first.invalid { status.with_reason("Invalid") } else { status })
}

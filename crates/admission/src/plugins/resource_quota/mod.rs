//! ResourceQuota: computes the usage of a request, the quotas it is charged to, and whether they suffice.
//!
//! The server does the charging, because that writes: it handles the requests of a namespace one at a time,
//! before the object is stored.

mod claims;
mod limited;
mod recount;
mod scopes;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Status, meta};
use value::{Map, Str, Value};

pub use self::limited::LimitedResource;
pub use self::recount::{CountedUsage, UsageCount, recount};
use self::scopes::QuotaScopes;
pub(super) use self::scopes::is_best_effort;
use self::usage::{QuotaEvaluator, UsageContext, UsedNames};
use crate::{AdmissionAttributes, ClusterView, Operation};
use api::pod_resources::{Amounts, add, amounts};

/// Resources that are not charged: those that are not stored, and events.
const IGNORED: &[(&str, &str)] = &[
    ("", "bindings"),
    ("", "componentstatuses"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("", "events"),
    ("events.k8s.io", "events"),
];
/// A quota for one of these requires every container to set it, unless the pod has pod-level resources.
const MUST_BE_SET: &[&str] =
    &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// A quota and its new usage if the request is admitted.
#[derive(Clone, Debug)]
pub struct QuotaCharge {
    /// The quota before the request.
    pub quota: Arc<Value>,
    /// The new value of `status.used`.
    pub used: Value,
}

/// Whether a request can change the usage of any quota.
pub fn affects_quota(attributes: &AdmissionAttributes<'_>, object: Option<&Value>) -> bool {
    let resource = (attributes.resource.group.as_str(), attributes.resource.resource.as_str());
    let namespace_itself = attributes.is_kind("", "Namespace") && attributes.operation == Operation::Create;
    if attributes.namespace.is_empty() || namespace_itself || IGNORED.contains(&resource) {
        return false;
    }
    let Some(object) = object else { return false };
    let old = attributes.old_object.stored();
    let evaluator = QuotaEvaluator::of(&attributes.resource);
    match (evaluator, attributes.subresource.as_str(), attributes.operation) {
        (_, "", Operation::Create)
        | (
            QuotaEvaluator::Services | QuotaEvaluator::VolumeClaims | QuotaEvaluator::ResourceClaims,
            "",
            Operation::Update,
        )
        | (QuotaEvaluator::Pods, "resize", Operation::Update) => true,
        (QuotaEvaluator::Pods, "", Operation::Update) => {
            old.is_some_and(|old| scopes::is_terminating(old) != scopes::is_terminating(object))
        }
        (QuotaEvaluator::VolumeClaims, "status", Operation::Update) => old.is_some_and(|old| {
            old.at(&["status", "allocatedResources"]) != object.at(&["status", "allocatedResources"])
                || scopes::attributes_classes(old) != scopes::attributes_classes(object)
        }),
        _ => false,
    }
}

/// A quota that limits the request's object, with its hard limits and its usage before the request.
struct MatchingQuota<'a> {
    quota: &'a Arc<Value>,
    scopes: QuotaScopes<'a>,
    hard: Amounts,
    used: Amounts,
}

/// The charges of a request that [`affects_quota`]; empty if its usage does not change. Usage of `limited`
/// resources requires a quota. The error rejects the request.
pub fn check(
    attributes: &AdmissionAttributes<'_>,
    object: &Value,
    quotas: &[Arc<Value>],
    limited: &[LimitedResource],
    cluster: &dyn ClusterView,
) -> Result<Vec<QuotaCharge>, Status> {
    let evaluator = QuotaEvaluator::of(&attributes.resource);
    let refuse = |why: String| attributes.refuse(Some(object), why);
    let mut needed = limited::RequiredQuotas::of(limited, attributes, &evaluator, object, cluster);
    let mut matching = Vec::new();
    let uses = UsedNames::of(&evaluator, cluster);
    for quota in quotas {
        needed.remove_scopes(quota, &evaluator, object);
        let hard = amounts(quota.at(&["status", "hard"]));
        let names: BTreeSet<&str> = uses.among(&hard).into_iter().map(Str::as_str).collect();
        let scopes = QuotaScopes::of(quota);
        if names.is_empty() || !scopes.all_match(&evaluator, object) {
            continue;
        }
        let used = check_evaluable(quota, &evaluator, object, &names).map_err(refuse)?;
        needed.remove_names(&names);
        matching.push(MatchingQuota { quota, scopes, hard, used });
    }
    if matching.is_empty() && needed.is_met() {
        return Ok(Vec::new());
    }
    let context = UsageContext::new(cluster, &attributes.namespace, attributes.now);
    let usage = evaluator.usage(object, &context);
    let negative: Vec<&str> =
        usage.iter().filter(|(_, amount)| amount.sign() < 0).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(refuse(format!("quota usage is negative for resource(s): {}", negative.join(","))));
    }
    let old = attributes.old_object.stored().filter(|_| attributes.operation == Operation::Update);
    let grown = old.map(|old| increase(&usage, &evaluator.usage(old, &context)));
    // An update is charged the difference; an object that newly matches a quota is charged in full.
    let delta_of = |matching: &MatchingQuota<'_>| match (&grown, old) {
        (Some(grown), Some(old)) if matching.scopes.all_match(&evaluator, old) => grown,
        _ => &usage,
    };
    let uses = |delta: &Amounts| delta.values().any(|amount| !amount.is_zero());
    let changes = if matching.is_empty() {
        uses(grown.as_ref().unwrap_or(&usage))
    } else {
        matching.iter().any(|matching| uses(delta_of(matching)))
    };
    if !changes {
        return Ok(Vec::new());
    }
    needed.check(refuse)?;
    // Usage that a status update reports is recorded even above the limit.
    let enforce = attributes.subresource != "status";
    let charges = matching.into_iter().map(|matching| matching.charge(delta_of(&matching), enforce));
    charges.filter_map(Result::transpose).collect::<Result<_, String>>().map_err(refuse)
}

/// The quota's usage. Fails if the object or the quota's status lacks one of the resources `names`.
fn check_evaluable(
    quota: &Value,
    evaluator: &QuotaEvaluator,
    object: &Value,
    names: &BTreeSet<&str>,
) -> Result<Amounts, String> {
    let name = meta::name(quota);
    if *evaluator == QuotaEvaluator::Pods {
        check_containers(object, names).map_err(|why| format!("failed quota: {name}: {why}"))?;
    }
    let used = amounts(quota.at(&["status", "used"]));
    if names.iter().any(|resource| !used.contains_key(*resource)) {
        let resources: Vec<&str> = names.iter().copied().collect();
        return Err(format!("status unknown for quota: {name}, resources: {}", resources.join(",")));
    }
    Ok(used)
}

impl MatchingQuota<'_> {
    /// Adds `delta` to the usage; `None` if the quota limits nothing of it. With `enforce`, fails if a limit
    /// is exceeded.
    fn charge(&self, delta: &Amounts, enforce: bool) -> Result<Option<QuotaCharge>, String> {
        let MatchingQuota { quota, hard, used, .. } = self;
        let requested: Amounts = delta
            .iter()
            .filter(|(name, amount)| !amount.is_zero() && hard.contains_key(*name))
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect();
        if requested.is_empty() {
            return Ok(None);
        }
        let mut after = used.clone();
        add(&mut after, &requested);
        let exceeds = |name: &Str| after.get(name).zip(hard.get(name)).is_some_and(|(a, h)| a > h);
        let exceeded: Vec<&Str> = requested.keys().filter(|name| enforce && exceeds(name)).collect();
        if !exceeded.is_empty() {
            let show = |list: &Amounts| {
                let parts = exceeded.iter().filter_map(|name| Some(format!("{name}={}", list.get(*name)?)));
                parts.collect::<Vec<_>>().join(",")
            };
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                meta::name(quota),
                show(&requested),
                show(used),
                show(hard)
            ));
        }
        Ok(Some(QuotaCharge { quota: Arc::clone(quota), used: to_value(&after) }))
    }
}

/// The increase of each amount; decreases count as zero.
fn increase(now: &Amounts, before: &Amounts) -> Amounts {
    now.iter()
        .filter_map(|(name, amount)| {
            let more = match before.get(name) {
                Some(before) => amount.sub(before),
                None => amount.clone(),
            };
            (more.sign() > 0).then(|| (name.clone(), more))
        })
        .collect()
}

fn check_containers(pod: &Value, names: &BTreeSet<&str>) -> Result<(), String> {
    let required: Vec<&str> = names.iter().copied().filter(|name| MUST_BE_SET.contains(name)).collect();
    let of_pod = |side| amounts(pod.at(&["spec", "resources", side]));
    let supported = |list: Amounts| list.keys().any(|name| api::pod_resources::is_pod_level(name));
    if required.is_empty() || supported(of_pod("requests")) || supported(of_pod("limits")) {
        return Ok(());
    }
    let containers = pod.list_at(&["spec", "containers"]).iter();
    let containers: Vec<(&str, Amounts)> = containers
        .chain(pod.list_at(&["spec", "initContainers"]))
        .map(|container| {
            let side = |side| amounts(container.at(&["resources", side]));
            let name = container.str_at(&["name"]).unwrap_or_default();
            (name, usage::compute(&side("requests"), &side("limits")))
        })
        .collect();
    let mut missing = Vec::new();
    for resource in required {
        let without: BTreeSet<&str> = containers
            .iter()
            .filter(|(_, usage)| !usage.contains_key(resource))
            .map(|(name, _)| *name)
            .collect();
        if !without.is_empty() {
            let without: Vec<&str> = without.into_iter().collect();
            missing.push(format!("{resource} for: {}", without.join(",")));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("must specify {}", missing.join("; "))) }
}

fn to_value(list: &Amounts) -> Value {
    let map: Map =
        list.iter().map(|(name, amount)| (name.clone(), Value::from(amount.canonical()))).collect();
    Value::Map(map)
}

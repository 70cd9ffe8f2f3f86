//! ResourceQuota: what a namespace may use in all.
//!
//! This is the arithmetic: what a request uses, which quotas it is charged to, and whether it fits. Charging is the server's part,
//! because it writes: one request of a namespace after the other, before the object itself is stored.

mod limited;
mod scopes;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{Status, meta};
use value::{Map, Str, Value};

pub use self::limited::Limited;
pub(super) use self::scopes::is_best_effort;
use self::usage::Evaluator;
use crate::{Attributes, Cluster, Operation, Served};
use api::pod_resources::{Amounts, add, amounts};

/// What nobody is charged for: what is not stored, and events.
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
/// A quota for one of these makes every container say how much it wants.
const MUST_BE_SET: &[&str] =
    &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// A quota and what would be used of it if the request went through.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The quota as it is.
    pub quota: Arc<Value>,
    /// The new `status.used`.
    pub used: Value,
}

/// Whether a request can change what is used of any quota.
pub fn concerns(attributes: &Attributes<'_>, object: Option<&Value>) -> bool {
    let resource = (attributes.resource.group.as_str(), attributes.resource.resource.as_str());
    let namespace_itself = attributes.is_kind("", "Namespace") && attributes.operation == Operation::Create;
    if attributes.namespace.is_empty() || namespace_itself || IGNORED.contains(&resource) {
        return false;
    }
    let Some(object) = object else { return false };
    let old = attributes.old_object.stored();
    let evaluator = Evaluator::of(&attributes.resource);
    match (evaluator, attributes.subresource.as_str(), attributes.operation) {
        (_, "", Operation::Create)
        | (
            Evaluator::Services | Evaluator::VolumeClaims | Evaluator::ResourceClaims,
            "",
            Operation::Update,
        )
        | (Evaluator::Pods, "resize", Operation::Update) => true,
        (Evaluator::Pods, "", Operation::Update) => {
            old.is_some_and(|old| scopes::is_terminating(old) != scopes::is_terminating(object))
        }
        (Evaluator::VolumeClaims, "status", Operation::Update) => old.is_some_and(|old| {
            old.at(&["status", "allocatedResources"]) != object.at(&["status", "allocatedResources"])
                || scopes::attributes_classes(old) != scopes::attributes_classes(object)
        }),
        _ => false,
    }
}

/// What a request that [`concerns`] quotas is to be charged to `quotas`; nothing where its usage does not change. What is `limited`
/// can be used only where a quota says how much. The error is the refusal.
pub fn check(
    attributes: &Attributes<'_>,
    object: &Value,
    quotas: &[Arc<Value>],
    limited: &[Limited],
    cluster: &dyn Cluster,
) -> Result<Vec<Charge>, Status> {
    let evaluator = Evaluator::of(&attributes.resource);
    let refuse = |why: String| attributes.refuse(Some(object), why);
    let mut needed = limited::Needed::of(limited, attributes, &evaluator, object, cluster);
    let mut matching = Vec::new();
    for quota in quotas {
        needed.scopes_of(quota, &evaluator, object);
        let hard = amounts(quota.at(&["status", "hard"]));
        let names: BTreeSet<&str> =
            hard.keys().map(Str::as_str).filter(|name| evaluator.uses(name, cluster)).collect();
        if names.is_empty() || !scopes::all_match(quota, &evaluator, object) {
            continue;
        }
        let name = meta::name(quota);
        if evaluator == Evaluator::Pods
            && let Err(why) = check_containers(object, &names)
        {
            return Err(refuse(format!("failed quota: {name}: {why}")));
        }
        let used = amounts(quota.at(&["status", "used"]));
        if names.iter().any(|resource| !used.contains_key(*resource)) {
            let resources: Vec<&str> = names.into_iter().collect();
            let why = format!("status unknown for quota: {name}, resources: {}", resources.join(","));
            return Err(refuse(why));
        }
        needed.cover(&names);
        matching.push((quota, hard, used));
    }
    if matching.is_empty() && needed.is_met() {
        return Ok(Vec::new());
    }
    let now = attributes.now;
    let usage = evaluator.usage(object, cluster, now);
    let negative: Vec<&str> =
        usage.iter().filter(|(_, amount)| amount.sign() < 0).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(refuse(format!("quota usage is negative for resource(s): {}", negative.join(","))));
    }
    let old = attributes.old_object.stored().filter(|_| attributes.operation == Operation::Update);
    let grown = old.map(|old| growth(&usage, &evaluator.usage(old, cluster, now)));
    // Whoever was charged before pays the difference; one that newly comes under a quota pays all.
    let delta_of = |quota: &Value| match (&grown, old) {
        (Some(grown), Some(old)) if scopes::all_match(quota, &evaluator, old) => grown,
        _ => &usage,
    };
    let uses = |delta: &Amounts| delta.values().any(|amount| !amount.is_zero());
    let changes = if matching.is_empty() {
        uses(grown.as_ref().unwrap_or(&usage))
    } else {
        matching.iter().any(|(quota, ..)| uses(delta_of(quota)))
    };
    if !changes {
        return Ok(Vec::new());
    }
    needed.check(refuse)?;
    let mut charges = Vec::new();
    for (quota, hard, used) in matching {
        let delta = delta_of(quota);
        let requested: Amounts = delta
            .iter()
            .filter(|(name, amount)| !amount.is_zero() && hard.contains_key(*name))
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect();
        if requested.is_empty() {
            continue;
        }
        let mut after = used.clone();
        add(&mut after, &requested);
        if attributes.subresource != "status" {
            let exceeds = |name: &Str| after.get(name).zip(hard.get(name)).is_some_and(|(a, h)| a > h);
            let exceeded: Vec<&Str> = requested.keys().filter(|name| exceeds(name)).collect();
            if !exceeded.is_empty() {
                let show = |list: &Amounts| {
                    let parts =
                        exceeded.iter().filter_map(|name| Some(format!("{name}={}", list.get(*name)?)));
                    parts.collect::<Vec<_>>().join(",")
                };
                let (name, requested) = (meta::name(quota), show(&requested));
                let why = format!(
                    "exceeded quota: {name}, requested: {requested}, used: {}, limited: {}",
                    show(&used),
                    show(&hard)
                );
                return Err(refuse(why));
            }
        }
        charges.push(Charge { quota: Arc::clone(quota), used: to_value(&after) });
    }
    Ok(charges)
}

/// What is used more than before; never less than nothing.
fn growth(now: &Amounts, before: &Amounts) -> Amounts {
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

/// The status that a quota should have, if it has another: its limits, and what the namespace uses of them, counted anew.
/// `resources` are those that live in namespaces and are served.
pub fn recount(quota: &Value, resources: &[Served], cluster: &dyn Cluster, now: i64) -> Option<Value> {
    let namespace = meta::namespace(quota);
    let hard = amounts(quota.at(&["spec", "hard"]));
    let mut counted = Amounts::new();
    for resource in resources {
        let evaluator = Evaluator::of(&resource.resource);
        let names: Vec<&Str> = hard.keys().filter(|name| evaluator.uses(name, cluster)).collect();
        if names.is_empty() {
            continue;
        }
        let mut sum = Amounts::new();
        for object in cluster.list_of(resource, namespace) {
            if scopes::all_match(quota, &evaluator, &object) {
                add(&mut sum, &evaluator.usage(&object, cluster, now));
            }
        }
        for name in names {
            let amount = sum.get(name).cloned().unwrap_or(api::quantity::Quantity::ZERO);
            add(&mut counted, &Amounts::from([(name.clone(), amount)]));
        }
    }
    // What cannot be counted here stays as somebody else counted it.
    let before = amounts(quota.at(&["status", "used"]));
    for (name, amount) in &before {
        if hard.contains_key(name) && !counted.contains_key(name) {
            counted.insert(name.clone(), amount.clone());
        }
    }
    let unset = quota.at(&["status", "hard"]).is_none() || quota.at(&["status", "used"]).is_none();
    if !unset && hard == amounts(quota.at(&["status", "hard"])) && counted == before {
        return None;
    }
    Some(Value::map([
        ("hard", quota.at(&["spec", "hard"]).cloned().unwrap_or_default()),
        ("used", to_value(&counted)),
    ]))
}

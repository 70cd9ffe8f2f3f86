//! Recomputes the usage of a quota from all objects of its namespace.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use api::meta;
use api::pod_resources::{Amounts, add, amounts};
use api::quantity::Quantity;
use value::{Str, Value};

use super::scopes::QuotaScopes;
use super::to_value;
use super::usage::{QuotaEvaluator, UsageContext, UsedNames};
use crate::{ClusterView, RestMapping, UndecodedObject};

/// Finding the usage of an object that was counted before costs about as much as processing this many bytes of an object.
const BYTES_OF_LOOKUP: usize = 4;

/// The usage of the objects that earlier counts of one quota have decoded, so that the next one decodes only those that are new or have
/// changed.
#[derive(Debug, Default)]
pub struct CountedUsage {
    /// By storage key, with the revision.
    objects: HashMap<Arc<str>, (u64, Amounts)>,
}

impl CountedUsage {
    fn get(&self, object: &UndecodedObject<'_>) -> Option<&Amounts> {
        let (key, revision) = object.state.as_ref()?;
        self.objects.get(key).filter(|(counted, _)| counted == revision).map(|(_, usage)| usage)
    }

    fn insert(&mut self, object: &UndecodedObject<'_>, usage: Amounts) {
        if let Some((key, revision)) = &object.state {
            self.objects.insert(Arc::clone(key), (*revision, usage));
        }
    }
}

/// The objects that a quota counts, at the time of [`UsageCount::new`].
pub struct UsageCount<'a> {
    quota: &'a Value,
    cluster: &'a dyn ClusterView,
    hard: Amounts,
    resources: Vec<CountedResource<'a>>,
}

struct CountedResource<'a> {
    evaluator: QuotaEvaluator,
    /// The names in the quota's `hard` that the objects of the resource use.
    names: Vec<Str>,
    objects: Vec<UndecodedObject<'a>>,
}

impl fmt::Debug for UsageCount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageCount").field("quota", &meta::name(self.quota)).finish_non_exhaustive()
    }
}

impl<'a> UsageCount<'a> {
    /// Lists the objects, but decodes none. `resources` are the served namespaced resources.
    pub fn new(quota: &'a Value, resources: &[RestMapping], cluster: &'a dyn ClusterView) -> Self {
        let hard = amounts(quota.at(&["spec", "hard"]));
        let counted = resources.iter().filter_map(|resource| {
            let evaluator = QuotaEvaluator::of(&resource.resource);
            let names: Vec<Str> =
                UsedNames::of(&evaluator, cluster).among(&hard).into_iter().cloned().collect();
            if names.is_empty() {
                return None;
            }
            let objects = cluster.list_undecoded(resource, meta::namespace(quota));
            Some(CountedResource { evaluator, names, objects })
        });
        let resources = counted.collect();
        UsageCount { quota, cluster, hard, resources }
    }

    /// The work of [`UsageCount::status`] as stored bytes: mostly of the objects that are not counted yet.
    pub fn stored_bytes(&self, counted: &CountedUsage) -> usize {
        let objects = self.resources.iter().flat_map(|resource| &resource.objects);
        let bytes = objects.map(|object| match counted.get(object) {
            Some(_) => BYTES_OF_LOOKUP,
            None => object.stored_bytes.saturating_add(BYTES_OF_LOOKUP),
        });
        bytes.fold(0, usize::saturating_add)
    }

    /// The correct status of the quota; `None` if it has it already. `counted` must be of the same limits and scopes, and gets the usage of
    /// the objects that this decodes.
    pub fn status(self, counted: &mut CountedUsage, now: i64) -> Option<Value> {
        let UsageCount { quota, cluster, hard, resources } = self;
        let scopes = QuotaScopes::of(quota);
        let context = UsageContext::new(cluster, meta::namespace(quota), now);
        let mut used = Amounts::new();
        for CountedResource { evaluator, names, objects } in resources {
            let mut sum = Amounts::new();
            for object in &objects {
                if let Some(usage) = counted.get(object) {
                    add(&mut sum, usage);
                    continue;
                }
                let Some(value) = object.read() else { continue };
                let mut usage = Amounts::new();
                if scopes.all_match(&evaluator, &value) {
                    usage = evaluator.usage(&value, &context);
                    usage.retain(|name, _| hard.contains_key(name));
                }
                add(&mut sum, &usage);
                // The usage of a claim depends on its pod and device classes, too.
                if evaluator != QuotaEvaluator::ResourceClaims {
                    counted.insert(object, usage);
                }
            }
            for name in names {
                let amount = sum.remove(&name).unwrap_or(Quantity::ZERO);
                add(&mut used, &Amounts::from([(name, amount)]));
            }
        }
        // Keep the usage of resources that this server cannot count.
        let before = amounts(quota.at(&["status", "used"]));
        for (name, amount) in &before {
            if hard.contains_key(name) && !used.contains_key(name) {
                used.insert(name.clone(), amount.clone());
            }
        }
        let unset = quota.at(&["status", "hard"]).is_none() || quota.at(&["status", "used"]).is_none();
        if !unset && hard == amounts(quota.at(&["status", "hard"])) && used == before {
            return None;
        }
        Some(Value::map([
            ("hard", quota.at(&["spec", "hard"]).cloned().unwrap_or_default()),
            ("used", to_value(&used)),
        ]))
    }
}

/// The correct status of a quota, counted in one piece; `None` if it has it already.
pub fn recount(
    quota: &Value,
    resources: &[RestMapping],
    cluster: &dyn ClusterView,
    now: i64,
) -> Option<Value> {
    UsageCount::new(quota, resources, cluster).status(&mut CountedUsage::default(), now)
}

//! Removes the metric series of objects that no longer exist: CRDs, admission policies, webhooks, APIServices and service ranges.
//!
//! kube-apiserver keeps such series for ever, so clients that create and delete objects make it grow. Prometheus takes a counter that
//! begins again at zero for a restart.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catalog::keys;
use kinds::table;
use runtime::{MetricRegistry, SeriesLabels};
use value::Str;

use crate::state::State;

/// Pause between two sweeps. The series of an object are removed by the second sweep after its deletion, so that a value of its last
/// requests can still be read.
const INTERVAL: Duration = Duration::from_mins(1);

/// The labels that name objects.
const OBJECT_LABELS: [&str; 6] = ["resource", "crd_name", "policy", "policy_binding", "name", "cidr"];

/// An object that the labels of a series name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum SeriesObject {
    /// A resource; without a version, in any.
    Resource {
        group: Str,
        version: Option<Str>,
        plural: Str,
    },
    Crd(Str),
    Policy(Str),
    PolicyBinding(Str),
    /// One webhook of a configuration.
    Webhook(Str),
    ApiService(Str),
    ServiceRange(Str),
}

/// The objects that series may name.
trait ExistingObjects {
    fn contains(&self, object: &SeriesObject) -> bool;
}

/// Removes series every minute until the server stops.
pub(crate) async fn sweep_regularly(state: Arc<State>) {
    let mut stop = state.stopping();
    let mut sweeper = SeriesSweeper::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let state = Arc::clone(&state);
        // Thousands of series take some milliseconds.
        let swept = tokio::task::spawn_blocking(move || {
            sweeper.sweep(state.metrics.registry(), &StoredObjectNames::of(&state));
            sweeper
        });
        match swept.await {
            Ok(again) => sweeper = again,
            Err(_) => return,
        }
    }
}

#[derive(Debug, Default)]
struct SeriesSweeper {
    /// The objects that the last sweep missed.
    missing: HashSet<SeriesObject>,
}

impl SeriesSweeper {
    /// Removes the series of the objects that neither exist nor existed at the last sweep.
    fn sweep(&mut self, registry: &MetricRegistry, existing: &impl ExistingObjects) {
        let mut missing = HashSet::new();
        registry.remove_series(&OBJECT_LABELS, |family, labels| {
            let mut is_stale = false;
            for object in objects(family, labels) {
                if missing.contains(&object) || !existing.contains(&object) {
                    is_stale |= self.missing.contains(&object);
                    missing.insert(object);
                }
            }
            is_stale
        });
        self.missing = missing;
    }
}

/// The objects that a series is about.
fn objects(family: &str, labels: &SeriesLabels<'_>) -> Vec<SeriesObject> {
    let text = |name: &str| labels.get(name).filter(|value| !value.is_empty()).map(Str::from);
    let mut found = Vec::new();
    if let (Some(group), Some(plural)) = (labels.get("group"), text("resource")) {
        found.push(SeriesObject::Resource { group: group.into(), version: text("version"), plural });
    }
    found.extend(text("crd_name").map(SeriesObject::Crd));
    found.extend(text("policy").map(SeriesObject::Policy));
    found.extend(text("policy_binding").map(SeriesObject::PolicyBinding));
    found.extend(text("cidr").map(SeriesObject::ServiceRange));
    let is_of_webhooks = family.starts_with("apiserver_admission_webhook_")
        || family.starts_with("apiserver_admission_manifest_webhook_");
    let named = match labels.get("kind") {
        _ if is_of_webhooks => Some(SeriesObject::Webhook as fn(Str) -> SeriesObject),
        _ if family.starts_with("aggregator_unavailable_apiservice") => Some(SeriesObject::ApiService as _),
        Some("webhook") if family.starts_with("apiserver_admission_match_condition_") => {
            Some(SeriesObject::Webhook as _)
        }
        Some("policy") if family.starts_with("apiserver_admission_match_condition_") => {
            Some(SeriesObject::Policy as _)
        }
        _ => None,
    };
    found.extend(named.zip(text("name")).map(|(object, name)| object(name)));
    found
}

/// The objects of a server and of its manifest files.
struct StoredObjectNames<'a> {
    state: &'a State,
    policies: HashSet<Str>,
    bindings: HashSet<Str>,
    webhooks: HashSet<Str>,
    ranges: HashSet<Str>,
}

impl<'a> StoredObjectNames<'a> {
    fn of(state: &'a State) -> Self {
        let admission = &state.admission;
        let mut policies = admission.policies.list_validating();
        policies.extend(admission.policies.list_mutating());
        let mut webhooks = admission.webhooks.list_validating();
        webhooks.extend(admission.webhooks.list_mutating());
        let bindings = policies.iter().flat_map(|policy| &policy.bindings);
        StoredObjectNames {
            state,
            bindings: bindings.map(|bound| bound.binding.name.clone()).collect(),
            policies: policies.iter().map(|policy| policy.name.clone()).collect(),
            webhooks: webhooks.iter().map(|listed| listed.hook.name.clone()).collect(),
            ranges: state.addresses.range_labels().collect(),
        }
    }
}

impl ExistingObjects for StoredObjectNames<'_> {
    fn contains(&self, object: &SeriesObject) -> bool {
        let catalog = &self.state.apis.catalog;
        match object {
            SeriesObject::Resource { group, version, plural } => {
                let is_built_in = || table::all().any(|row| row.group == *group && row.plural == *plural);
                let is_custom = || match version {
                    Some(version) => catalog.find(group, version, plural).is_some(),
                    None => catalog.custom_resource(group, plural).is_some(),
                };
                // In the core group, some names are those of directories of the store.
                group.is_empty() || is_built_in() || is_custom()
            }
            SeriesObject::Crd(name) => catalog.custom().crd(name).is_some(),
            SeriesObject::Policy(name) => self.policies.contains(name),
            SeriesObject::PolicyBinding(name) => self.bindings.contains(name),
            SeriesObject::Webhook(name) => self.webhooks.contains(name),
            SeriesObject::ApiService(name) => {
                self.state.storage.store.get(&keys::cluster_scoped(keys::API_SERVICES, name)).is_some()
            }
            SeriesObject::ServiceRange(range) => self.ranges.contains(range),
        }
    }
}

#[cfg(test)]
mod tests;

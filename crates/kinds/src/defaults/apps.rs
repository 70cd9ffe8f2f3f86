//! Defaults of the `apps` group and of the core group's ReplicationController.

use value::{Map, Value};

use super::{fields::Fill, pod::template, quantities::round_up};

const REVISION_HISTORY_LIMIT: i64 = 10;
const PROGRESS_DEADLINE_SECONDS: i64 = 600;

pub fn deployment(object: &mut Value) {
    let Some(spec) = spec_of(object) else { return };
    spec.fill("replicas", 1);
    let strategy = spec.child_or_insert("strategy");
    if rolls(strategy) {
        let rolling = rolling_update(strategy);
        rolling.fill("maxUnavailable", "25%");
        rolling.fill("maxSurge", "25%");
    }
    spec.fill("revisionHistoryLimit", REVISION_HISTORY_LIMIT);
    spec.fill("progressDeadlineSeconds", PROGRESS_DEADLINE_SECONDS);
    template(spec.child_or_insert("template"));
}

pub fn daemon_set(object: &mut Value) {
    let Some(spec) = spec_of(object) else { return };
    let strategy = spec.child_or_insert("updateStrategy");
    if rolls(strategy) {
        let rolling = rolling_update(strategy);
        rolling.fill("maxUnavailable", 1);
        rolling.fill("maxSurge", 0);
    }
    spec.fill("revisionHistoryLimit", REVISION_HISTORY_LIMIT);
    template(spec.child_or_insert("template"));
}

pub fn stateful_set(object: &mut Value) {
    let Some(spec) = spec_of(object) else { return };
    spec.fill_zero("podManagementPolicy", "OrderedReady");
    let strategy = spec.child_or_insert("updateStrategy");
    if strategy.get("type").and_then(Value::as_str).is_none_or(str::is_empty) {
        strategy.insert("type", "RollingUpdate");
        strategy.fill("rollingUpdate", Map::new());
    }
    if rolls(strategy)
        && let Some(rolling) = strategy.child("rollingUpdate")
    {
        rolling.fill("partition", 0);
        rolling.fill("maxUnavailable", 1);
    }
    let retention = spec.child_or_insert("persistentVolumeClaimRetentionPolicy");
    retention.fill_zero("whenDeleted", "Retain");
    retention.fill_zero("whenScaled", "Retain");
    spec.fill("replicas", 1);
    spec.fill("revisionHistoryLimit", REVISION_HISTORY_LIMIT);
    template(spec.child_or_insert("template"));
    for claim in spec.children("volumeClaimTemplates") {
        let claim_spec = claim.child_or_insert("spec");
        claim_spec.fill("volumeMode", "Filesystem");
        if let Some(resources) = claim_spec.child("resources") {
            round_up(resources);
        }
        claim.child_or_insert("status").fill_zero("phase", "Pending");
        claim.insert("apiVersion", "v1");
        claim.insert("kind", "PersistentVolumeClaim");
    }
}

pub fn replica_set(object: &mut Value) {
    let Some(spec) = spec_of(object) else { return };
    spec.fill("replicas", 1);
    template(spec.child_or_insert("template"));
}

/// The selector and labels default to the labels of the template.
pub fn replication_controller(object: &mut Value) {
    let labels = object.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_map).cloned();
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        for path in [["spec", "selector"], ["metadata", "labels"]] {
            if object.at(&path).and_then(Value::as_map).is_none_or(Map::is_empty) {
                object.set_at(&path, labels.clone());
            }
        }
    }
    let Some(spec) = spec_of(object) else { return };
    spec.fill("replicas", 1);
    if let Some(template) = spec.child("template") {
        super::pod::template(template);
    }
}

fn spec_of(object: &mut Value) -> Option<&mut Map> {
    object.as_map_mut().map(|object| object.child_or_insert("spec"))
}

fn rolls(strategy: &mut Map) -> bool {
    strategy.fill_zero("type", "RollingUpdate");
    strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
}

fn rolling_update(strategy: &mut Map) -> &mut Map {
    strategy.child_or_insert("rollingUpdate")
}

//! Strategies of PersistentVolume and PersistentVolumeClaim: phases, and the two fields for a data source.

use api::validation::fields::{Read, same};
use value::Value;

use super::{StrategyContext, keep};
use crate::validation::persistent_volume_claim::normalize_sources;

/// Sets the phase to `Pending`, with the time of the request.
pub(super) fn create_volume(volume: &mut Value, context: &StrategyContext) {
    volume.set_at(&["status", "phase"], "Pending");
    volume.set_at(&["status", "lastPhaseTransitionTime"], context.time());
}

/// Updates the time of the phase when the phase changes.
pub(super) fn update_volume_status(new: &mut Value, old: &Value, context: &StrategyContext) {
    let (status, former) = (new.part("status"), old.part("status"));
    let time = status.part("lastPhaseTransitionTime");
    let old_time = former.part("lastPhaseTransitionTime");
    if status.text("phase") == former.text("phase") {
        if time.is_none() {
            keep(new, old, &["status", "lastPhaseTransitionTime"]);
        }
    } else if time.is_none() || same(time, old_time) {
        new.set_at(&["status", "lastPhaseTransitionTime"], context.time());
    }
}

/// Makes `dataSource` and `dataSourceRef` of a new claim agree.
pub(super) fn create_claim(claim: &mut Value, _: &StrategyContext) {
    // Resetting the status removed the phase, which is a default of the storage version.
    claim.set_at(&["status", "phase"], "Pending");
    drop_foreign_source(claim, None);
    normalize_sources(claim);
}

/// Makes both data source fields agree, except that existing sources stay unchanged.
pub(super) fn update_claim(new: &mut Value, old: &Value, _: &StrategyContext) {
    drop_foreign_source(new, Some(old));
    normalize_sources(new);
}

/// Drops a reference to another namespace (a disabled feature) and sources of kinds that Kubernetes always ignored.
fn drop_foreign_source(claim: &mut Value, old: Option<&Value>) {
    let old_spec = old.and_then(|old| old.part("spec"));
    let reference = claim.part("spec").part("dataSourceRef");
    if !reference.text("namespace").is_empty() && old_spec.part("dataSourceRef").is_none() {
        claim.remove_at(&["spec", "dataSourceRef"]);
    }
    if old_spec.part("dataSource").is_some() || old_spec.part("dataSourceRef").is_some() {
        return;
    }
    let spec = claim.part("spec");
    if spec.part("dataSourceRef").is_some() {
        return;
    }
    let source = spec.part("dataSource");
    let known = matches!(
        (source.text("kind"), source.text("apiGroup")),
        ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")
    );
    if !known {
        claim.remove_at(&["spec", "dataSource"]);
    }
}

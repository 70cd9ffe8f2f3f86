//! `PersistentVolume` and `PersistentVolumeClaim`: phases, and the two ways to name a data source.

use value::Value;

use super::{Context, keep};
use crate::validation::fields::{Read, same};

/// A new volume is pending from now on.
pub(super) fn create_volume(volume: &mut Value, context: &Context) {
    volume.set_at(&["status", "phase"], "Pending");
    volume.set_at(&["status", "lastPhaseTransitionTime"], context.time());
}

/// The time of the phase follows the phase.
pub(super) fn update_volume_status(new: &mut Value, old: &Value, context: &Context) {
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
pub(super) fn create_claim(claim: &mut Value, _: &Context) {
    // The phase is a default of the stored version.
    claim.set_at(&["status", "phase"], "Pending");
    drop_foreign_source(claim, None);
    normalize_sources(claim);
}

/// As for a new claim; a source that is already there stays whatever it is.
pub(super) fn update_claim(new: &mut Value, old: &Value, _: &Context) {
    drop_foreign_source(new, Some(old));
    normalize_sources(new);
}

/// Drops a source in another namespace (a feature that is off), and a kind of source that was always ignored.
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

/// Fills in whichever of the two source fields is missing from the other.
pub(crate) fn normalize_sources(claim: &mut Value) {
    let spec = claim.part("spec");
    let (source, reference) = (spec.part("dataSource"), spec.part("dataSourceRef"));
    let (field, from) = match (source, reference) {
        (Some(source), None) => ("dataSourceRef", source),
        (None, Some(reference)) if reference.text("namespace").is_empty() => ("dataSource", reference),
        _ => return,
    };
    let mut copy = value::Map::new();
    for part in ["apiGroup", "kind", "name"] {
        if let Some(value) = from.get(part) {
            copy.insert(part, value.clone());
        }
    }
    claim.set_at(&["spec", field], copy);
}

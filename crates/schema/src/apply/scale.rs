//! Converts managed fields between a workload and its `scale` subresource, in which the only owned field is the number of replicas.

use std::collections::BTreeMap;

use value::Str;

use super::element::Element;
use super::managed::{ManagedFieldsEntry, Manager, ManagerKey, Managers};
use super::set::FieldSet;

/// API version of the `Scale` kind.
pub const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas() -> [Element; 2] {
    [Element::Field(Str::new_static("spec")), Element::Field(Str::new_static("replicas"))]
}

/// Path of the replicas in each version of the workload.
pub trait Replicas {
    /// `Some(None)` for a version without replicas, `None` for an unknown version.
    fn path(&self, api_version: &str) -> Option<Option<Vec<Element>>>;
}

/// The managers of the workload's replicas as managers of the scale.
pub fn to_scale(workload: &Managers, paths: &dyn Replicas) -> Managers {
    let mut out = BTreeMap::new();
    for entry in workload.iter() {
        let Some(Some(path)) = paths.path(&entry.manager.api_version) else { continue };
        if entry.fields.has(&path) {
            let mut fields = FieldSet::default();
            fields.insert(replicas());
            // Entries of a scale always have the version of the scale, not the one in which the manager wrote.
            let manager = Manager { api_version: SCALE_VERSION.into(), ..entry.manager.clone() };
            out.insert(manager.key(), ManagedFieldsEntry { manager, time: entry.time, fields });
        }
    }
    Managers::of_distinct(out.into_values())
}

/// The managers of a workload after its scale was written. A manager that no longer owns the replicas in the scale loses them in the
/// workload; each manager that owns them in the scale gets an entry in the workload's version. `Update` managers are identified by
/// their version, so those of the workload never match those of the scale, and the time of a scale's `Update` manager is unknown in the
/// workload.
pub fn to_workload(
    workload: &Managers,
    scale: &Managers,
    api_version: &str,
    paths: &dyn Replicas,
) -> Managers {
    let mut out = Managers::default();
    let mut left: BTreeMap<ManagerKey, &ManagedFieldsEntry> =
        scale.iter().map(|entry| (entry.manager.key(), entry)).collect();
    let times: BTreeMap<ManagerKey, Option<i64>> =
        workload.iter().map(|entry| (entry.manager.key(), entry.time)).collect();
    for entry in workload.iter() {
        let Some(path) = paths.path(&entry.manager.api_version) else { continue };
        let mut entry = entry.clone();
        if let Some(path) = path
            && entry.fields.has(&path)
            && left.remove(&entry.manager.key()).is_none()
        {
            let mut taken = FieldSet::default();
            taken.insert(path);
            entry.fields.subtract(&taken);
        }
        if !entry.fields.is_empty() {
            out.push(entry);
        }
    }
    let Some(Some(path)) = paths.path(api_version) else { return out };
    for entry in left.into_values().filter(|entry| entry.fields.has(&replicas())) {
        let mut fields = FieldSet::default();
        fields.insert(path.clone());
        let time = times.get(&entry.manager.key()).copied().flatten();
        let manager = Manager { api_version: api_version.into(), ..entry.manager.clone() };
        out.push(ManagedFieldsEntry { manager, time, fields });
    }
    out
}

//! The managed fields of a workload as its `scale` shows them, and back: there is one field in a scale, the number of replicas.

use value::Str;

use super::element::Element;
use super::managed::{Managed, Manager, Managers};
use super::set::FieldSet;

/// The version of scales.
pub const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas() -> [Element; 2] {
    [Element::Field(Str::new_static("spec")), Element::Field(Str::new_static("replicas"))]
}

/// Where a version of the workload keeps the number of replicas: `Some(None)` for a version that has none, `None` for a version
/// that is not known.
pub trait Replicas {
    /// The path in a version.
    fn path(&self, api_version: &str) -> Option<Option<Vec<Element>>>;
}

/// The managers of the replicas, as managers of a scale.
pub fn to_scale(workload: &Managers, paths: &dyn Replicas) -> Managers {
    let mut out = Managers::default();
    for entry in workload.iter() {
        let Some(Some(path)) = paths.path(&entry.manager.api_version) else { continue };
        if entry.fields.has(&path) {
            let mut fields = FieldSet::default();
            fields.insert(replicas());
            // The manager is known by the version it wrote in, which a scale's entry does not show.
            let manager = Manager { api_version: SCALE_VERSION.into(), ..entry.manager.clone() };
            out.put(Managed { manager, time: entry.time, fields });
        }
    }
    out
}

/// The managers of a workload after its scale was written: who owned the replicas there and does not own them here any more loses
/// them; who owns them here has them under the version of the workload. An updater is known by its version, so that one of the
/// workload is never one of the scale; nor is the time of a scale's updater known in the workload.
pub fn to_workload(
    workload: &Managers,
    scale: &Managers,
    api_version: &str,
    paths: &dyn Replicas,
) -> Managers {
    let mut out = Managers::default();
    let mut left = scale.clone();
    for entry in workload.iter() {
        let Some(path) = paths.path(&entry.manager.api_version) else { continue };
        let mut entry = entry.clone();
        if let Some(path) = path
            && entry.fields.has(&path)
            && left.take(&entry.manager).is_none()
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
    for entry in left.iter().filter(|entry| entry.fields.has(&replicas())) {
        let mut fields = FieldSet::default();
        fields.insert(path.clone());
        let time = workload.get(&entry.manager).and_then(|there| there.time);
        let manager = Manager { api_version: api_version.into(), ..entry.manager.clone() };
        out.push(Managed { manager, time, fields });
    }
    out
}

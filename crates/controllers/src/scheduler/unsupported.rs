//! Detects scheduling features that this scheduler does not support; ignoring one of them could place the pod wrongly.

use value::Value;

/// Describes the first unsupported feature that a pod uses.
pub(crate) fn first_unsupported_feature(pod: &Value) -> Option<String> {
    let spec = |path: &[&str]| {
        let mut at = vec!["spec"];
        at.extend(path);
        pod.at(&at).filter(|found| !found.is_null())
    };
    let has = |path: &[&str]| spec(path).and_then(Value::as_list).is_some_and(|list| !list.is_empty());
    for kind in ["podAffinity", "podAntiAffinity"] {
        if has(&["affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"]) {
            return Some(format!("it has a required {kind}"));
        }
    }
    let spreads = pod.list_at(&["spec", "topologySpreadConstraints"]);
    if spreads.iter().any(|one| one.str_at(&["whenUnsatisfiable"]) != Some("ScheduleAnyway")) {
        return Some("it has a topologySpreadConstraint that must be met".to_owned());
    }
    for volume in pod.list_at(&["spec", "volumes"]) {
        let bound = [
            "persistentVolumeClaim",
            "ephemeral",
            "csi",
            "awsElasticBlockStore",
            "gcePersistentDisk",
            "azureDisk",
            "iscsi",
            "rbd",
        ];
        if let Some(kind) = bound.iter().find(|kind| volume.at(&[kind]).is_some_and(|v| !v.is_null())) {
            let name = volume.str_at(&["name"]).unwrap_or_default();
            return Some(format!("its volume {} is a {kind}", api::field::quote(name)));
        }
    }
    if spec(&["schedulingGroup"]).is_some() || spec(&["workloadRef"]).is_some() {
        return Some("it is scheduled as part of a group".to_owned());
    }
    None
}

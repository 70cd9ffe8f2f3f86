//! LimitPodHardAntiAffinityTopology: limits required pod anti-affinity to single nodes. Off by default.

use api::{Status, meta};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

/// Rejects required pod anti-affinity with a topology other than the hostname.
#[derive(Debug)]
pub struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(pod) = pod.filter(|_| attributes.writes("", "pods")) else { return Ok(()) };
        let path = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        for term in pod.list_at(&path) {
            let key = term.str_at(&["topologyKey"]).unwrap_or_default();
            if key != "kubernetes.io/hostname" {
                let why = format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key kubernetes.io/hostname is allowed"
                );
                return Err(Status::forbidden(&attributes.resource, meta::name(pod), why));
            }
        }
        Ok(())
    }
}

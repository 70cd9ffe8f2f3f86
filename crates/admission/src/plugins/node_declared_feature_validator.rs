//! NodeDeclaredFeatureValidator: rejects updates of pods that need features which the node does not declare.

use api::pod_resources::{amounts, is_sidecar};
use api::quantity::Quantity;
use api::{Status, field};
use value::Value;

use super::bound_pod::{changed_pod, node};
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct NodeDeclaredFeatureValidator;

impl Plugin for NodeDeclaredFeatureValidator {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some((new, old, name)) = changed_pod(attributes, object, &["", "resize"]) else { return Ok(()) };
        let needed = needed_features(old, new);
        if needed.is_empty() {
            return Ok(());
        }
        let node = node(attributes, new, name, cluster)?;
        let declared = node.list_at(&["status", "declaredFeatures"]);
        let missing: Vec<&str> =
            needed.into_iter().filter(|f| !declared.iter().any(|d| d.as_str() == Some(f))).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (missing, name) = (missing.join(", "), field::quote(name));
        let why = format!("pod update requires features {missing} which are not available on node {name}");
        Err(attributes.refuse(object, why))
    }
}

/// The node features that an update of a pod needs, sorted.
fn needed_features(old: &Value, new: &Value) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if differ(old.at(&["spec", "resources"]), new.at(&["spec", "resources"])) {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let later = new.list_at(&["spec", "initContainers"]);
    let resized = old.list_at(&["spec", "initContainers"]).iter().zip(later).any(|(before, after)| {
        !is_sidecar(before) && differ(before.get("resources"), after.get("resources"))
    });
    if resized {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    let (before, after) = (old.list_at(&["spec", "volumes"]), new.list_at(&["spec", "volumes"]));
    let in_memory = |volume: &Value| volume.str_at(&["emptyDir", "medium"]) == Some("Memory");
    let limit = |volume: &Value| {
        volume.str_at(&["emptyDir", "sizeLimit"]).and_then(|text| Quantity::parse(text).ok())
    };
    let regrown = before.len() == after.len()
        && before.iter().zip(after).any(|(before, after)| {
            before.get("name") == after.get("name")
                && in_memory(after)
                && limit(before).zip(limit(after)).is_some_and(|(before, after)| before != after)
        });
    if regrown {
        needed.push("InPlacePodVerticalScalingMemoryBackedVolumes");
    }
    needed
}

/// Whether requests, limits or claims of two resource requirements differ.
fn differ(a: Option<&Value>, b: Option<&Value>) -> bool {
    let side = |value: Option<&Value>, field| amounts(value.and_then(|v| v.get(field)));
    let claims = |value: Option<&Value>| value.map(|v| v.list_at(&["claims"]).to_vec()).unwrap_or_default();
    side(a, "requests") != side(b, "requests")
        || side(a, "limits") != side(b, "limits")
        || claims(a) != claims(b)
}

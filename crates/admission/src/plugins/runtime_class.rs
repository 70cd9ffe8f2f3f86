//! RuntimeClass: sets the overhead, node selector and tolerations of a pod's RuntimeClass, and rejects any
//! other overhead.

use std::sync::Arc;

use api::Status;
use value::Value;

use super::tolerations;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};
use api::pod_resources::amounts;

#[derive(Debug)]
pub struct RuntimeClass;

impl RuntimeClass {
    fn class(
        attributes: &AdmissionAttributes<'_>,
        pod: &Value,
        cluster: &dyn ClusterView,
    ) -> Result<Option<Arc<Value>>, Status> {
        let Some(name) = pod.str_at(&["spec", "runtimeClassName"]) else { return Ok(None) };
        match cluster.object("node.k8s.io", "runtimeclasses", "", name) {
            Some(class) => Ok(Some(class)),
            None => {
                let quoted = api::field::quote(name);
                Err(attributes.refuse(Some(pod), format!("pod rejected: RuntimeClass {quoted} not found")))
            }
        }
    }
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

impl Plugin for RuntimeClass {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.creates("", "pods") {
            return Ok(());
        }
        let Some(class) = Self::class(attributes, pod, cluster)? else { return Ok(()) };
        if let Some(overhead) = class.get("overhead") {
            let fixed = overhead.get("podFixed");
            let given = amounts(pod.at(&["spec", "overhead"]));
            if !given.is_empty() && given != amounts(fixed) {
                return Err(attributes.refuse(Some(pod), MISMATCH));
            }
            if let Some(fixed) = fixed {
                pod.set_at(&["spec", "overhead"], fixed.clone());
            } else {
                pod.remove_at(&["spec", "overhead"]);
            }
        }
        let Some(scheduling) = class.get("scheduling") else { return Ok(()) };
        let selector = scheduling.get("nodeSelector").and_then(Value::as_map);
        let mut added = Vec::new();
        for (key, value) in selector.into_iter().flat_map(value::Map::iter) {
            let value = value.as_str().unwrap_or_default();
            if let Some(given) = pod.str_at(&["spec", "nodeSelector", key])
                && given != value
            {
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {given}"
                );
                return Err(attributes.refuse(Some(pod), why));
            }
            added.push((key.clone(), value.into()));
        }
        if !added.is_empty() {
            pod.make_map_at(&["spec", "nodeSelector"]).extend(added);
        }
        let merged =
            tolerations::merge(pod.list_at(&["spec", "tolerations"]), scheduling.list_at(&["tolerations"]));
        if merged.is_empty() {
            pod.remove_at(&["spec", "tolerations"]);
        } else {
            pod.set_at(&["spec", "tolerations"], merged);
        }
        Ok(())
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(pod) = pod.filter(|_| attributes.creates("", "pods")) else { return Ok(()) };
        let class = Self::class(attributes, pod, cluster)?;
        let given = pod.at(&["spec", "overhead"]);
        match class.as_deref().and_then(|class| class.get("overhead")) {
            Some(overhead) if amounts(overhead.get("podFixed")) != amounts(given) => {
                Err(attributes.refuse(Some(pod), MISMATCH))
            }
            None if given.is_some() => Err(attributes.refuse(
                Some(pod),
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

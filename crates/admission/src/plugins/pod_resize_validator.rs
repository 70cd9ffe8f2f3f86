//! PodResizeValidator: rejects resizes that the pod or its node does not support.

use api::pod_resources::{self, amounts};
use api::quantity::Quantity;
use api::{Status, StatusCause, field};
use value::Value;

use super::bound_pod::{changed_pod, node};
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct PodResizeValidator;

impl Plugin for PodResizeValidator {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some((pod, _, name)) = changed_pod(attributes, object, &["resize"]) else { return Ok(()) };
        let node = node(attributes, pod, name, cluster)?;
        let refuse = |why: String, reason: &'static str| {
            Err(attributes
                .forbidden_because(why, StatusCause { reason: reason.into(), ..StatusCause::default() }))
        };
        if let Some(os) = node.str_at(&["metadata", "labels", "kubernetes.io/os"])
            && os != "linux"
        {
            let (name, os) = (field::quote(name), field::quote(os));
            let why = format!("pod resize is only supported on linux nodes, node {name} is {os}");
            return refuse(why, "UnsupportedPlatform");
        }
        let mut requests = pod_resources::of_containers(pod, "requests");
        pod_resources::of_pod_itself(pod, "requests", &mut requests, pod_resources::is_pod_level);
        pod_resources::add(&mut requests, &amounts(pod.at(&["spec", "overhead"])));
        let allocatable = amounts(node.at(&["status", "allocatable"]));
        let pair = |resource: &str| {
            let of = |list: &pod_resources::Amounts| list.get(resource).cloned().unwrap_or(Quantity::ZERO);
            (of(&requests), of(&allocatable))
        };
        let mut over = Vec::new();
        let (requested, has) = pair("cpu");
        if requested > has {
            let (requested, has) = (requested.milli_value(), has.milli_value());
            over.push(format!("cpu, requested: {requested}, allocatable: {has}"));
        }
        let (requested, has) = pair("memory");
        if requested > has {
            over.push(format!("memory, requested: {}, allocatable: {}", requested.value(), has.value()));
        }
        if over.is_empty() {
            return Ok(());
        }
        let why = format!("node didn't have enough allocatable resources: {}", over.join("; "));
        refuse(why, "NodeCapacity")
    }
}

//! Small plugins: AlwaysAdmit, AlwaysDeny, AlwaysPullImages, NamespaceExists,
//! LimitPodHardAntiAffinityTopology, DenyServiceExternalIPs, ExtendedResourceToleration. All are off by
//! default.

use std::collections::BTreeSet;

use api::pod_resources::is_extended;
use api::{FieldError, Status, meta};
use value::{Path, Value};

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

#[derive(Debug)]
pub struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {}

#[derive(Debug)]
pub struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        Err(attributes.refuse(Some(object), "admission control is denying all modifications"))
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        Err(attributes.refuse(object, "admission control is denying all modifications"))
    }
}

/// Sets `imagePullPolicy: Always`, so that access to images is checked every time.
#[derive(Debug)]
pub struct AlwaysPullImages;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

impl AlwaysPullImages {
    fn handles(attributes: &AdmissionAttributes<'_>, pod: &Value) -> bool {
        if !attributes.writes("", "pods") {
            return false;
        }
        let Some(old) = attributes.old_object.stored() else { return true };
        let images = |pod: &Value| -> BTreeSet<String> {
            let containers = CONTAINERS.iter().flat_map(|field| pod.list_at(&["spec", field]));
            containers.map(|c| c.str_at(&["image"]).unwrap_or_default().to_owned()).collect()
        };
        !images(pod).is_subset(&images(old))
    }
}

impl Plugin for AlwaysPullImages {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !Self::handles(attributes, pod) {
            return Ok(());
        }
        for field in CONTAINERS {
            let containers = pod.at_mut(&["spec", field]).and_then(Value::as_list_mut);
            for container in containers.into_iter().flatten() {
                container.set_at(&["imagePullPolicy"], "Always");
            }
        }
        for volume in pod.at_mut(&["spec", "volumes"]).and_then(Value::as_list_mut).into_iter().flatten() {
            if let Some(image) = volume.get_mut("image") {
                image.set_at(&["pullPolicy"], "Always");
            }
        }
        Ok(())
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(pod) = pod.filter(|pod| Self::handles(attributes, pod)) else { return Ok(()) };
        let spec = Path::root().field("spec");
        let mut errors = Vec::new();
        let mut check = |path: Path, policy: Option<&str>| {
            let policy = policy.unwrap_or_default();
            if policy != "Always" {
                let error = FieldError::not_supported(&path, policy, &["Always"]);
                errors.push(attributes.refuse(Some(pod), error).message().to_owned());
            }
        };
        for field in CONTAINERS {
            for (i, container) in pod.list_at(&["spec", field]).iter().enumerate() {
                let path = spec.field(field).index(i).field("imagePullPolicy");
                check(path, container.str_at(&["imagePullPolicy"]));
            }
        }
        for (i, volume) in pod.list_at(&["spec", "volumes"]).iter().enumerate() {
            if let Some(image) = volume.get("image") {
                let path = spec.field("volumes").index(i).field("image").field("pullPolicy");
                check(path, image.str_at(&["pullPolicy"]));
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        // kube-apiserver returns this list of errors as a plain error, not as a 403.
        Err(Status::plain(api::field::aggregate(errors)))
    }
}

/// Rejects all writes in missing namespaces.
#[derive(Debug)]
pub struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        _: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let connects = attributes.operation == Operation::Connect;
        if connects || attributes.namespace.is_empty() || attributes.is_kind("", "Namespace") {
            return Ok(());
        }
        super::namespace(attributes, cluster).map(drop)
    }
}

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

/// Rejects new external IPs of services.
#[derive(Debug)]
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(service) = object.filter(|_| attributes.writes("", "services")) else {
            return Ok(());
        };
        let addresses = service.list_at(&["spec", "externalIPs"]);
        let before =
            attributes.old_object.stored().map_or(&[][..], |old| old.list_at(&["spec", "externalIPs"]));
        if addresses.iter().all(|address| before.contains(address)) {
            return Ok(());
        }
        Err(attributes.refuse(object, "Use of external IPs is denied by admission control"))
    }
}

/// Adds a toleration for the taint of each extended resource that a pod requests, so that nodes with it can
/// be reserved.
#[derive(Debug)]
pub struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
            return Ok(());
        }
        let containers = pod.list_at(&["spec", "containers"]).iter();
        let context: BTreeSet<String> = containers
            .chain(pod.list_at(&["spec", "initContainers"]))
            .filter_map(|container| container.at(&["resources", "requests"])?.as_map())
            .flat_map(|requests| requests.keys().map(ToString::to_string))
            .filter(|name| is_extended(name))
            .collect();
        for resource in context {
            tolerate(pod, &resource);
        }
        Ok(())
    }
}

fn tolerate(pod: &mut Value, resource: &str) {
    let toleration = Value::map([("effect", "NoSchedule"), ("key", resource), ("operator", "Exists")]);
    let Some(list) = pod.at_mut(&["spec", "tolerations"]).and_then(Value::as_list_mut) else {
        super::append(pod, &["spec", "tolerations"], toleration);
        return;
    };
    // A toleration that differs only in its seconds is replaced.
    let same = |other: &Value| {
        let text = |field| other.str_at(&[field]).unwrap_or_default();
        text("key") == resource
            && text("operator") == "Exists"
            && text("effect") == "NoSchedule"
            && text("value").is_empty()
    };
    let mut found = false;
    for other in list.iter_mut().filter(|other| same(other)) {
        *other = toleration.clone();
        found = true;
    }
    if !found {
        list.push(toleration);
    }
}

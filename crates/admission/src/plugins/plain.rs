//! The small plugins that are off unless a flag names them: AlwaysAdmit, AlwaysDeny, AlwaysPullImages, NamespaceExists,
//! LimitPodHardAntiAffinityTopology, DenyServiceExternalIPs, ExtendedResourceToleration.

use std::collections::BTreeSet;

use api::{FieldError, GroupResource, Status, meta};
use value::{Path, Value};

use crate::{Attributes, Cluster, Notes, Operation, Plugin};

/// Says yes.
#[derive(Debug)]
pub struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {}

/// Says no.
#[derive(Debug)]
pub struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        Err(attributes.refuse(Some(object), "admission control is denying all modifications"))
    }

    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        Err(attributes.refuse(object, "admission control is denying all modifications"))
    }
}

/// Images are pulled each time, so that who may use an image is checked each time.
#[derive(Debug)]
pub struct AlwaysPullImages;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

impl AlwaysPullImages {
    fn is_about(attributes: &Attributes<'_>, pod: &Value) -> bool {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || !attributes.is_resource("", "pods") {
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
        attributes: &Attributes<'_>,
        pod: &mut Value,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        if !Self::is_about(attributes, pod) {
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
        attributes: &Attributes<'_>,
        pod: Option<&Value>,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let Some(pod) = pod.filter(|pod| Self::is_about(attributes, pod)) else { return Ok(()) };
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
        // A list of refusals is no refusal to Kubernetes, but a failure.
        Err(Status::plain(api::field::aggregate(errors)))
    }
}

/// Everything in a namespace needs that namespace.
#[derive(Debug)]
pub struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        _: Option<&Value>,
        cluster: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let namespace = attributes.namespace.as_str();
        let connects = attributes.operation == Operation::Connect;
        if connects || namespace.is_empty() || attributes.is_kind("", "Namespace") {
            return Ok(());
        }
        match cluster.object("", "namespaces", "", namespace) {
            Some(_) => Ok(()),
            None => Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace)),
        }
    }
}

/// Pods may keep away from each other by node only.
#[derive(Debug)]
pub struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        pod: Option<&Value>,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let Some(pod) = pod.filter(|_| writes && attributes.is_resource("", "pods")) else { return Ok(()) };
        let way = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        for term in pod.list_at(&way) {
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

/// Services get no new external addresses.
#[derive(Debug)]
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let Some(service) = object.filter(|_| writes && attributes.is_resource("", "services")) else {
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

/// A pod that asks for an extended resource tolerates the taint of that name, which keeps others off such nodes.
#[derive(Debug)]
pub struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn mutate(
        &self,
        attributes: &Attributes<'_>,
        pod: &mut Value,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !writes || !attributes.is_resource("", "pods") {
            return Ok(());
        }
        let containers = pod.list_at(&["spec", "containers"]).iter();
        let asked: BTreeSet<String> = containers
            .chain(pod.list_at(&["spec", "initContainers"]))
            .filter_map(|container| container.at(&["resources", "requests"])?.as_map())
            .flat_map(|requests| requests.keys().map(ToString::to_string))
            .filter(|name| is_extended(name))
            .collect();
        for resource in asked {
            tolerate(pod, &resource);
        }
        Ok(())
    }
}

/// Whether a resource is one that somebody else than Kubernetes defines.
pub(crate) fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && api::names::is_qualified_name(&format!("requests.{name}")).is_empty()
}

fn tolerate(pod: &mut Value, resource: &str) {
    let toleration = Value::map([("effect", "NoSchedule"), ("key", resource), ("operator", "Exists")]);
    let Some(list) = pod.at_mut(&["spec", "tolerations"]).and_then(Value::as_list_mut) else {
        super::append(pod, &["spec", "tolerations"], toleration);
        return;
    };
    // One that says the same of the same taint is replaced: it may say for how long.
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

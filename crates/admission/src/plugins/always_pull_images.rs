//! AlwaysPullImages: makes nodes pull the images of pods every time. Off by default.

use std::collections::BTreeSet;

use api::{FieldError, Status};
use value::{Path, Value};

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

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

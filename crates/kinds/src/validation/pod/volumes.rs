//! Validation of pod volumes: unique names, and exactly one source each.

use std::collections::{HashMap, HashSet};

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names, quantity::Quantity};
use value::Value;

use super::mounts::Volumes;
use super::options::PodValidationOptions;
use super::{projected, volume_sources};

/// Arguments of a [`SourceRule`] besides the source of the volume.
pub(in crate::validation) struct Volume<'a> {
    name: &'a str,
    /// Name of the pod; empty for templates.
    pod: &'a str,
    pub(in crate::validation) options: &'a PodValidationOptions,
}

type SourceRule = fn(&Value, &Volume<'_>, &At<'_>, &mut FieldErrors);

/// All sources except `emptyDir`, in the order of checking: field, path for the error about a second source, path for
/// errors inside the source, rules. The paths are those of kube-apiserver, including its mistakes.
const SOURCES: &[(&str, &str, &str, SourceRule)] = &[
    ("hostPath", "hostPath", "hostPath", volume_sources::host_path),
    ("gitRepo", "gitRepo", "gitRepo", volume_sources::git_repo),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", volume_sources::gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", volume_sources::aws_disk),
    ("secret", "secret", "secret", volume_sources::secret),
    ("nfs", "nfs", "nfs", volume_sources::nfs),
    ("iscsi", "iscsi", "iscsi", volume_sources::iscsi),
    ("glusterfs", "glusterfs", "glusterfs", volume_sources::glusterfs),
    ("flocker", "flocker", "flocker", volume_sources::flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", volume_sources::claim),
    ("rbd", "rbd", "rbd", volume_sources::rbd),
    ("cinder", "cinder", "cinder", volume_sources::cinder),
    ("cephfs", "cephFS", "cephfs", volume_sources::ceph_fs),
    ("quobyte", "quobyte", "quobyte", volume_sources::quobyte),
    ("downwardAPI", "downwarAPI", "downwardAPI", volume_sources::downward_api),
    ("fc", "fc", "fc", volume_sources::fibre_channel),
    ("flexVolume", "flexVolume", "flexVolume", volume_sources::flex_volume),
    ("configMap", "configMap", "configMap", volume_sources::config_map),
    ("azureFile", "azureFile", "azureFile", volume_sources::azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", volume_sources::vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", volume_sources::photon_disk),
    ("portworxVolume", "portworxVolume", "portworxVolume", volume_sources::portworx),
    ("azureDisk", "azureDisk", "azureDisk", volume_sources::azure_disk),
    ("storageos", "storageos", "storageos", volume_sources::storage_os),
    ("projected", "projected", "projected", projected::projected),
    ("scaleIO", "scaleIO", "scaleIO", volume_sources::scale_io),
    ("csi", "csi", "csi", volume_sources::csi),
    ("ephemeral", "ephemeral", "ephemeral", volume_sources::ephemeral),
    ("image", "image", "image", volume_sources::image),
];

/// Validates the volumes of a pod. Returns those without errors, which containers may mount.
pub(in crate::validation) fn volumes<'a>(
    spec: &'a Value,
    pod: &str,
    at: &At<'_>,
    options: &PodValidationOptions,
    errors: &mut FieldErrors,
) -> Volumes<'a> {
    let at = at.field("volumes");
    let mut good: Volumes<'a> = HashMap::new();
    let all = spec.items("volumes");
    let ephemeral: HashSet<&str> = all
        .iter()
        .filter(|volume| volume.part("ephemeral").is_some())
        .map(|volume| volume.text("name"))
        .collect();
    for (i, volume) in all.iter().enumerate() {
        let at = at.index(i);
        let name = volume.text("name");
        let before = errors.len();
        source(volume, &Volume { name, pod, options }, &at, errors);
        let name_at = at.field("name");
        if name.is_empty() {
            errors.required(&name_at, "");
        } else {
            errors.invalid_each(&name_at, name, names::is_dns1123_label(name));
        }
        if good.contains_key(name) {
            errors.duplicate(&name_at, name);
        }
        if errors.len() == before {
            good.insert(name, volume);
        }
        if let Some(claim) = volume.part("persistentVolumeClaim") {
            let claim = claim.text("claimName");
            let made_for = claim.strip_prefix(pod).and_then(|rest| rest.strip_prefix('-'));
            if !pod.is_empty() && made_for.is_some_and(|volume| ephemeral.contains(volume)) {
                let detail = "must not reference a PVC that gets created for an ephemeral volume";
                errors.invalid(&at.field("persistentVolumeClaim.claimName"), claim, detail);
            }
        }
    }
    good
}

fn source(volume: &Value, facts: &Volume<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    if let Some(source) = volume.part("emptyDir") {
        found = true;
        let limit = source.text_if_set("sizeLimit").and_then(|text| Quantity::parse(text).ok());
        if limit.is_some_and(|limit| limit.sign() < 0) {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.forbidden(&at.field("emptyDir.sizeLimit"), detail);
        }
        if let Some(mode) = source.number_if_set("mode")
            && !(0..=0o1777).contains(&mode)
        {
            let detail = "must be a number between 0 and 01777 (octal), both inclusive";
            errors.invalid(&at.field("emptyDir.mode"), mode, detail);
        }
    }
    for (field, second_path, path, rule) in SOURCES {
        let Some(source) = volume.part(field) else { continue };
        if found {
            errors.forbidden(&at.field(second_path), "may not specify more than 1 volume type");
        } else {
            found = true;
            rule(source, facts, &at.field(path), errors);
        }
        if *field == "iscsi"
            && source.part("initiatorName").is_some()
            && facts.name.len() + 1 + source.text("targetPortal").len() > 64
        {
            let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
            errors.invalid(&at.field("name"), facts.name, detail);
        }
        if *field == "ephemeral" && !facts.pod.is_empty() && !facts.name.is_empty() {
            let claim = format!("{}-{}", facts.pod, facts.name);
            for message in names::name_is_dns_subdomain(&claim, false) {
                let detail = format!("PVC name {}: {message}", api::field::quote(&claim));
                errors.invalid(&at.field("name"), facts.name, detail);
            }
        }
    }
    if !found {
        errors.required(at, "must specify a volume type");
    }
}

/// Validates a source that persistent volumes share with pods.
pub(in crate::validation) fn shared_source(
    field: &str,
    source: &Value,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let facts = Volume { name: "", pod: "", options: &PodValidationOptions::default() };
    if let Some((_, _, path, rule)) = SOURCES.iter().find(|(name, ..)| *name == field) {
        rule(source, &facts, &at.field(path), errors);
    }
}

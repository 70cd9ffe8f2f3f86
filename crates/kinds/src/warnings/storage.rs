//! Warnings about volumes, claims and storage classes.

use api::meta::STORAGE_CLASS;
use api::validation::fields::{At, Read, same};
use value::Value;

use super::{deprecated_annotation, deprecated_label, fractional, label_selector, node_selector_term};

pub(crate) fn persistent_volume_claim(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    deprecated_annotation(new, STORAGE_CLASS, STORAGE_CLASS_WORDS, warnings);
    claim_spec(&At::new("spec"), new.part("spec"), warnings);
}

pub(crate) fn csi_storage_capacity(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    label_selector(&At::new("nodeTopology"), new.part("nodeTopology"), warnings);
}

const STORAGE_CLASS_WORDS: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;

pub(crate) fn persistent_volume(volume: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    deprecated_annotation(volume, STORAGE_CLASS, STORAGE_CLASS_WORDS, warnings);
    let mount_options = r#"deprecated since v1.31; use "mountOptions" attribute instead"#;
    deprecated_annotation(volume, "volume.beta.kubernetes.io/mount-options", mount_options, warnings);
    let spec = volume.part("spec");
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let at = At::new("spec.nodeAffinity.required.nodeSelectorTerms");
    let terms = spec.part("nodeAffinity").part("required");
    for (i, term) in terms.items("nodeSelectorTerms").iter().enumerate() {
        node_selector_term(&at.index(i), Some(term), false, warnings);
    }
    let plugins = [
        ("cephfs", "cephfs", "v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "v1.28, non-functional in v1.31+"),
    ];
    for (field, shown, since) in plugins {
        if spec.part(field).is_some() {
            warnings.push(format!("spec.{shown}: deprecated in {since}"));
        }
    }
}

pub(super) fn claim_spec(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    for field in ["requests", "limits"] {
        let resources = at.field("resources");
        let here = resources.field(field);
        fractional(&here, spec.part("resources").part(field), "storage", warnings);
    }
}

pub(crate) fn csi_driver(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let spec = new.part("spec");
    let changed =
        old.is_none_or(|old| !same(old.part("spec").part("tokenRequests"), spec.part("tokenRequests")));
    let asks = !spec.items("tokenRequests").is_empty();
    if changed && asks && spec.part("serviceAccountTokenInSecrets").is_none() {
        warnings.push(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
             possible logging of tokens in volume attributes"
                .to_owned(),
        );
    }
}

pub(crate) fn storage_class(class: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    let topologies = At::new("allowedTopologies");
    for (i, topology) in class.items("allowedTopologies").iter().enumerate() {
        let here = topologies.index(i);
        let list = here.field("matchLabelExpressions");
        for (j, expression) in topology.items("matchLabelExpressions").iter().enumerate() {
            if let Some(words) = deprecated_label(expression.text("key")) {
                warnings.push(format!("{}: {words}", list.index(j).field("key")));
            }
        }
    }
}

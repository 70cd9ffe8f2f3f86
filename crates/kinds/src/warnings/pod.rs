//! Warnings about pods and pod templates.

use std::collections::{HashMap, HashSet};

use api::labels::APP_ARMOR_PREFIX;
use api::validation::fields::{At, Read, same};
use value::Value;

use super::storage::claim_spec;
use super::{deprecated_label, fractional, node_selector_term};
use crate::pod_containers::visit_containers;
use crate::strategy::{app_armor_profile, deprecated_app_armor_annotations};

pub(super) fn pod(pod: &Value, warnings: &mut Vec<String>) {
    // The last container comes first.
    let deprecated = deprecated_app_armor_annotations(pod).into_iter().rev().map(|key| {
        format!(
            "metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        )
    });
    warnings.splice(..0, deprecated);
    spec_and_metadata(&At::ROOT, Some(pod), false, warnings);
}

pub(super) fn template(at: &At<'_>, template: Option<&Value>, warnings: &mut Vec<String>) {
    if template.is_some() {
        spec_and_metadata(at, template, true, warnings);
    }
}

/// Annotations that no longer have any effect.
const DEPRECATED: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];

fn spec_and_metadata(at: &At<'_>, pod: Option<&Value>, is_template: bool, warnings: &mut Vec<String>) {
    let spec = pod.part("spec");
    let annotations = pod.part("metadata").part("annotations");
    let spec_at = at.field("spec");
    let annotations_at = at.field("metadata.annotations");

    scheduling(&spec_at, spec, warnings);
    for (key, words) in DEPRECATED {
        if annotations.part(key).is_some() {
            warnings.push(format!("{}: {words}", annotations_at.key(key)));
        }
    }
    volumes(&spec_at, spec, warnings);
    for (i, path) in duplicates(spec.items("hostAliases"), "ip") {
        let list = spec_at.field("hostAliases");
        warnings.push(format!("{}: duplicate ip {}", list.index(i).field("ip"), api::field::quote(path)));
    }
    pull_secrets(&spec_at.field("imagePullSecrets"), spec, warnings);
    for resource in ["memory", "ephemeral-storage"] {
        fractional(&spec_at.field("overhead"), spec.part("overhead"), resource, warnings);
    }
    let security = SecurityAnnotations {
        annotations,
        at: &annotations_at,
        pod_context: spec.part("securityContext"),
        is_template,
    };
    security.of_pod(warnings);
    visit_containers(spec, &spec_at, |container, here| {
        security.of_container(container, warnings);
        let resources = container.part("resources");
        for resource in ["memory", "ephemeral-storage"] {
            for field in ["limits", "requests"] {
                let list = here.field("resources");
                fractional(&list.field(field), resources.part(field), resource, warnings);
            }
        }
        environment(container, here, warnings);
    });
    ports(&spec_at, spec, warnings);
    if spec.number("terminationGracePeriodSeconds") < 0 {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            spec_at.field("terminationGracePeriodSeconds")
        ));
    }
    pod_affinities(&spec_at.field("affinity"), spec.part("affinity"), warnings);
    for (i, server) in spec.part("dnsConfig").texts("nameservers").enumerate() {
        let list = spec_at.field("dnsConfig.nameservers");
        warnings.extend(api::names::ip_warning(&list.index(i).to_string(), server));
    }
    for (i, alias) in spec.items("hostAliases").iter().enumerate() {
        let list = spec_at.field("hostAliases");
        warnings.extend(api::names::ip_warning(&list.index(i).field("ip").to_string(), alias.text("ip")));
    }
}

fn pull_secrets(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    let secrets = spec.items("imagePullSecrets");
    for (i, name) in duplicates(secrets, "name") {
        warnings.push(format!("{}: duplicate name {}", at.index(i).field("name"), api::field::quote(name)));
    }
    for (i, secret) in secrets.iter().enumerate() {
        if secret.text("name").is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", at.index(i).field("name")));
        }
    }
}

/// Annotations that fields of the security context replaced.
struct SecurityAnnotations<'a> {
    annotations: Option<&'a Value>,
    at: &'a At<'a>,
    pod_context: Option<&'a Value>,
    /// False for pods, whose AppArmor annotations [`pod`] reports.
    is_template: bool,
}

impl SecurityAnnotations<'_> {
    const SECCOMP: &'static str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;

    fn of_pod(&self, warnings: &mut Vec<String>) {
        let key = "seccomp.security.alpha.kubernetes.io/pod";
        if self.pod_context.part("seccompProfile").is_none() && self.annotations.part(key).is_some() {
            warnings.push(format!("{}: {}", self.at.key(key), Self::SECCOMP));
        }
    }

    fn of_container(&self, container: &Value, warnings: &mut Vec<String>) {
        let context = container.part("securityContext");
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{}", container.text("name"));
        if context.part("seccompProfile").is_none() && self.annotations.part(&key).is_some() {
            warnings.push(format!("{}: {}", self.at.key(&key), Self::SECCOMP));
        }
        let pod_profile = self.pod_context.part("appArmorProfile");
        let key = format!("{APP_ARMOR_PREFIX}{}", container.text("name"));
        if self.is_template
            && context.part("appArmorProfile").is_none()
            && let Some(annotation) = self.annotations.text_if_set(&key)
            && (pod_profile.is_none() || !same(pod_profile, app_armor_profile(annotation).as_ref()))
        {
            warnings.push(format!(
                "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
                self.at.key(&key)
            ));
        }
    }
}

/// Warns about pod affinity and anti-affinity terms without a label selector.
fn pod_affinities(at: &At<'_>, affinity: Option<&Value>, warnings: &mut Vec<String>) {
    for field in ["podAffinity", "podAntiAffinity"] {
        let terms = affinity.part(field);
        let here = at.field(field);
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in terms.items(required).iter().enumerate() {
            null_selector(&here.field(required).index(i), Some(term), warnings);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (i, term) in terms.items(preferred).iter().enumerate() {
            let list = here.field(preferred);
            let weighted = list.index(i);
            null_selector(&weighted.field("podAffinityTerm"), term.part("podAffinityTerm"), warnings);
        }
    }
}

/// Indexes and values of items whose `field` equals that of an earlier item.
fn duplicates<'a>(items: &'a [Value], field: &str) -> Vec<(usize, &'a str)> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut found = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let text = item.text(field);
        if !seen.insert(text) {
            found.push((i, text));
        }
    }
    found
}

fn null_selector(at: &At<'_>, term: Option<&Value>, warnings: &mut Vec<String>) {
    if term.part("labelSelector").is_none() {
        warnings
            .push(format!("{}: a null labelSelector results in matching no pod", at.field("labelSelector")));
    }
}

fn scheduling(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    for (label, _) in spec.entries("nodeSelector") {
        if let Some(words) = deprecated_label(label) {
            warnings.push(format!("{}: {words}", at.field("nodeSelector").key(label)));
        }
    }
    let affinity = spec.part("affinity").part("nodeAffinity");
    let node = at.field("affinity.nodeAffinity");
    let required = affinity.part("requiredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in required.items("nodeSelectorTerms").iter().enumerate() {
        let terms = node.field("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
        node_selector_term(&terms.index(i), Some(term), false, warnings);
    }
    for (i, term) in affinity.items("preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
        let terms = node.field("preferredDuringSchedulingIgnoredDuringExecution");
        let here = terms.index(i);
        node_selector_term(&here.field("preference"), term.part("preference"), true, warnings);
    }
    for (i, constraint) in spec.items("topologySpreadConstraints").iter().enumerate() {
        let list = at.field("topologySpreadConstraints");
        let here = list.index(i);
        let key = constraint.text("topologyKey");
        if let Some(words) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {words}", here.field("topologyKey")));
        }
        null_selector(&here, Some(constraint), warnings);
    }
}

fn volumes(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    const PLUGINS: [(&str, &str, &str); 9] = [
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let list = at.field("volumes");
    for (i, volume) in spec.items("volumes").iter().enumerate() {
        let here = list.index(i);
        for (field, with_source, words) in PLUGINS {
            // kube-apiserver checks the claim of an ephemeral volume at this point of the order.
            if field == "cephfs"
                && let Some(claim) = volume.part("ephemeral").part("volumeClaimTemplate")
            {
                claim_spec(&here.field("ephemeral.volumeClaimTemplate.spec"), claim.part("spec"), warnings);
            }
            if volume.part(field).is_some() {
                warnings.push(format!("{}: {words}", here.field(with_source)));
            }
        }
    }
    overlaps(spec, warnings);
}

/// A path in a volume and the source that creates it.
type VolumePathSource = (String, String);

fn with_source(source: &VolumePathSource) -> String {
    let path = api::field::quote(&source.0);
    if source.1.is_empty() { path } else { format!("{path} ({})", source.1) }
}

/// Maximum number of paths of one volume that are compared; all pairs of 100,000 would take minutes.
const MAX_COMPARED: usize = 1000;

/// Pairs of paths where one contains or equals the other, in order of appearance.
fn overlapping(paths: Vec<VolumePathSource>) -> Vec<String> {
    let inside =
        |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let mut earlier: Vec<VolumePathSource> = Vec::new();
    let mut found = Vec::new();
    for (path, source) in paths.into_iter().take(MAX_COMPARED) {
        let path = path.trim_end_matches('/').to_owned();
        let this = (path, source);
        for other in &earlier {
            if !this.0.is_empty()
                && !other.0.is_empty()
                && (inside(&other.0, &this.0) || inside(&this.0, &other.0))
            {
                found.push(format!("{} with {}", with_source(&this), with_source(other)));
            }
        }
        earlier.push(this);
    }
    found
}

fn paths(source: Option<&Value>, words: &str) -> Vec<VolumePathSource> {
    source.items("items").iter().map(|item| (item.text("path").to_owned(), words.to_owned())).collect()
}

fn overlaps(spec: Option<&Value>, warnings: &mut Vec<String>) {
    use api::field::quote;
    for volume in spec.items("volumes") {
        let name = quote(volume.text("name"));
        let mut warn = |what: &str, found: Vec<String>| {
            for body in found {
                warnings.push(format!("volume {name} ({what}): overlapping paths: {body}"));
            }
        };
        if let Some(map) = volume.part("configMap") {
            warn(&format!("ConfigMap {}", quote(map.text("name"))), overlapping(paths(Some(map), "")));
        }
        if let Some(secret) = volume.part("secret") {
            warn(
                &format!("Secret {}", quote(secret.text("secretName"))),
                overlapping(paths(Some(secret), "")),
            );
        }
        if let Some(api) = volume.part("downwardAPI") {
            warn("DownwardAPI", overlapping(paths(Some(api), "")));
        }
        let Some(projected) = volume.part("projected") else { continue };
        let mut all = Vec::new();
        for source in projected.items("sources") {
            if source.as_map().is_some_and(value::Map::is_empty) {
                warnings.push(format!("volume {name} (Projected) has no sources provided"));
                continue;
            }
            all.extend(projected_paths(source));
        }
        for body in overlapping(all) {
            warnings.push(format!("volume {name} (Projected): overlapping paths: {body}"));
        }
    }
}

fn projected_paths(source: &Value) -> Vec<VolumePathSource> {
    use api::field::quote;
    if let Some(map) = source.part("configMap")
        && map.part("items").is_some()
    {
        return paths(Some(map), &format!("ConfigMap {}", quote(map.text("name"))));
    }
    if let Some(secret) = source.part("secret")
        && secret.part("items").is_some()
    {
        return paths(Some(secret), &format!("Secret {}", quote(secret.text("name"))));
    }
    if let Some(api) = source.part("downwardAPI")
        && api.part("items").is_some()
    {
        return paths(Some(api), "DownwardAPI");
    }
    if let Some(token) = source.part("serviceAccountToken") {
        return vec![(token.text("path").to_owned(), "ServiceAccountToken".to_owned())];
    }
    if let Some(bundle) = source.part("clusterTrustBundle") {
        let name = bundle.text_if_set("name").unwrap_or_else(|| bundle.text("signerName"));
        return vec![(bundle.text("path").to_owned(), format!("ClusterTrustBundle {}", quote(name)))];
    }
    if let Some(certificate) = source.part("podCertificate") {
        let parts = [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ];
        return parts
            .iter()
            .filter(|(field, _)| !certificate.text(field).is_empty())
            .map(|(field, words)| (certificate.text(field).to_owned(), (*words).to_owned()))
            .collect();
    }
    Vec::new()
}

fn environment(container: &Value, at: &At<'_>, warnings: &mut Vec<String>) {
    let mut names: HashSet<&str> = HashSet::new();
    for (i, variable) in container.items("env").iter().enumerate() {
        let name = variable.text("name");
        if names.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        let value = variable.text("value");
        // A variable that refers to the earlier one of the same name extends it on purpose.
        let builds = variable.part("valueFrom").is_none() && value != reference && value.contains(&reference);
        if !builds {
            let list = at.field("env");
            warnings.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                list.index(i),
                api::field::quote(name)
            ));
        }
    }
}

/// Limits for comparing ports of one number and protocol: how many earlier ports each port is compared with, and how many
/// warnings are collected. A response carries far fewer, and comparing all pairs of 60,000 ports would take minutes.
const MAX_SAME_PORTS: usize = 1000;
const MAX_PORT_WARNINGS: usize = 5000;

/// Host IP, host port and field path of a container port.
type HostPort = (String, i64, String);

fn ports(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    // Ports by number and protocol.
    let mut seen: HashMap<(i64, String), Vec<HostPort>> = HashMap::new();
    visit_containers(spec, at, |container, here| {
        let list = here.field("ports");
        for (i, port) in container.items("ports").iter().enumerate() {
            let path = list.index(i).to_string();
            let (host_ip, host_port) = (port.text("hostIP"), port.number("hostPort"));
            let (number, protocol) = (port.number("containerPort"), port.text("protocol"));
            if !host_ip.is_empty() && host_port == 0 {
                warnings.push(format!(
                    "{path}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}",
                    port.text("name")
                ));
            }
            let same = seen.entry((number, protocol.to_owned())).or_default();
            for (other_ip, other_port, other) in same.iter() {
                if warnings.len() > MAX_PORT_WARNINGS {
                    break;
                }
                if host_ip == other_ip && host_port == *other_port {
                    warnings.push(format!("{path}: duplicate port definition with {other}"));
                } else if host_port == 0 || *other_port == 0 {
                    warnings.push(format!("{path}: overlapping port definition with {other}"));
                } else if host_port == *other_port && (host_ip.is_empty() != other_ip.is_empty()) {
                    warnings.push(format!("{path}: dangerously ambiguous port definition with {other}"));
                }
            }
            if same.len() < MAX_SAME_PORTS {
                same.push((host_ip.to_owned(), host_port, path));
            }
        }
    });
    let mut names: HashMap<String, String> = HashMap::new();
    visit_containers(spec, at, |container, here| {
        let list = here.field("ports");
        for (i, port) in container.items("ports").iter().enumerate() {
            let name = port.text("name");
            if name.is_empty() {
                continue;
            }
            let path = list.index(i).to_string();
            match names.get(name) {
                Some(other) => warnings.push(format!(
                    "{path}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                    api::field::quote(name)
                )),
                None => drop(names.insert(name.to_owned(), path)),
            }
        }
    });
}

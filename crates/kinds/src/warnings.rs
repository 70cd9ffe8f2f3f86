//! Warnings about accepted objects. The kinds' rows name these functions.

mod key_pair;
mod pod;

use api::names::{cidr_warnings, ip_warning, is_dns1123_label};
use api::quantity::Quantity;
use value::Value;

use api::validation::fields::{At, Read, same};

/// Adds the warnings for creating `new` (no `old`) or for updating `old` to `new`.
pub type WriteWarnings = fn(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>);

/// Adds the warnings for a `status` update that results in `new`.
pub type StatusWarnings = fn(new: &Value, warnings: &mut Vec<String>);

pub(crate) fn load_balancer_status(new: &Value, warnings: &mut Vec<String>) {
    let at = At::new("status.loadBalancer.ingress");
    for (i, ingress) in new.list_at(&["status", "loadBalancer", "ingress"]).iter().enumerate() {
        warnings.extend(ip_warning(&at.index(i).to_string(), ingress.text("ip")));
    }
}

pub(crate) fn pod_status(new: &Value, warnings: &mut Vec<String>) {
    for field in ["podIPs", "hostIPs"] {
        let list = format!("status.{field}");
        let at = At::new(&list);
        for (i, address) in new.list_at(&["status", field]).iter().enumerate() {
            warnings.extend(ip_warning(&at.index(i).field("ip").to_string(), address.text("ip")));
        }
    }
}

pub(crate) fn persistent_volume_claim(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    deprecated_annotation(new, BETA_STORAGE_CLASS, STORAGE_CLASS_WORDS, warnings);
    claim_spec(&At::new("spec"), new.part("spec"), warnings);
}

pub(crate) fn pod(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if old.is_none() {
        recommend_label(new, "the Pod's hostname", warnings);
        pod::pod(new, warnings);
    }
}

pub(crate) fn pod_template(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if grew(new, old) {
        pod::template(&At::new("template"), new.part("template"), warnings);
    }
}

fn workload(new: &Value, old: Option<&Value>, looked_at: &Value, warnings: &mut Vec<String>) {
    workload_name(new, old, warnings);
    if grew(new, old) {
        pod::template(&At::new("spec.template"), looked_at.at(&["spec", "template"]), warnings);
    }
}

pub(crate) fn replication_controller(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    // On an update kube-apiserver checks the old template of a replication controller.
    workload(new, old, old.unwrap_or(new), warnings);
}

pub(crate) fn deployment(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload(new, old, new, warnings);
}

pub(crate) fn replica_set(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload(new, old, new, warnings);
}

pub(crate) fn resource_quota(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if old.is_none() {
        quota(new, warnings);
    }
}

pub(crate) fn secret(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    if new.str_at(&["type"]) == Some("kubernetes.io/tls") {
        warnings.extend(key_pair::problem(new));
    }
}

pub(crate) fn mutating_admission_policy(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    admission("MutatingAdmissionPolicy", new, warnings);
}

pub(crate) fn mutating_admission_policy_binding(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    admission("MutatingAdmissionPolicyBinding", new, warnings);
}

pub(crate) fn mutating_webhook_configuration(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    admission("MutatingWebhookConfiguration", new, warnings);
}

pub(crate) fn validating_admission_policy(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    admission("ValidatingAdmissionPolicy", new, warnings);
}

pub(crate) fn validating_admission_policy_binding(
    new: &Value,
    _: Option<&Value>,
    warnings: &mut Vec<String>,
) {
    admission("ValidatingAdmissionPolicyBinding", new, warnings);
}

pub(crate) fn validating_webhook_configuration(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    admission("ValidatingWebhookConfiguration", new, warnings);
}

pub(crate) fn custom_resource_definition(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    warnings.extend(crd::validation::warnings(new, old));
}

pub(crate) fn daemon_set(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let template = |set: &Value| set.at(&["spec", "template"]).cloned();
    if old.is_none_or(|old| !same(template(old).as_ref(), template(new).as_ref())) {
        pod::template(&At::new("spec.template"), new.at(&["spec", "template"]), warnings);
    }
}

pub(crate) fn job(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload_name(new, old, warnings);
    if grew(new, old) {
        job_spec(&At::new("spec"), new.part("spec"), warnings);
    }
}

pub(crate) fn ingress(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    if old.is_none()
        && new.at(&["metadata", "annotations", CLASS]).is_some()
        && new.at(&["spec", "ingressClassName"]).is_none()
    {
        warnings.push(format!(
            "annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
}

pub(crate) fn runtime_class(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    for (label, _) in new.part("scheduling").entries("nodeSelector") {
        warnings.extend(deprecated_label(label).map(|words| format!("scheduling.nodeSelector: {words}")));
    }
}

pub(crate) fn resource_slice(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    let driver = new.part("spec").text("driver");
    if driver.chars().any(char::is_uppercase) {
        warnings.push(format!(
            "spec.driver: driver names should be lowercase; {} contains uppercase characters",
            api::field::quote(driver)
        ));
    }
}

pub(crate) fn csi_storage_capacity(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    label_selector(&At::new("nodeTopology"), new.part("nodeTopology"), warnings);
}

const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const STORAGE_CLASS_WORDS: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;
const STATIC_SUFFIX: &str = crate::validation::admissionregistration::STATIC_SUFFIX;

fn grew(new: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| {
        old.at(&["metadata"]).number("generation") != new.at(&["metadata"]).number("generation")
    })
}

fn workload_name(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if old.is_none() {
        recommend_label(new, "Pod names and hostnames", warnings);
    }
}

fn recommend_label(object: &Value, where_used: &str, warnings: &mut Vec<String>) {
    let errors = is_dns1123_label(api::meta::name(object));
    if !errors.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in {where_used}, which can result in surprising behavior; a DNS label is \
             recommended: [{}]",
            errors.join(" ")
        ));
    }
}

fn deprecated_annotation(object: &Value, key: &str, words: &str, warnings: &mut Vec<String>) {
    if object.at(&["metadata", "annotations", key]).is_some() {
        warnings.push(format!("metadata.annotations[{key}]: {words}"));
    }
}

/// Returns the deprecation message of a node label, if it is deprecated.
fn deprecated_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "beta.kubernetes.io/arch" => r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#,
        "beta.kubernetes.io/os" => r#"deprecated since v1.14; use "kubernetes.io/os" instead"#,
        "failure-domain.beta.kubernetes.io/region" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#
        }
        "beta.kubernetes.io/instance-type" => {
            r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => r#"use "node-role.kubernetes.io/control-plane" instead"#,
        _ => return None,
    })
}

/// Warns about a node selector term. `check_values` is for preferred terms, whose malformed values validation accepts.
fn node_selector_term(at: &At<'_>, term: Option<&Value>, check_values: bool, warnings: &mut Vec<String>) {
    let expressions = at.field("matchExpressions");
    for (i, expression) in term.items("matchExpressions").iter().enumerate() {
        let here = expressions.index(i);
        let key = expression.text("key");
        if let Some(words) = deprecated_label(key) {
            warnings.push(format!("{}: {key} is {words}", here.field("key")));
        }
        if check_values {
            for (j, value) in expression.texts("values").enumerate() {
                for error in api::names::is_valid_label_value(value) {
                    warnings.push(format!("{}: {value} is invalid, {error}", here.field("values").index(j)));
                }
            }
        }
    }
}

fn label_selector(at: &At<'_>, selector: Option<&Value>, warnings: &mut Vec<String>) {
    node_selector_term(at, selector, false, warnings);
    for (label, _) in selector.entries("matchLabels") {
        if let Some(words) = deprecated_label(label) {
            warnings.push(format!("{}: {words}", at.field("matchLabels").field(label)));
        }
    }
}

pub(crate) fn endpoints(endpoints: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    if api::meta::labels(endpoints)
        .any(|label| label == ("endpoints.kubernetes.io/managed-by", "endpoint-controller"))
    {
        return;
    }
    let subsets = At::new("subsets");
    for (i, subset) in endpoints.items("subsets").iter().enumerate() {
        let here = subsets.index(i);
        for field in ["addresses", "notReadyAddresses"] {
            let list = here.field(field);
            for (j, address) in subset.items(field).iter().enumerate() {
                warnings.extend(ip_warning(&list.index(j).field("ip").to_string(), address.text("ip")));
            }
        }
    }
}

pub(crate) fn endpoint_slice(slice: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if old.is_none() && slice.text("addressType") == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
    let manager =
        slice.at(&["metadata", "labels", "endpointslice.kubernetes.io/managed-by"]).and_then(Value::as_str);
    if matches!(manager, Some("endpointslice-controller.k8s.io" | "endpointslicemirroring-controller.k8s.io"))
    {
        return;
    }
    let endpoints = At::new("endpoints");
    for (i, endpoint) in slice.items("endpoints").iter().enumerate() {
        let here = endpoints.index(i);
        let list = here.field("addresses");
        for (j, address) in endpoint.texts("addresses").enumerate() {
            warnings.extend(ip_warning(&list.index(j).to_string(), address));
        }
    }
}

pub(crate) fn node(node: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    let spec = node.part("spec");
    if spec.part("configSource").is_some() {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if !spec.text("externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    let at = At::new("spec.podCIDRs");
    for (i, cidr) in spec.texts("podCIDRs").enumerate() {
        warnings.extend(cidr_warnings(&at.index(i).to_string(), cidr));
    }
}

pub(crate) fn persistent_volume(volume: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    deprecated_annotation(volume, BETA_STORAGE_CLASS, STORAGE_CLASS_WORDS, warnings);
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

fn claim_spec(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    for field in ["requests", "limits"] {
        let resources = at.field("resources");
        let here = resources.field(field);
        fractional(&here, spec.part("resources").part(field), "storage", warnings);
    }
}

/// Warns about a quantity of bytes that is not an integer.
fn fractional(at: &At<'_>, list: Option<&Value>, resource: &str, warnings: &mut Vec<String>) {
    let Some(text) = list.text_if_set(resource) else { return };
    let Ok(amount) = Quantity::parse(text) else { return };
    if amount.milli_value() % 1000 != 0 {
        warnings.push(format!(
            "{}: fractional byte value {} is invalid, must be an integer",
            at.key(resource),
            api::field::quote(&amount.to_string())
        ));
    }
}

fn quota(quota: &Value, warnings: &mut Vec<String>) {
    let hard = quota.part("spec").part("hard");
    let amount = |name: &str| Quantity::parse(hard.text_if_set(name)?).ok();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let mut name = format!("requests.{resource}");
        let mut request = amount(&name);
        if request.is_none() && matches!(resource, "cpu" | "memory") {
            resource.clone_into(&mut name);
            request = amount(resource);
        }
        let limit = format!("limits.{resource}");
        if let (Some(request), Some(most)) = (request, amount(&limit))
            && request > most
        {
            warnings.push(format!("ResourceQuota {name} ({request}) should be less than {limit} ({most})"));
        }
    }
}

pub(crate) fn service(service: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    let spec = service.part("spec");
    let hints = "service.kubernetes.io/topology-aware-hints";
    if service.at(&["metadata", "annotations", hints]).is_some() {
        warnings.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let kind = spec.text("type");
    let headless = kind == "ClusterIP" && spec.text("clusterIP") == "None";
    if !matches!(spec.text("clusterIP"), "" | "None") {
        let at = At::new("spec.clusterIPs");
        for (i, address) in spec.texts("clusterIPs").enumerate() {
            warnings.extend(ip_warning(&at.index(i).to_string(), address));
        }
    }
    let external = spec.items("externalIPs");
    if headless {
        if !spec.text("loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !external.is_empty() {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec.text("sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    let at = At::new("spec.externalIPs");
    for (i, address) in spec.texts("externalIPs").enumerate() {
        warnings.extend(ip_warning(&at.index(i).to_string(), address));
    }
    if !external.is_empty() && !headless && kind != "ExternalName" {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    warnings.extend(ip_warning("spec.loadBalancerIP", spec.text("loadBalancerIP")));
    let at = At::new("spec.loadBalancerSourceRanges");
    for (i, cidr) in spec.texts("loadBalancerSourceRanges").enumerate() {
        warnings.extend(cidr_warnings(&at.index(i).to_string(), cidr));
    }
    if kind == "ExternalName" && !external.is_empty() {
        warnings.push(r#"spec.externalIPs is ignored when spec.type is "ExternalName""#.to_owned());
    }
    if kind != "ExternalName" && !spec.text("externalName").is_empty() {
        warnings.push(r#"spec.externalName is ignored when spec.type is not "ExternalName""#.to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        warnings.push(
            r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#.to_owned(),
        );
    }
}

pub(crate) fn service_account(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let key = "kubernetes.io/enforce-mountable-secrets";
    if old.is_some_and(|old| old.at(&["metadata", "annotations", key]).is_some()) {
        return;
    }
    let words = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
    deprecated_annotation(new, key, words, warnings);
}

/// Resources for which admission webhooks are never called.
const NOT_INTERCEPTED: &[(&str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

fn admission(kind: &str, new: &Value, warnings: &mut Vec<String>) {
    // Validation rejects these names where they are reserved; elsewhere they cause this warning.
    if api::meta::name(new).ends_with(STATIC_SUFFIX) {
        warnings.push(format!(
            "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based \
             configurations and cannot be managed via the API"
        ));
    }
    if !matches!(kind, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") {
        return;
    }
    let webhooks = At::new("webhooks");
    for (i, webhook) in new.items("webhooks").iter().enumerate() {
        let here = webhooks.index(i);
        let rules = here.field("rules");
        for (j, rule) in webhook.items("rules").iter().enumerate() {
            if rule.texts("apiGroups").chain(rule.texts("resources")).any(|name| name == "*") {
                continue;
            }
            let mut named: Vec<(&str, &str)> = Vec::new();
            for group in rule.texts("apiGroups") {
                for resource in rule.texts("resources") {
                    let pair = (group, resource);
                    if NOT_INTERCEPTED.contains(&pair) && !named.contains(&pair) {
                        named.push(pair);
                        warnings.push(format!(
                            "{}: {resource}.{group} is excluded from admission webhooks; this rule will have no effect",
                            rules.index(j)
                        ));
                    }
                }
            }
        }
    }
}

pub(crate) fn stateful_set(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if grew(new, old) {
        pod::template(&At::new("spec.template"), new.at(&["spec", "template"]), warnings);
    }
    let templates = At::new("spec.volumeClaimTemplates");
    for (i, claim) in new.list_at(&["spec", "volumeClaimTemplates"]).iter().enumerate() {
        let here = templates.index(i);
        // On an update kube-apiserver's path contains `Spec` with a capital S.
        let at = if old.is_some() { here.field("Spec") } else { here };
        claim_spec(&at, claim.part("spec"), warnings);
    }
    if new.at(&["spec"]).number("revisionHistoryLimit") < 0 {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
}

pub(crate) fn cron_job(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    workload_name(new, old, warnings);
    if grew(new, old) {
        job_spec(&At::new("spec.jobTemplate.spec"), new.at(&["spec", "jobTemplate", "spec"]), warnings);
    }
    if old.is_some() && new.part("spec").text("schedule").contains("TZ") {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .to_owned(),
        );
    }
}

fn job_spec(at: &At<'_>, spec: Option<&Value>, warnings: &mut Vec<String>) {
    let many = spec.number("completions") > 100_000 && spec.number("parallelism") > 10_000;
    if spec.text("completionMode") == "Indexed" && many {
        warnings.push(format!(
            "{at}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pod::template(&at.field("template"), spec.part("template"), warnings);
}

pub(crate) fn network_policy(policy: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = format!("spec.{direction}");
        let rules = At::new(&rules);
        for (i, rule) in policy.list_at(&["spec", direction]).iter().enumerate() {
            let rule_at = rules.index(i);
            let list = rule_at.field(peers);
            for (j, peer) in rule.items(peers).iter().enumerate() {
                let Some(block) = peer.part("ipBlock") else { continue };
                let peer_at = list.index(j);
                let here = peer_at.field("ipBlock");
                warnings.extend(cidr_warnings(&here.field("cidr").to_string(), block.text("cidr")));
                for (k, except) in block.texts("except").enumerate() {
                    warnings.extend(cidr_warnings(&here.field("except").index(k).to_string(), except));
                }
            }
        }
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

#[cfg(test)]
mod tests;

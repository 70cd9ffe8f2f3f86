//! Warnings about services, endpoints and other objects with IP addresses or CIDRs.

use api::names::{cidr_warnings, ip_warning};
use api::validation::fields::{At, Read};
use value::Value;

pub(crate) fn load_balancer_status(new: &Value, warnings: &mut Vec<String>) {
    let ingress = new.list_at(&["status", "loadBalancer", "ingress"]).iter();
    ip_list(ingress.map(|ingress| ingress.text("ip")), &At::new("status.loadBalancer.ingress"), warnings);
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
        ip_list(endpoint.texts("addresses"), &here.field("addresses"), warnings);
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
    cidr_list(spec.texts("podCIDRs"), &At::new("spec.podCIDRs"), warnings);
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
        ip_list(spec.texts("clusterIPs"), &At::new("spec.clusterIPs"), warnings);
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
    ip_list(spec.texts("externalIPs"), &At::new("spec.externalIPs"), warnings);
    if !external.is_empty() && !headless && kind != "ExternalName" {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    warnings.extend(ip_warning("spec.loadBalancerIP", spec.text("loadBalancerIP")));
    let at = At::new("spec.loadBalancerSourceRanges");
    cidr_list(spec.texts("loadBalancerSourceRanges"), &at, warnings);
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
                cidr_list(block.texts("except"), &here.field("except"), warnings);
            }
        }
    }
}

/// Warns about malformed addresses in the list at `at`.
fn ip_list<'a>(addresses: impl Iterator<Item = &'a str>, at: &At<'_>, warnings: &mut Vec<String>) {
    for (i, address) in addresses.enumerate() {
        warnings.extend(ip_warning(&at.index(i).to_string(), address));
    }
}

/// Warns about malformed CIDRs in the list at `at`.
fn cidr_list<'a>(cidrs: impl Iterator<Item = &'a str>, at: &At<'_>, warnings: &mut Vec<String>) {
    for (i, cidr) in cidrs.enumerate() {
        warnings.extend(cidr_warnings(&at.index(i).to_string(), cidr));
    }
}

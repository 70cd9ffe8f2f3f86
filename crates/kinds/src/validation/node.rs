//! Validation of Node, its taints and legacy annotations.

use std::net::IpAddr;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::validation::repeated::Repeated;
use value::Value;

use super::quota::resource_amounts;
use super::{TextRule, ValidationContext, ValidationRules, internal_json, required_name};

pub(crate) const NODE: ValidationRules = ValidationRules {
    create: |node, _| create(node),
    update: |new, old, context| {
        let mut errors = create(new);
        errors.extend(update(new, old, context));
        errors
    },
    update_status: update,
};

const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOID_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";
const MAX_FEATURE_NAME: usize = 253;

fn create(node: &Value) -> FieldErrors {
    let mut errors = meta::create(node, false, names::name_is_dns_subdomain);
    annotations(node, &mut errors);
    let (spec, status) = (node.part("spec"), node.part("status"));
    taints(spec.items("taints"), &At::new("metadata.taints"), &mut errors);
    resources(status, &mut errors);
    let swap = status.part("nodeInfo").part("swap");
    if let Some(capacity) = swap.number_if_set("capacity")
        && capacity <= 0
    {
        errors.invalid(&At::new("metadata.nodeSwapStatus.capacity"), capacity, "must be greater than zero");
    }
    declared_features(status, &mut errors);
    pod_cidrs(spec, &mut errors);
    errors
}

fn update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    annotations(new, &mut errors);
    let (spec, status) = (new.part("spec"), new.part("status"));
    resources(status, &mut errors);
    declared_features(status, &mut errors);
    let addresses = status.items("addresses");
    let list = At::new("status.addresses");
    let repeated =
        Repeated::earlier(addresses.iter().map(|address| (address.text("type"), address.text("address"))));
    for (i, address) in addresses.iter().enumerate() {
        if repeated.at(i) {
            let shown = internal_json::compact("NodeAddress", Some(address));
            errors.report(FieldErrorKind::Duplicate, &list.index(i), None, shown);
        }
    }
    cidrs_stay(spec, old.part("spec"), &mut errors);
    let (id, former) = (spec.text("providerID"), old.part("spec").text("providerID"));
    if !former.is_empty() && id != former {
        let detail = if id.is_empty() {
            "field cannot be cleared once set"
        } else {
            "field cannot be modified once set"
        };
        errors.invalid(&At::new("spec.providerID"), Value::Null, detail);
    }
    if let Some(source) = spec.part("configSource") {
        config_source(source, true, &At::new("spec.configSource"), &mut errors);
    }
    let config = status.part("config");
    for field in ["assigned", "active", "lastKnownGood"] {
        if let Some(source) = config.part(field) {
            config_source(source, false, &At::new("status.config").field(field), &mut errors);
        }
    }
    taints(spec.items("taints"), &At::new("metadata.taints"), &mut errors);
    if spec.text("externalID") != old.part("spec").text("externalID") {
        errors.forbidden(&At::new("spec.externalID"), "may not be updated");
    }
    errors
}

/// Validates the two annotations that became fields.
fn annotations(node: &Value, errors: &mut FieldErrors) {
    let annotations = node.part("metadata").part("annotations");
    let at = At::new("metadata.annotations");
    let text = annotations.text(TAINTS);
    if !text.is_empty() {
        match value::json::parse(text.as_bytes()) {
            Ok(Value::List(list)) => taints(&list, &at.field(TAINTS), errors),
            Ok(Value::Null) => {}
            Ok(other) => {
                let detail = format!(
                    "json: cannot unmarshal {} into Go value of type []core.Taint",
                    other.json_type()
                );
                errors.invalid(&at, TAINTS, detail);
            }
            Err(error) => errors.invalid(&at, TAINTS, error.to_string()),
        }
    }
    let text = annotations.text(AVOID_PODS);
    if !text.is_empty() {
        match value::json::parse(text.as_bytes()) {
            Ok(avoid) => {
                let list = at.field(AVOID_PODS);
                for (i, entry) in avoid.items("preferAvoidPods").iter().enumerate() {
                    let here = list.index(i);
                    let controller = entry.part("podSignature").part("podController");
                    if controller.is_none() {
                        errors.required(&here.field("PodSignature"), "");
                    } else if !controller.flag("controller") {
                        let at = here.field("PodSignature.PodController.Controller");
                        errors.invalid(&at, false, "must point to a controller");
                    }
                }
            }
            Err(error) => errors.invalid(&at.field("AvoidPods"), AVOID_PODS, error.to_string()),
        }
    }
}

/// Validates taints; key and effect must be unique.
fn taints(taints: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let repeated = Repeated::earlier(taints.iter().map(|taint| (taint.text("key"), taint.text("effect"))));
    for (i, taint) in taints.iter().enumerate() {
        let here = at.index(i);
        let (key, effect) = (taint.text("key"), taint.text("effect"));
        meta::label_name(key, &here.field("key"), errors);
        let value = taint.text("value");
        let wrong = names::is_valid_label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&here.field("value"), value, wrong.join(";"));
        }
        if effect.is_empty() {
            errors.required(&here.field("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.not_supported(&here.field("effect"), effect, &EFFECTS);
        }
        if repeated.at(i) {
            let shown = internal_json::compact("Taint", Some(taint));
            let detail = format!("{shown}: taints must be unique by key and effect pair");
            errors.report(FieldErrorKind::Duplicate, &here, None, detail);
        }
    }
}

fn resources(status: Option<&Value>, errors: &mut FieldErrors) {
    for field in ["capacity", "allocatable"] {
        for (name, amount) in status.text_entries(field) {
            let list = At::new("status");
            let list = list.field(field);
            resource_amounts(name, amount, &list.field(name), errors);
        }
    }
}

fn declared_features(status: Option<&Value>, errors: &mut FieldErrors) {
    let features: Vec<&str> = status.texts("declaredFeatures").collect();
    let at = At::new("status.declaredFeatures");
    for (i, feature) in features.iter().enumerate() {
        let quoted = api::field::quote(feature);
        if feature.len() > MAX_FEATURE_NAME {
            let detail =
                format!("invalid feature name {quoted}: must be no more than {MAX_FEATURE_NAME} characters");
            errors.invalid(&at.index(i), *feature, detail);
        } else if !is_feature_name(feature) {
            let detail = format!(
                "invalid feature name {quoted}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric \
                 characters and slashes"
            );
            errors.invalid(&at.index(i), *feature, detail);
        }
        if let Some(next) = features.get(i + 1) {
            if feature == next {
                errors.duplicate(&at.index(i + 1), *next);
            } else if feature > next {
                errors.invalid(&at.index(i + 1), *next, "list must be sorted alphabetically");
            }
        }
    }
}

fn is_feature_name(name: &str) -> bool {
    let is_segment = |(i, segment): (usize, &str)| {
        let mut chars = segment.chars();
        let first = chars.next();
        let starts =
            first.is_some_and(|c| if i == 0 { c.is_ascii_uppercase() } else { c.is_ascii_alphabetic() });
        starts && chars.all(|c| c.is_ascii_alphanumeric())
    };
    name.split('/').enumerate().all(is_segment)
}

fn pod_cidrs(spec: Option<&Value>, errors: &mut FieldErrors) {
    let cidrs: Vec<&str> = spec.texts("podCIDRs").collect();
    let at = At::new("spec.podCIDRs");
    for (i, cidr) in cidrs.iter().enumerate() {
        errors.invalid_each(&at.index(i), cidr, names::is_valid_cidr_for_legacy_field(cidr, true));
    }
    if cidrs.len() < 2 {
        return;
    }
    let networks: Vec<Option<(IpAddr, u8)>> =
        cidrs.iter().map(|cidr| names::parse_cidr_sloppy(cidr)).collect();
    let sixes = networks.iter().flatten().filter(|(ip, _)| ip.is_ipv6()).count();
    let mut dual = sixes > 0 && sixes < networks.len();
    if let Some((i, bad)) = networks
        .iter()
        .zip(&cidrs)
        .enumerate()
        .find_map(|(i, (network, cidr))| network.is_none().then_some((i, cidr)))
    {
        dual = false;
        let detail = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: {bad})"
        );
        errors.internal(&at, detail);
    }
    if !dual || cidrs.len() > 2 {
        let shown = Value::list(cidrs.iter().copied());
        errors.invalid(&at, shown, "may specify no more than one CIDR for each IP family");
    }
}

fn cidrs_stay(spec: Option<&Value>, old: Option<&Value>, errors: &mut FieldErrors) {
    let (now, before) = (spec.items("podCIDRs"), old.items("podCIDRs"));
    if before.is_empty() {
        return;
    }
    let changes = if now.len() == before.len() {
        now.iter().zip(before).filter(|(now, before)| now != before).count()
    } else {
        1
    };
    for _ in 0..changes {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&At::new("spec.podCIDRs"), detail);
    }
}

fn config_source(source: &Value, in_spec: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(map) = source.part("configMap") else {
        let shown = internal_json::compact("NodeConfigSource", Some(source));
        let detail = format!("{shown}: exactly one reference subfield must be non-nil");
        errors.report(FieldErrorKind::Invalid, at, None, detail);
        return;
    };
    let here = at.field("configMap");
    for field in ["uid", "resourceVersion"] {
        let is_set = !map.text(field).is_empty();
        if in_spec && is_set {
            errors.forbidden(&here.field(field), format!("{field} must not be set in spec"));
        } else if !in_spec && !is_set {
            errors.required(&here.field(field), "");
        }
    }
    let rules: [(&str, TextRule); 3] = [
        ("namespace", names::is_dns1123_label),
        ("name", names::is_dns1123_subdomain),
        ("kubeletConfigKey", names::is_config_map_key),
    ];
    for (field, rule) in rules {
        required_name(map, field, rule, &here, errors);
    }
}

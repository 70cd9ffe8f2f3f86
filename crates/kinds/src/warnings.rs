//! Warnings about accepted objects. The kinds' rows name these functions.

mod admission;
mod key_pair;
mod networking;
mod pod;
mod storage;
mod workloads;

use api::names::is_dns1123_label;
use api::quantity::Quantity;
use api::validation::fields::{At, Read};
use value::Value;

pub(crate) use self::admission::{admission_policy, webhook_configuration};
pub(crate) use self::networking::{
    endpoint_slice, endpoints, ingress, load_balancer_status, network_policy, node, pod_status, service,
};
pub(crate) use self::storage::{
    csi_driver, csi_storage_capacity, persistent_volume, persistent_volume_claim, storage_class,
};
pub(crate) use self::workloads::{
    cron_job, daemon_set, deployment, job, pod_template, replica_set, replication_controller, stateful_set,
};

/// Adds the warnings for creating `new` (no `old`) or for updating `old` to `new`.
pub type WriteWarnings = fn(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>);

/// Adds the warnings for a `status` update that results in `new`.
pub type StatusWarnings = fn(new: &Value, warnings: &mut Vec<String>);

pub(crate) fn pod(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    if old.is_none() {
        recommend_label(new, "the Pod's hostname", warnings);
        pod::pod(new, warnings);
    }
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

pub(crate) fn custom_resource_definition(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    warnings.extend(crd::validation::warnings(new, old));
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

pub(crate) fn service_account(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let key = api::labels::ENFORCE_MOUNTABLE_SECRETS;
    if old.is_some_and(|old| old.at(&["metadata", "annotations", key]).is_some()) {
        return;
    }
    let words = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
    deprecated_annotation(new, key, words, warnings);
}

#[cfg(test)]
mod tests;

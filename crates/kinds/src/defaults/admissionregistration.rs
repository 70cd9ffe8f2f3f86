//! Defaults of webhook configurations and admission policies.

use value::{Map, Value};

use super::fields::Fill;

const HTTPS_PORT: i64 = 443;

pub fn mutating_webhooks(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    for webhook in object.children("webhooks") {
        fill_webhook(webhook);
        webhook.fill("reinvocationPolicy", "Never");
    }
}

pub fn validating_webhooks(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    object.children("webhooks").for_each(fill_webhook);
}

/// Defaults of MutatingAdmissionPolicy and ValidatingAdmissionPolicy.
pub fn policy(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    spec.fill("failurePolicy", "Fail");
    if let Some(resources) = spec.child("matchConstraints") {
        match_resources(resources);
    }
}

/// Defaults of MutatingAdmissionPolicyBinding and ValidatingAdmissionPolicyBinding.
pub fn binding(object: &mut Value) {
    let spec = object.as_map_mut().and_then(|object| object.child("spec"));
    if let Some(resources) = spec.and_then(|spec| spec.child("matchResources")) {
        match_resources(resources);
    }
}

fn fill_webhook(webhook: &mut Map) {
    webhook.fill("failurePolicy", "Fail");
    fill_selectors(webhook);
    webhook.fill("timeoutSeconds", 10_i64);
    if let Some(service) = webhook.child("clientConfig").and_then(|client| client.child("service")) {
        service.fill("port", HTTPS_PORT);
    }
    webhook.children("rules").for_each(fill_scope);
}

fn match_resources(resources: &mut Map) {
    fill_selectors(resources);
    for list in ["resourceRules", "excludeResourceRules"] {
        resources.children(list).for_each(fill_scope);
    }
}

fn fill_selectors(object: &mut Map) {
    object.fill("matchPolicy", "Equivalent");
    object.fill("namespaceSelector", Map::new());
    object.fill("objectSelector", Map::new());
}

fn fill_scope(rule: &mut Map) {
    rule.fill("scope", "*");
}

//! Changes objects of old versions to the fields of current ones, and sets the defaults that the old versions had.

use value::Value;

/// Calls `change` with every item of the list at `path`.
fn each(object: &mut Value, path: &[&str], change: impl Fn(&mut Value)) {
    if let Some(Value::List(items)) = object.at_mut(path) {
        items.iter_mut().for_each(change);
    }
}

/// Sets a field that is absent.
fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if object.at(&[field]).is_none() {
        object.set_at(&[field], value);
    }
}

/// The defaults of v1beta1 are more lenient than those of v1.
pub(super) fn old_webhooks(configuration: &mut Value) {
    each(configuration, &["webhooks"], |webhook| {
        default(webhook, "failurePolicy", "Ignore");
        default(webhook, "matchPolicy", "Exact");
        default(webhook, "sideEffects", "Unknown");
        default(webhook, "timeoutSeconds", 30);
        default(webhook, "admissionReviewVersions", Value::List(vec!["v1beta1".into()]));
    });
}

/// The topology of an endpoint became its zone and its node name.
pub(super) fn old_endpoint_slice(slice: &mut Value) {
    const ZONE: &str = "topology.kubernetes.io/zone";
    const HOST: &str = "kubernetes.io/hostname";
    each(slice, &["endpoints"], |endpoint| {
        let Some(Value::Map(mut topology)) = endpoint.remove_at(&["topology"]) else { return };
        if let Some(zone) = topology.remove(ZONE) {
            endpoint.set_at(&["zone"], zone);
        }
        if topology.get(HOST).and_then(Value::as_str) == endpoint.str_at(&["nodeName"]) {
            topology.remove(HOST);
        }
        if !topology.is_empty() {
            endpoint.set_at(&["deprecatedTopology"], Value::Map(topology));
        }
    });
}

pub(super) fn assured_shares(level: &mut Value) {
    if let Some(shares) = level.remove_at(&["spec", "limited", "assuredConcurrencyShares"]) {
        level.set_at(&["spec", "limited", "nominalConcurrencyShares"], shares);
    }
}

/// Zero shares meant the default in v1beta3, unless an annotation says otherwise.
pub(super) fn zero_shares(level: &mut Value) {
    let is_meant = level.remove_at(&["metadata", "annotations", api::labels::PRESERVE_ZERO_SHARES]).is_some();
    let shares = &["spec", "limited", "nominalConcurrencyShares"];
    if !is_meant && level.int_at(shares) == Some(0) {
        level.remove_at(shares);
    }
}

/// An empty selector selected nothing in v1beta1 and selects everything in v1.
pub(super) fn old_budget_selector(budget: &mut Value) {
    const KEY: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";
    let Some(selector) = budget.at(&["spec", "selector"]) else { return };
    let expressions = selector.list_at(&["matchExpressions"]);
    if selector.as_map().is_some_and(value::Map::is_empty) {
        let nothing = Value::map([("key", KEY), ("operator", "Exists")]);
        budget.set_at(&["spec", "selector", "matchExpressions"], Value::List(vec![nothing]));
        return;
    }
    let (marks, others): (Vec<&Value>, Vec<&Value>) =
        expressions.iter().partition(|expression| expression.str_at(&["key"]) == Some(KEY));
    if marks.is_empty() {
        return;
    }
    let others: Vec<Value> = others.into_iter().cloned().collect();
    if others.is_empty() {
        budget.remove_at(&["spec", "selector", "matchExpressions"]);
    } else {
        budget.set_at(&["spec", "selector", "matchExpressions"], Value::List(others));
    }
}

/// The labels and the selector of a workload are those of its pods by default.
pub(super) fn labels_of_template(workload: &mut Value) {
    let Some(labels) = workload.at(&["spec", "template", "metadata", "labels"]).cloned() else { return };
    if workload.at(&["spec", "selector"]).is_none() {
        workload.set_at(&["spec", "selector", "matchLabels"], labels.clone());
    }
    if workload.at(&["metadata", "labels"]).and_then(Value::as_map).is_none_or(value::Map::is_empty) {
        workload.set_at(&["metadata", "labels"], labels);
    }
}

/// Sets a field of the spec that is absent or empty text.
fn default_spec(workload: &mut Value, path: &[&str], value: impl Into<Value>) {
    let path = [&["spec"], path].concat();
    if workload.at(&path).is_none_or(|present| present.as_str() == Some("")) {
        workload.set_at(&path, value);
    }
}

pub(super) fn apps_v1beta1_stateful_set(set: &mut Value) {
    labels_of_template(set);
    default_spec(set, &["updateStrategy", "type"], "OnDelete");
}

pub(super) fn apps_v1beta1_deployment(deployment: &mut Value) {
    labels_of_template(deployment);
    default_spec(deployment, &["revisionHistoryLimit"], 2);
    rollback_annotation(deployment);
}

pub(super) fn extensions_deployment(deployment: &mut Value) {
    labels_of_template(deployment);
    default_spec(deployment, &["strategy", "type"], "RollingUpdate");
    let strategy = deployment.str_at(&["spec", "strategy", "type"]);
    if strategy == Some("RollingUpdate") || deployment.at(&["spec", "strategy", "rollingUpdate"]).is_some() {
        default_spec(deployment, &["strategy", "rollingUpdate", "maxUnavailable"], 1);
        default_spec(deployment, &["strategy", "rollingUpdate", "maxSurge"], 1);
    }
    // Absence meant "unlimited".
    default_spec(deployment, &["progressDeadlineSeconds"], i32::MAX);
    default_spec(deployment, &["revisionHistoryLimit"], i32::MAX);
    rollback_annotation(deployment);
}

/// `spec.rollbackTo` became an annotation.
fn rollback_annotation(deployment: &mut Value) {
    if let Some(rollback) = deployment.remove_at(&["spec", "rollbackTo"]) {
        let revision = rollback.int_at(&["revision"]).unwrap_or_default().to_string();
        deployment.set_at(&["metadata", "annotations", "deprecated.deployment.rollback.to"], revision);
    }
}

/// `spec.templateGeneration` became an annotation.
pub(super) fn extensions_daemon_set(set: &mut Value) {
    labels_of_template(set);
    default_spec(set, &["updateStrategy", "type"], "OnDelete");
    let generation = set.remove_at(&["spec", "templateGeneration"]);
    let generation = generation.and_then(|generation| generation.as_int()).unwrap_or_default().to_string();
    set.set_at(&["metadata", "annotations", "deprecated.daemonset.template.generation"], generation);
}

/// The backend of a path named a Service and its port; `spec.backend` became `spec.defaultBackend`.
pub(super) fn old_ingress(ingress: &mut Value) {
    if let Some(mut backend) = ingress.remove_at(&["spec", "backend"]) {
        service_of_backend(&mut backend);
        ingress.set_at(&["spec", "defaultBackend"], backend);
    }
    each(ingress, &["spec", "rules"], |rule| {
        each(rule, &["http", "paths"], |path| {
            default(path, "pathType", "ImplementationSpecific");
            if let Some(backend) = path.at_mut(&["backend"]) {
                service_of_backend(backend);
            }
        });
    });
}

fn service_of_backend(backend: &mut Value) {
    let name = backend.remove_at(&["serviceName"]).filter(|name| name.as_str() != Some(""));
    let port = backend.remove_at(&["servicePort"]).filter(|port| port.as_int() != Some(0));
    if name.is_none() && port.is_none() {
        return;
    }
    backend.set_at(&["service", "name"], name.unwrap_or_else(|| "".into()));
    match port {
        Some(Value::String(port)) if !port.is_empty() => backend.set_at(&["service", "port", "name"], port),
        Some(port @ Value::Int(_)) => backend.set_at(&["service", "port", "number"], port),
        _ => backend.set_at(&["service", "port"], value::Map::new()),
    }
}

/// The fields of the spec moved to the object.
pub(super) fn nested_runtime_class(class: &mut Value) {
    let Some(mut spec) = class.remove_at(&["spec"]) else { return };
    for (old, new) in [("runtimeHandler", "handler"), ("overhead", "overhead"), ("scheduling", "scheduling")]
    {
        if let Some(field) = spec.remove_at(&[old]) {
            class.set_at(&[new], field);
        }
    }
}

/// Subjects had a version instead of a group, and the user `*` was every authenticated user.
pub(super) fn subjects_with_versions(binding: &mut Value) {
    if binding.str_at(&["roleRef", "apiGroup"]).is_none_or(str::is_empty) {
        binding.set_at(&["roleRef", "apiGroup"], api::groups::RBAC);
    }
    each(binding, &["subjects"], |subject| {
        let version = subject.remove_at(&["apiVersion"]);
        let group = match subject.str_at(&["kind"]) {
            Some("ServiceAccount") => value::Str::new_static(""),
            Some("User" | "Group") => value::Str::new_static(api::groups::RBAC),
            _ => {
                let version = version.as_ref().and_then(Value::as_str).unwrap_or_default();
                api::GroupVersion::parse(version).map(|version| version.group).unwrap_or_default()
            }
        };
        if !group.is_empty() {
            subject.set_at(&["apiGroup"], group);
        }
        if subject.str_at(&["kind"]) == Some("User") && subject.str_at(&["name"]) == Some("*") {
            subject.set_at(&["kind"], "Group");
            subject.set_at(&["name"], api::identities::AUTHENTICATED);
        }
    });
}

/// A binding in v1alpha1 denies requests by default if its parameters do not exist.
pub(in crate::convert) fn missing_parameters_deny(binding: &mut Value) {
    if let Some(reference) = binding.at_mut(&["spec", "paramRef"]) {
        default(reference, "parameterNotFoundAction", "Deny");
    }
}

/// Sets the defaults that v1beta1 had for usages, signer and the status of conditions. Requests of kubelets had another default signer;
/// it is not restored, because requests are deleted after a day at most, so that none is still stored.
pub(super) fn old_certificate_request(request: &mut Value) {
    if request.at(&["spec", "usages"]).is_none() {
        let usages = ["digital signature", "key encipherment"].map(Value::from);
        request.set_at(&["spec", "usages"], Value::List(usages.into()));
    }
    if request.at(&["spec", "signerName"]).is_none() {
        request.set_at(&["spec", "signerName"], api::signers::LEGACY_UNKNOWN);
    }
    each(request, &["status", "conditions"], |condition| {
        if condition.str_at(&["status"]).is_none_or(str::is_empty) {
            condition.set_at(&["status"], "True");
        }
    });
}

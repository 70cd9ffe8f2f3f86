//! Validation of the three container lists of a pod.

use std::collections::{BTreeSet, HashSet};

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::Value;

use super::options::PodValidationOptions;
use super::{env, mounts, probes, resources, security};
use crate::validation::required_name;

const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;

/// The pod of a container, as far as container validation needs it.
pub(in crate::validation) struct Pod<'a> {
    pub spec: &'a Value,
    /// Volumes that are without errors.
    pub volumes: &'a mounts::Volumes<'a>,
    /// Names of the pod's device claims.
    pub claims: &'a BTreeSet<&'a str>,
    pub options: &'a PodValidationOptions,
}

impl Pod<'_> {
    fn grace(&self) -> Option<i64> {
        self.spec.number_if_set("terminationGracePeriodSeconds")
    }

    fn os(&self) -> Option<&Value> {
        self.spec.part("os")
    }
}

pub(in crate::validation) fn containers(pod: &Pod<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("containers");
    let containers = pod.spec.items("containers");
    if containers.is_empty() {
        errors.required(&list, "");
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let at = list.index(i);
        any_container(container, pod, &at, errors);
        unique_name(container.text("name"), &mut seen, &at, errors);
        lasting(container, pod, &at, errors);
        restart_policy(container, false, &at, errors);
    }
    mounts::host_ports(containers.iter().enumerate(), &list, errors);
}

fn unique_name<'a>(name: &'a str, seen: &mut HashSet<&'a str>, at: &At<'_>, errors: &mut FieldErrors) {
    if !seen.insert(name) {
        errors.duplicate(&at.field("name"), name);
    }
}

/// Validates hooks and probes, which only containers that run as long as the pod can have.
fn lasting(container: &Value, pod: &Pod<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(lifecycle) = container.part("lifecycle") {
        probes::lifecycle(lifecycle, pod.grace(), pod.os(), &at.field("lifecycle"), errors);
    }
    probes::probes(container, at, errors);
}

pub(in crate::validation) fn init_containers(pod: &Pod<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("initContainers");
    let mut seen: HashSet<&str> = pod.spec.items("containers").iter().map(|c| c.text("name")).collect();
    for (i, container) in pod.spec.items("initContainers").iter().enumerate() {
        let at = list.index(i);
        any_container(container, pod, &at, errors);
        restart_policy(container, true, &at, errors);
        let name = container.text("name");
        if seen.contains(name) {
            errors.duplicate(&at.field("name"), name);
        } else if !name.is_empty() {
            seen.insert(name);
        }
        // Init containers run one after another, so each is checked alone; the reported index is always 0.
        mounts::host_ports([(0, container)], &list, errors);
        let stays = container.text("restartPolicy") == "Always";
        if stays {
            lasting(container, pod, &at, errors);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.part(field).is_some() {
                    let detail = "may not be set for init containers without restartPolicy=Always";
                    errors.forbidden(&at.field(field), detail);
                }
            }
            if !pod.options.restarting_resize_of_init_containers {
                restarting_resize(container, &at, errors);
            }
        }
    }
}

fn restarting_resize(container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("resizePolicy");
    for (i, policy) in container.items("resizePolicy").iter().enumerate() {
        if policy.text("restartPolicy") == "RestartContainer" {
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.invalid(&list.index(i).field("restartPolicy"), "RestartContainer", detail);
        }
    }
}

pub(in crate::validation) fn ephemeral_containers(pod: &Pod<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    /// Fields that are forbidden in ephemeral containers, in the order of Go's struct.
    const NOT_ALLOWED: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let list = at.field("ephemeralContainers");
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod.spec.items(list))
        .map(|container| container.text("name"))
        .collect();
    let mut seen = others.clone();
    for (i, container) in pod.spec.items("ephemeralContainers").iter().enumerate() {
        let at = list.index(i);
        any_container(container, pod, &at, errors);
        image_of_pod(container, &at, errors);
        unique_name(container.text("name"), &mut seen, &at, errors);
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&at.field("targetContainerName"), target);
        }
        for field in NOT_ALLOWED {
            let is_set = match container.part(field) {
                None => false,
                Some(Value::Map(map)) => field != "resources" || !map.is_empty(),
                Some(Value::List(list)) => !list.is_empty(),
                Some(_) => true,
            };
            if is_set {
                errors.forbidden(&at.field(field), DETAIL);
            }
        }
        let mounts = at.field("volumeMounts");
        for (i, mount) in container.items("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    errors.forbidden(&mounts.index(i).field(field), DETAIL);
                }
            }
        }
    }
}

/// Rejects whitespace around an image name, which is allowed only in templates.
pub(in crate::validation) fn image_of_pod(container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let image = container.text("image");
    if image.trim().len() != image.len() {
        errors.invalid(&at.field("image"), image, "must not have leading or trailing whitespace");
    }
}

/// Validates the fields common to all three lists.
fn any_container(container: &Value, pod: &Pod<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    required_name(container, "name", names::is_dns1123_label, at, errors);
    if container.text("image").is_empty() {
        errors.required(&at.field("image"), "");
    }
    let policy_at = at.field("terminationMessagePolicy");
    match container.text("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors.required(&policy_at, ""),
        other => errors.not_supported(&policy_at, other, &["File", "FallbackToLogsOnError"]),
    }
    mounts::ports(container, at, errors);
    env::env(container, at, errors);
    env::env_from(container, at, errors);
    mounts::mounts(container, pod.volumes, at, errors);
    mounts::devices(container, pod.volumes, at, errors);
    pull_policy(container.text("imagePullPolicy"), &at.field("imagePullPolicy"), errors);
    let resources = container.part("resources");
    resources::container_requirements(resources, pod.claims, &at.field("resources"), pod.options, errors);
    resize_policy(container, pod.spec.text("restartPolicy"), &at.field("resizePolicy"), errors);
    if let Some(context) = container.part("securityContext") {
        let host_users = pod.spec.flag_if_set("hostUsers").unwrap_or(true);
        security::container(context, host_users, pod.options, &at.field("securityContext"), errors);
    }
}

pub(in crate::validation) fn pull_policy(policy: &str, at: &At<'_>, errors: &mut FieldErrors) {
    match policy {
        "Always" | "IfNotPresent" | "Never" => {}
        "" => errors.required(at, ""),
        other => errors.not_supported(at, other, &["Always", "IfNotPresent", "Never"]),
    }
}

fn resize_policy(container: &Value, pod_restart_policy: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, policy) in container.items("resizePolicy").iter().enumerate() {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            errors.duplicate(&at.index(i), resource);
        }
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(at, ""),
            other => errors.not_supported(at, other, &["cpu", "memory"]),
        }
        let restart = policy.text("restartPolicy");
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(at, ""),
            other => errors.not_supported(at, other, &["NotRequired", "RestartContainer"]),
        }
        if pod_restart_policy == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(at, restart, detail);
        }
    }
}

fn restart_policy(container: &Value, is_init: bool, at: &At<'_>, errors: &mut FieldErrors) {
    const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
    const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let rules = container.items("restartPolicyRules");
    match container.text_if_set("restartPolicy") {
        None if rules.is_empty() => return,
        None => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(&at.field("restartPolicy"), detail);
            if is_init {
                return;
            }
        }
        Some(policy) if !POLICIES.contains(&policy) => {
            errors.not_supported(&at.field("restartPolicy"), policy, &POLICIES);
        }
        Some(_) => {}
    }
    let list = at.field("restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        errors.too_many(&list, rules.len(), MAX_RESTART_RULES);
    }
    for (i, rule) in rules.iter().enumerate() {
        let at = list.index(i);
        let action = rule.text("action");
        if !ACTIONS.contains(&action) {
            errors.not_supported(&at.field("action"), action, &ACTIONS);
        }
        let Some(codes) = rule.part("exitCodes") else {
            errors.required(&at.field("exitCodes"), "must be specified");
            continue;
        };
        let operator = codes.text("operator");
        if !OPERATORS.contains(&operator) {
            errors.not_supported(&at.field("exitCodes.operator"), operator, &OPERATORS);
        }
        let values = codes.items("values").len();
        if values > MAX_EXIT_CODES {
            errors.too_many(&at.field("exitCodes.values"), values, MAX_EXIT_CODES);
        }
    }
}

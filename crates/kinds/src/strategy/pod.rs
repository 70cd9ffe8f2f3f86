//! Strategy of Pod, and the disabled fields of every kind that holds a pod template.

use std::collections::{HashMap, VecDeque};

use api::features::Feature;
use api::labels::APP_ARMOR_PREFIX;
use api::pod_resources::{is_huge_page, is_pod_level, of_spec};
use api::quantity::Quantity;
use api::validation::fields::{Read, same};
use value::{Map, Str, Value};

use super::gates::{FeatureFields, Gate};
use super::{StrategyContext, keep, keep_metadata};
use crate::pod_containers::CONTAINER_LISTS;
use crate::validation::pod::resources::qos_class;

/// Declares the gates of a kind whose pod spec is at a given path.
macro_rules! spec_gates {
    ($name:ident, $doc:literal, [$($at:literal),*], [$($more:expr),*]) => {
        #[doc = $doc]
        pub(super) const $name: &[Gate] = &[
            &[&[$($at,)* "volumes", "*", "emptyDir", "mode"]],
            &[
                &[$($at,)* "containers", "*", "volumeMounts", "*", "bindMountOptions"],
                &[$($at,)* "initContainers", "*", "volumeMounts", "*", "bindMountOptions"],
                &[$($at,)* "ephemeralContainers", "*", "volumeMounts", "*", "bindMountOptions"],
            ],
            &[
                &[$($at,)* "containers", "*", "lifecycle?", "stopSignal"],
                &[$($at,)* "initContainers", "*", "lifecycle?", "stopSignal"],
                &[$($at,)* "ephemeralContainers", "*", "lifecycle?", "stopSignal"],
            ],
            &[
                &[$($at,)* "containers", "*", "livenessProbe", "grpc", "mode"],
                &[$($at,)* "containers", "*", "readinessProbe", "grpc", "mode"],
                &[$($at,)* "containers", "*", "startupProbe", "grpc", "mode"],
                &[$($at,)* "initContainers", "*", "livenessProbe", "grpc", "mode"],
                &[$($at,)* "initContainers", "*", "readinessProbe", "grpc", "mode"],
                &[$($at,)* "initContainers", "*", "startupProbe", "grpc", "mode"],
            ],
            &[
                &[$($at,)* "containers", "*", "livenessProbe", "httpGet", "protocol"],
                &[$($at,)* "containers", "*", "readinessProbe", "httpGet", "protocol"],
                &[$($at,)* "containers", "*", "startupProbe", "httpGet", "protocol"],
                &[$($at,)* "containers", "*", "lifecycle", "postStart", "httpGet", "protocol"],
                &[$($at,)* "containers", "*", "lifecycle", "preStop", "httpGet", "protocol"],
                &[$($at,)* "initContainers", "*", "livenessProbe", "httpGet", "protocol"],
                &[$($at,)* "initContainers", "*", "readinessProbe", "httpGet", "protocol"],
                &[$($at,)* "initContainers", "*", "startupProbe", "httpGet", "protocol"],
                &[$($at,)* "initContainers", "*", "lifecycle", "postStart", "httpGet", "protocol"],
                &[$($at,)* "initContainers", "*", "lifecycle", "preStop", "httpGet", "protocol"],
            ],
            &[
                &[$($at,)* "volumes", "*", "secret", "defaultUser"],
                &[$($at,)* "volumes", "*", "secret", "items", "*", "user"],
                &[$($at,)* "volumes", "*", "configMap", "defaultUser"],
                &[$($at,)* "volumes", "*", "configMap", "items", "*", "user"],
                &[$($at,)* "volumes", "*", "downwardAPI", "defaultUser"],
                &[$($at,)* "volumes", "*", "downwardAPI", "items", "*", "user"],
                &[$($at,)* "volumes", "*", "projected", "defaultUser"],
                &[$($at,)* "volumes", "*", "projected", "sources", "*", "secret", "items", "*", "user"],
                &[$($at,)* "volumes", "*", "projected", "sources", "*", "configMap", "items", "*", "user"],
                &[$($at,)* "volumes", "*", "projected", "sources", "*", "downwardAPI", "items", "*", "user"],
                &[$($at,)* "volumes", "*", "projected", "sources", "*", "serviceAccountToken", "user"],
                &[$($at,)* "volumes", "*", "projected", "sources", "*", "clusterTrustBundle", "user"],
                &[$($at,)* "volumes", "*", "projected", "sources", "*", "podCertificate", "user"],
            ],
            $($more),*
        ];
    };
}

spec_gates!(
    GATES,
    "Features of pods that are off in 1.37.",
    ["spec"],
    [
        &[&["status", "nodeAllocatableResourceClaimStatuses"]],
        &[&["status", "volumeHealth"]],
        &[
            &["status", "containerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["status", "initContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
            &["status", "ephemeralContainerStatuses", "*", "volumeMounts", "*", "volumeStatus"],
        ]
    ]
);
spec_gates!(TEMPLATE_GATES, "The same in a `PodTemplate`.", ["template", "spec"], []);
spec_gates!(WORKLOAD_GATES, "The same in a workload's template.", ["spec", "template", "spec"], []);
spec_gates!(JOB_GATES, "The same in a job.", ["spec", "template", "spec"], [&[&["spec", "scheduling"]]]);
spec_gates!(
    CRON_JOB_GATES,
    "The same in the jobs of a cron job.",
    ["spec", "jobTemplate", "spec", "template", "spec"],
    [&[&["spec", "jobTemplate", "spec", "scheduling"]]]
);

/// Declares the fields of features that can be turned on, for a kind whose pod spec is at a given path.
macro_rules! spec_features {
    ($name:ident, $doc:literal, [$($at:literal),*]) => {
        #[doc = $doc]
        pub(super) const $name: &[FeatureFields] = &[
            FeatureFields { feature: Feature::GenericWorkload, fields: &[&[$($at,)* "schedulingGroup"]] },
            FeatureFields { feature: Feature::EvictionRequestApi, fields: &[&[$($at,)* "evictionResponders"]] },
        ];
    };
}

spec_features!(FEATURES, "Features of pods that can be turned on.", ["spec"]);
spec_features!(TEMPLATE_FEATURES, "The same in a `PodTemplate`.", ["template", "spec"]);
spec_features!(WORKLOAD_FEATURES, "The same in a workload's template.", ["spec", "template", "spec"]);
spec_features!(
    CRON_JOB_FEATURES,
    "The same in the jobs of a cron job.",
    ["spec", "jobTemplate", "spec", "template", "spec"]
);

/// Sets the status of a new pod and computes the fields that derive from its labels, annotations and resources.
pub(super) fn create(pod: &mut Value, context: &StrategyContext) {
    pod.set_at(&["status", "phase"], "Pending");
    drop_init_container_annotations(pod);
    mark_gated(pod, context);
    apply_match_label_keys(pod);
    apply_app_armor_annotations(pod);
    default_pod_level_resources(pod);
    let class = qos_class(pod);
    pod.set_at(&["status", "qosClass"], class);
}

/// Restores pod-level resources that an update omits.
pub(super) fn update(new: &mut Value, old: &Value, _: &StrategyContext) {
    keep_pod_level_resources(new, old);
    drop_init_container_annotations(new);
}

/// Restores status fields that a status update omits.
pub(super) fn update_status(new: &mut Value, old: &Value, _: &StrategyContext) {
    new.remove_at(&["metadata", "deletionTimestamp"]);
    keep(new, old, &["metadata", "ownerReferences"]);
    let preserved = [
        "qosClass",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "nodeAllocatableResourceClaimStatuses",
    ];
    for field in preserved {
        let sent = new.part("status").part(field);
        if sent.is_none() || sent.and_then(Value::as_str) == Some("") {
            keep(new, old, &["status", field]);
        }
    }
    keep_observed_generations(new, old);
    drop_init_container_annotations(new);
}

/// Restores everything except the ephemeral containers from the old pod, for an update through `ephemeralcontainers`.
pub fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    restore_all_but(new, old, &["spec", "ephemeralContainers"]);
    super::gates::drop_disabled(GATES, new, Some(old));
    drop_init_container_annotations(new);
    grow_generation(new, old);
}

/// Restores everything except the resources of containers from the old pod, for an update through `resize`.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    keep_all_but_resources(new, old);
    keep_pod_level_resources(new, old);
    if new.part("spec").part("resources").is_some() {
        default_pod_level_resources(new);
    }
    super::gates::drop_disabled(GATES, new, Some(old));
    drop_init_container_annotations(new);
    grow_generation(new, old);
}

/// Grace period of a deletion in seconds: 0 if the pod is unscheduled or finished, at least 1 if the period is negative.
pub(super) fn grace_period(pod: &Value, requested: Option<i64>) -> i64 {
    let spec = pod.part("spec");
    let ended = matches!(pod.part("status").text("phase"), "Failed" | "Succeeded");
    if spec.text("nodeName").is_empty() || ended {
        return 0;
    }
    match requested.unwrap_or_else(|| spec.number("terminationGracePeriodSeconds")) {
        negative if negative < 0 => 1,
        period => period,
    }
}

fn grow_generation(new: &mut Value, old: &Value) {
    let generation = old.int_at(&["metadata", "generation"]).unwrap_or(0);
    let grown =
        if same(new.part("spec"), old.part("spec")) { generation } else { generation.saturating_add(1) };
    if grown != 0 {
        api::meta::set(new, "generation", grown);
    }
}

/// Replaces spec, status and metadata by those of the old pod, except for the field at `path`.
fn restore_all_but(new: &mut Value, old: &Value, path: &[&str]) {
    let sent = new.at(path).cloned();
    keep(new, old, &["spec"]);
    keep(new, old, &["status"]);
    keep_metadata(new, old);
    match sent {
        Some(sent) => new.set_at(path, sent),
        None => drop(new.remove_at(path)),
    }
}

fn keep_all_but_resources(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let same_length = |list: &&str| new.list_at(&["spec", list]).len() == old.list_at(&["spec", list]).len();
    if !lists.iter().all(same_length) {
        return;
    }
    let sent = lists.map(|list| resized(new.list_at(&["spec", list]), old.list_at(&["spec", list])));
    restore_all_but(new, old, &["spec", "resources"]);
    for (list, containers) in lists.iter().zip(sent) {
        if !containers.is_empty() {
            new.set_at(&["spec", list], containers);
        }
    }
}

/// Returns the old containers with the new resources, or the new containers if their names differ from the old ones.
fn resized(new: &[Value], old: &[Value]) -> Vec<Value> {
    let mut merged = Vec::with_capacity(new.len());
    for (container, former) in new.iter().zip(old) {
        if container.text("name") != former.text("name") {
            return new.to_vec();
        }
        let mut preserved = former.clone();
        keep(&mut preserved, container, &["resources"]);
        keep(&mut preserved, container, &["resizePolicy"]);
        merged.push(preserved);
    }
    merged
}

fn keep_pod_level_resources(new: &mut Value, old: &Value) {
    if new.part("spec").part("resources").is_none() {
        keep(new, old, &["spec", "resources"]);
    }
}

fn keep_observed_generations(new: &mut Value, old: &Value) {
    if new.part("status").number("observedGeneration") == 0 {
        keep(new, old, &["status", "observedGeneration"]);
    }
    // Conditions of one type are matched by order: the first new one takes the generation of the first old one, and so on.
    let mut former: HashMap<&str, VecDeque<i64>> = HashMap::new();
    for condition in old.list_at(&["status", "conditions"]) {
        former.entry(condition.text("type")).or_default().push_back(condition.number("observedGeneration"));
    }
    let Some(conditions) = new.at_mut(&["status", "conditions"]).and_then(Value::as_list_mut) else { return };
    for condition in conditions {
        let generation =
            former.get_mut(condition.text("type")).and_then(VecDeque::pop_front).unwrap_or_default();
        if condition.number("observedGeneration") == 0 && generation != 0 {
            condition.set_at(&["observedGeneration"], generation);
        }
    }
}

/// Removes the annotations that held init containers before they had a field.
pub(super) fn drop_init_container_annotations(pod: &mut Value) {
    let Some(annotations) = pod.at_mut(&["metadata", "annotations"]).and_then(Value::as_map_mut) else {
        return;
    };
    for stage in ["beta", "alpha"] {
        for what in ["init-containers", "init-container-statuses"] {
            annotations.remove(&format!("pod.{stage}.kubernetes.io/{what}"));
        }
    }
    if annotations.is_empty() {
        pod.remove_at(&["metadata", "annotations"]);
    }
}

fn mark_gated(pod: &mut Value, context: &StrategyContext) {
    if pod.part("spec").items("schedulingGates").is_empty() {
        return;
    }
    let condition = Value::map([
        ("lastProbeTime", Value::Null),
        ("lastTransitionTime", context.time()),
        ("message", "Scheduling is blocked due to non-empty scheduling gates".into()),
        ("reason", "SchedulingGated".into()),
        ("status", "False".into()),
        ("type", "PodScheduled".into()),
    ]);
    pod.set_at(&["status", "conditions"], vec![condition]);
}

/// Adds `matchLabelKeys` and `mismatchLabelKeys` to their selectors as requirements with the pod's own label values.
fn apply_match_label_keys(pod: &mut Value) {
    let labels: HashMap<String, String> =
        api::meta::labels(pod).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = pod.at_mut(&["spec", "affinity", affinity]) else { continue };
        let preferred = affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution");
        for term in preferred.and_then(Value::as_list_mut).into_iter().flatten() {
            if let Some(term) = term.get_mut("podAffinityTerm") {
                apply_keys(term, &labels);
            }
        }
        let required = affinity.get_mut("requiredDuringSchedulingIgnoredDuringExecution");
        for term in required.and_then(Value::as_list_mut).into_iter().flatten() {
            apply_keys(term, &labels);
        }
    }
    let constraints = pod.at_mut(&["spec", "topologySpreadConstraints"]);
    for constraint in constraints.and_then(Value::as_list_mut).into_iter().flatten() {
        apply_keys(constraint, &labels);
    }
}

fn apply_keys(term: &mut Value, labels: &HashMap<String, String>) {
    if term.part("labelSelector").is_none() {
        return;
    }
    let mut requirements = Vec::new();
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.texts(field) {
            if let Some(value) = labels.get(key) {
                requirements.push(Value::map([
                    ("key", Value::from(key)),
                    ("operator", operator.into()),
                    ("values", Value::list([value.as_str()])),
                ]));
            }
        }
    }
    if requirements.is_empty() {
        return;
    }
    let mut all = term.list_at(&["labelSelector", "matchExpressions"]).to_vec();
    all.extend(requirements);
    term.set_at(&["labelSelector", "matchExpressions"], all);
}

/// Converts the value of an AppArmor annotation to the value of the field.
pub(crate) fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(Value::map([("type", "Unconfined")])),
        "runtime/default" => Some(Value::map([("type", "RuntimeDefault")])),
        local => {
            let profile = local.strip_prefix("localhost/").filter(|profile| !profile.is_empty())?;
            Some(Value::map([("localhostProfile", profile), ("type", "Localhost")]))
        }
    }
}

/// Returns true if the profile would be valid as a field.
fn is_valid_profile(profile: &Value) -> bool {
    profile.text_if_set("localhostProfile").is_none_or(|name| name.trim() == name && name.len() <= 4095)
}

fn is_windows(pod: &Value) -> bool {
    pod.str_at(&["spec", "os", "name"]) == Some("windows")
}

fn apply_app_armor_annotations(pod: &mut Value) {
    for (list, i, profile) in app_armor_changes(pod) {
        let container =
            pod.at_mut(&["spec", list]).and_then(Value::as_list_mut).and_then(|list| list.get_mut(i));
        if let Some(container) = container {
            container.set_at(&["securityContext", "appArmorProfile"], profile);
        }
    }
}

fn app_armor_changes(pod: &Value) -> Vec<(&'static str, usize, Value)> {
    if is_windows(pod) {
        return Vec::new();
    }
    let pod_profile = pod.at(&["spec", "securityContext", "appArmorProfile"]);
    annotated_containers(pod)
        .into_iter()
        .filter_map(|(list, i, annotation)| {
            let profile = app_armor_profile(annotation).filter(is_valid_profile)?;
            (!same(Some(&profile), pod_profile)).then_some((list, i, profile))
        })
        .collect()
}

/// Containers that have the annotation but not the field: list, index and annotation value.
fn annotated_containers(pod: &Value) -> Vec<(&'static str, usize, &str)> {
    let mut found = Vec::new();
    for list in CONTAINER_LISTS {
        for (i, container) in pod.list_at(&["spec", list]).iter().enumerate() {
            let field = container.part("securityContext").part("appArmorProfile");
            let key = format!("{APP_ARMOR_PREFIX}{}", container.text("name"));
            let annotation = pod.at(&["metadata", "annotations", &key]).and_then(Value::as_str);
            if field.is_none()
                && let Some(annotation) = annotation
            {
                found.push((list, i, annotation));
            }
        }
    }
    found
}

/// Annotations to warn about in a new pod: those that were copied into a field, and those without a valid profile.
pub(crate) fn deprecated_app_armor_annotations(pod: &Value) -> Vec<String> {
    if is_windows(pod) {
        return Vec::new();
    }
    let mut keys = Vec::new();
    for list in CONTAINER_LISTS {
        for container in pod.list_at(&["spec", list]) {
            let key = format!("{APP_ARMOR_PREFIX}{}", container.text("name"));
            let Some(annotation) = pod.at(&["metadata", "annotations", &key]).and_then(Value::as_str) else {
                continue;
            };
            let profile = app_armor_profile(annotation).filter(is_valid_profile);
            // A field that equals the annotation was either copied from it by `apply_app_armor_annotations` or sent together
            // with it. Only the first case needs a warning. The pod's own profile is the only hint to distinguish them here.
            let field = container.part("securityContext").part("appArmorProfile");
            let warned = match &profile {
                None => field.is_none(),
                Some(profile) => {
                    same(Some(profile), field)
                        && !same(Some(profile), pod.at(&["spec", "securityContext", "appArmorProfile"]))
                }
            };
            if warned {
                keys.push(key);
            }
        }
    }
    keys
}

/// Fills in pod-level requests and limits from the containers and from each other, if the pod sets any of them.
fn default_pod_level_resources(pod: &mut Value) {
    let resources = pod.part("spec").part("resources");
    let is_empty = |field: &str| resources.map_of(field).is_none_or(Map::is_empty);
    if is_empty("requests") && is_empty("limits") {
        return;
    }
    let Some(spec) = pod.part("spec") else { return };
    let (limits, requests) = (of_spec(spec, "limits"), of_spec(spec, "requests"));
    let written =
        |pod: &Value, field: &str, name: &str| pod.at(&["spec", "resources", field, name]).is_some();

    let huge_pages: Vec<(Str, Value)> = limits
        .iter()
        .filter(|(name, _)| is_huge_page(name))
        .filter(|(name, _)| !written(pod, "requests", name) && !written(pod, "limits", name))
        .map(|(name, total)| (name.clone(), total.to_string().into()))
        .collect();
    add_pod_level_resources(pod, "limits", huge_pages);
    for (name, total) in &requests {
        if matches!(name.as_str(), "cpu" | "memory") && !written(pod, "requests", name) {
            pod.set_at(&["spec", "resources", "requests", name], total.to_string());
        }
    }
    let from_limits: Vec<(Str, Value)> = pod
        .part("spec")
        .part("resources")
        .entries("limits")
        .filter(|(name, _)| is_pod_level(name) && !written(pod, "requests", name))
        .map(|(name, limit)| (name.into(), limit.clone()))
        .collect();
    add_pod_level_resources(pod, "requests", from_limits);

    let every_container_limits = |pod: &Value, name: &str| {
        CONTAINER_LISTS
            .iter()
            .flat_map(|list| pod.list_at(&["spec", list]))
            .all(|container| container.at(&["resources", "limits", name]).is_some())
    };
    let candidates: Vec<(String, Quantity)> = pod
        .part("spec")
        .part("resources")
        .entries("requests")
        .filter(|(name, _)| is_pod_level(name) && !written(pod, "limits", name))
        .filter(|(name, _)| every_container_limits(pod, name))
        .filter_map(|(name, request)| Some((name.to_owned(), Quantity::parse(request.as_str()?).ok()?)))
        .collect();
    let from_requests = candidates.into_iter().filter_map(|(name, request)| {
        let total = limits.get(name.as_str())?;
        let limit = if request > *total { request } else { total.clone() };
        Some((Str::from(name), Value::from(limit.to_string())))
    });
    add_pod_level_resources(pod, "limits", from_requests.collect());
}

fn add_pod_level_resources(pod: &mut Value, field: &str, added: Vec<(Str, Value)>) {
    if !added.is_empty() {
        pod.make_map_at(&["spec", "resources", field]).extend(added);
    }
}

//! Validation of the `resize` subresource, which changes CPU and memory of a running pod.

use api::FieldErrors;
use api::validation::fields::{At, Read, Report, same};
use value::{Map, Value};

use super::annotations;
use super::resources::qos_class;

const SPEC: At<'static> = At::new("spec");

/// Adds the errors of the resize to `errors`, which holds those of the new pod itself.
pub(in crate::validation) fn resize(new: &Value, old: &Value, mut errors: FieldErrors) -> FieldErrors {
    if annotations::is_mirror(old) {
        return refused("static pods cannot be resized");
    }
    let no_spec = Value::Map(Map::new());
    let (new_spec, old_spec) = (new.part("spec").unwrap_or(&no_spec), old.part("spec").unwrap_or(&no_spec));
    if old_spec.part("os").text("name") == "windows" {
        return refused("windows pods cannot be resized");
    }
    let old_status = old.part("status");
    let old_class = match old_status.text("qosClass") {
        "" => qos_class(old),
        class => class,
    };
    if old_class != qos_class(new) {
        let class = new.part("status").text("qosClass").to_owned();
        errors.invalid(&SPEC, class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = old_status
        .items("containerStatuses")
        .iter()
        .find(|status| status.part("state").part("running").is_some());
    if running.is_some_and(|status| status.part("resources").is_none()) {
        errors.forbidden(&SPEC, "Pod running on node without support for resize");
    }
    let mut masked = new_spec.clone();
    let has_resources = |spec: &Value| {
        let resources = spec.part("resources");
        ["requests", "limits"].iter().any(|list| resources.entries(list).next().is_some())
    };
    if has_resources(old_spec) || has_resources(new_spec) {
        pod_level(new_spec, old_spec, &mut masked, &mut errors);
    }
    let before = errors.len();
    containers_in_order(new_spec, old_spec, &mut errors);
    if errors.len() > before {
        return errors;
    }
    for list in ["initContainers", "containers"] {
        let at = SPEC.field(list);
        for (i, (new, old)) in new_spec.items(list).iter().zip(old_spec.items(list)).enumerate() {
            let at = at.index(i);
            let (new, old) = (new.part("resources"), old.part("resources"));
            for (field, what) in [("requests", "resource requests"), ("limits", "resource limits")] {
                if is_removed(new, old, field) {
                    errors
                        .forbidden(&at.field("resources").field(field), format!("{what} cannot be removed"));
                }
            }
        }
    }
    mask_containers(&mut masked, old_spec, &mut errors);
    if !same(new_spec.part("volumes"), old_spec.part("volumes")) {
        let detail = "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled";
        errors.forbidden(&SPEC.field("volumes"), detail);
    }
    if errors.is_empty() && !same(Some(&masked), Some(old_spec)) {
        errors.forbidden(&SPEC, "only cpu and memory resources are mutable");
    }
    errors
}

fn refused(detail: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    errors.forbidden(&At::ROOT, detail);
    errors
}

fn pod_level(new: &Value, old: &Value, masked: &mut Value, errors: &mut FieldErrors) {
    let (new_resources, old_resources) = (new.part("resources"), old.part("resources"));
    if old_resources.is_some() && new_resources.is_none() {
        errors.forbidden(&SPEC.field("resources"), "pod-level resources cannot be removed");
        return;
    }
    if old_resources.is_some() {
        for field in ["requests", "limits"] {
            if is_removed(new_resources, old_resources, field) {
                let detail = format!("pod-level resource {field} cannot be removed");
                errors.forbidden(&SPEC.field("resources").field(field), detail);
            }
        }
    }
    if let Some(resources) = masked.get_mut("resources") {
        put_back_cpu_and_memory(resources, old_resources);
        let is_empty = ["requests", "limits"].iter().all(|list| resources.entries(list).next().is_none())
            && resources.items("claims").is_empty();
        if old_resources.is_none() && is_empty {
            masked.remove_at(&["resources"]);
        }
    }
    if !same(masked.part("resources"), old_resources) {
        errors.forbidden(&SPEC, "only cpu and memory resources are mutable at pod-level");
    }
}

fn is_removed(new: Option<&Value>, old: Option<&Value>, field: &str) -> bool {
    let new = new.part(field);
    old.entries(field).any(|(name, _)| new.part(name).is_none())
}

fn containers_in_order(new: &Value, old: &Value, errors: &mut FieldErrors) {
    for list in ["containers", "initContainers"] {
        let at = SPEC.field(list);
        let (new, old) = (new.items(list), old.items(list));
        if new.len() != old.len() {
            errors.forbidden(&at, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (i, (new, old)) in new.iter().zip(old).enumerate() {
            if new.text("name") != old.text("name") {
                let detail = format!("{list} may not be renamed or reordered on resize");
                errors.forbidden(&at.index(i).field("name"), detail);
            }
        }
    }
}

/// Resets CPU and memory of every container to the old values and reports any other difference.
fn mask_containers(masked: &mut Value, old: &Value, errors: &mut FieldErrors) {
    let each = masked.get_mut("containers").and_then(Value::as_list_mut).into_iter().flatten();
    for (container, old) in each.zip(old.items("containers")) {
        put_back_of_container(container, old);
        if !same(Some(container), Some(old)) {
            errors.forbidden(&SPEC, "only cpu and memory resources are mutable");
        }
    }
    let list = SPEC.field("initContainers");
    let each = masked.get_mut("initContainers").and_then(Value::as_list_mut).into_iter().flatten();
    for (i, (container, old)) in each.zip(old.items("initContainers")).enumerate() {
        let at = list.index(i);
        let changed = !same(Some(container), Some(old));
        put_back_of_container(container, old);
        if !same(Some(container), Some(old)) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&at, detail);
        }
        if changed && container.text("restartPolicy") != "Always" {
            for policy in container.items("resizePolicy") {
                if policy.text("restartPolicy") == "RestartContainer" {
                    let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                    errors.forbidden(&at, detail);
                }
            }
        }
    }
}

fn put_back_of_container(container: &mut Value, old: &Value) {
    let resources = container.make_map().entry_or_insert_with("resources", || Map::new().into());
    put_back_cpu_and_memory(resources, old.part("resources"));
    // This is not a pointer in Go: an empty map equals an absent one.
    let is_empty = resources.as_map().is_some_and(Map::is_empty);
    if is_empty && old.part("resources").is_none() {
        container.remove_at(&["resources"]);
    }
}

fn put_back_cpu_and_memory(resources: &mut Value, old: Option<&Value>) {
    for list in ["limits", "requests"] {
        let old_list = old.part(list);
        if resources.part(list).is_none() && old_list.is_none() {
            continue;
        }
        let quantities = resources.make_map().entry_or_insert_with(list, || Map::new().into()).make_map();
        for name in ["cpu", "memory"] {
            match old_list.part(name) {
                Some(quantity) => {
                    quantities.insert(name, quantity.clone());
                }
                None => {
                    quantities.remove(name);
                }
            }
        }
        if quantities.is_empty() && old_list.is_none() {
            resources.remove_at(&[list]);
        }
    }
}

//! Assigns a pod to the node that a Binding names.

use api::meta;
use api::time::Timestamp;
use value::Value;

use super::pod::drop_init_container_annotations;

/// Sets the node of a pod, and adds the labels and annotations of the binding; `now` is in seconds since the Unix epoch. The error says
/// why the pod cannot be assigned, in kube-apiserver's words.
pub fn assign_pod(pod: &mut Value, binding: &Value, now: i64) -> Result<(), String> {
    let name = meta::name(pod).to_owned();
    if meta::is_deleting(pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {}", api::field::quote(node)));
    }
    if !pod.list_at(&["spec", "schedulingGates"]).is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.set_at(&["spec", "nodeName"], binding.str_at(&["target", "name"]).unwrap_or_default());
    merge_metadata(pod, binding, "annotations");
    drop_init_container_annotations(pod);
    // The binding carries the topology labels of the node; the nomination is obsolete.
    merge_metadata(pod, binding, "labels");
    pod.remove_at(&["status", "nominatedNodeName"]);
    let mut conditions = pod.list_at(&["status", "conditions"]).to_vec();
    conditions.retain(|c| c.str_at(&["type"]) != Some("PodScheduled"));
    let time = Timestamp::from_seconds(now).time();
    conditions.push(Value::map([
        ("lastProbeTime", Value::Null),
        ("lastTransitionTime", Value::from(time)),
        ("status", Value::from("True")),
        ("type", Value::from("PodScheduled")),
    ]));
    pod.set_at(&["status", "conditions"], Value::List(conditions));
    Ok(())
}

/// Adds the labels or annotations of a binding to those of a pod, all at once: a client can send many.
fn merge_metadata(pod: &mut Value, binding: &Value, field: &str) {
    let added = binding.at(&["metadata", field]).and_then(Value::as_map);
    if let Some(added) = added.filter(|added| !added.is_empty()) {
        let added = added.iter().map(|(key, value)| (key.clone(), value.clone()));
        pod.make_map_at(&["metadata", field]).extend(added);
    }
}

#[cfg(test)]
mod tests {
    use value::{Value, json, steps};

    use super::assign_pod;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_pod_gets_the_labels_and_annotations_of_its_binding() {
        let mut pod = parse(r#"{"metadata":{"name":"p","labels":{"a":"pod","c":"pod"}},"spec":{}}"#);
        let binding = parse(
            r#"{"metadata":{"labels":{"a":"binding","b":"binding"},"annotations":{"x":"binding"}},"target":{"name":"n1"}}"#,
        );
        assign_pod(&mut pod, &binding, 0).unwrap();
        assert_eq!(pod.str_at(&["spec", "nodeName"]), Some("n1"));
        let metadata =
            r#"{"annotations":{"x":"binding"},"labels":{"a":"binding","b":"binding","c":"pod"},"name":"p"}"#;
        assert_eq!(value::write::to_string(pod.at(&["metadata"]).unwrap()), metadata);
        let again = assign_pod(&mut pod, &binding, 0).unwrap_err();
        assert_eq!(again, r#"pod p is already assigned to node "n1""#);
    }

    #[test]
    fn a_binding_without_labels_and_annotations_adds_none() {
        let mut pod = parse(r#"{"metadata":{"name":"p"},"spec":{}}"#);
        assign_pod(&mut pod, &parse(r#"{"metadata":{"labels":{}},"target":{"name":"n1"}}"#), 0).unwrap();
        assert_eq!(value::write::to_string(pod.at(&["metadata"]).unwrap()), r#"{"name":"p"}"#);
    }

    #[test]
    fn a_binding_with_ten_times_as_many_labels_takes_ten_times_as_many_steps() {
        // The labels of the binding come before those of the pod.
        let steps_of = |count: usize| {
            let map = |prefix: &str| Value::map((0..count).map(|i| (format!("{prefix}{i}"), "v")));
            let object = |prefix: &str| {
                let mut object = Value::map([("metadata", Value::map([("name", "p")]))]);
                for field in ["labels", "annotations"] {
                    object.set_at(&["metadata", field], map(prefix));
                }
                object
            };
            let (mut pod, binding) = (object("b"), object("a"));
            let steps = steps::of(|| assign_pod(&mut pod, &binding, 0).unwrap());
            assert_eq!(api::meta::labels(&pod).count(), 2 * count);
            steps
        };
        let (short, long) = (steps_of(1000), steps_of(10_000));
        assert!(long <= 11 * short, "{short} steps, then {long}");
    }
}

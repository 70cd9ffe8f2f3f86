use api::GroupResource;
use authn::User;

use super::*;
use crate::fake_cluster::{FakeCluster, wait};
use crate::{AdmissionSnapshot, VersionedObject};

/// Applies a patch that adds a text of so many bytes to a ConfigMap.
fn add(object: &Value, key: &str, bytes: usize) -> Result<Value, String> {
    let (user, options) = (User::named("alice"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "ConfigMap");
    let attributes = AdmissionAttributes {
        user: &user,
        operation: Operation::Create,
        kind: kind.clone(),
        stored_kind: kind.clone(),
        resource: GroupResource::new("", "configmaps"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "team".into(),
        name: "c".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: AdmissionSnapshot::default(),
    };
    let text = "a".repeat(bytes);
    let patch = format!(r#"[{{"op": "add", "path": "/data/{key}", "value": "{text}"}}]"#);
    let operations = decode(patch.as_bytes()).unwrap();
    let patched = wait(apply(object, &kind, &operations, &attributes, &FakeCluster::default()));
    patched.map(|patched| patched.object).map_err(|status| format!("{} {status}", status.code()))
}

#[test]
fn the_size_of_the_object_is_checked_after_every_patch() {
    let mut object = Value::map([("apiVersion", "v1"), ("kind", "ConfigMap")]);
    object.set_at(&["metadata", "name"], "c");
    object.set_at(&["data"], Value::Map(value::Map::new()));
    for key in ["a", "b"] {
        object = add(&object, key, 3 << 20).unwrap();
    }
    assert!(object.size_up_to(usize::MAX) > 6 << 20);
    let why = "413 Request entity too large: admission makes the object larger than 8388608 bytes";
    assert_eq!(add(&object, "c", 3 << 20), Err(why.to_owned()));
    assert!(add(&object, "c", 1 << 20).is_ok());
}

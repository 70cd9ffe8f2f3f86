use value::Value;

use super::{ConfigMapWrite, DESCRIPTION, DESCRIPTION_TEXT, needed_write};
use crate::fake::{kind, parse};

fn decide(namespace: Option<&str>, stored: Option<Value>) -> ConfigMapWrite {
    let config_maps = kind("", "v1", "ConfigMap", "configmaps", true);
    needed_write(namespace.map(parse).as_ref(), stored, "PEM", &config_maps, "n")
}

const ACTIVE: Option<&str> = Some(r#"{"metadata":{"name":"n"},"status":{"phase":"Active"}}"#);

fn created() -> Value {
    match decide(ACTIVE, None) {
        ConfigMapWrite::Create(object) => object,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_root_ca_config_map_is_created_in_active_namespaces() {
    let object = created();
    assert_eq!(object.str_at(&["data", "ca.crt"]), Some("PEM"));
    assert_eq!(object.str_at(&["metadata", "name"]), Some("kube-root-ca.crt"));
    assert_eq!(object.str_at(&["metadata", "annotations", DESCRIPTION]), Some(DESCRIPTION_TEXT));
    assert_eq!(decide(ACTIVE, Some(object)), ConfigMapWrite::Nothing);
}

#[test]
fn a_changed_root_ca_is_restored_and_other_metadata_is_preserved() {
    let mut object = created();
    object.set_at(&["data", "ca.crt"], "other");
    object.set_at(&["data", "more"], "text");
    object.set_at(&["metadata", "labels", "mine"], "kept");
    let ConfigMapWrite::Update(object) = decide(ACTIVE, Some(object)) else { panic!() };
    assert_eq!(object.at(&["data"]), Some(&parse(r#"{"ca.crt":"PEM"}"#)));
    assert_eq!(object.str_at(&["metadata", "labels", "mine"]), Some("kept"));
}

#[test]
fn a_custom_description_annotation_is_preserved_and_a_missing_one_is_added() {
    let mut object = created();
    object.set_at(&["metadata", "annotations", DESCRIPTION], "ours");
    assert_eq!(decide(ACTIVE, Some(object.clone())), ConfigMapWrite::Nothing);
    object.remove_at(&["metadata", "annotations"]);
    assert!(matches!(decide(ACTIVE, Some(object)), ConfigMapWrite::Update(_)));
}

#[test]
fn the_root_ca_is_not_published_to_terminating_or_deleted_namespaces() {
    assert_eq!(decide(Some(r#"{"status":{"phase":"Terminating"}}"#), None), ConfigMapWrite::Nothing);
    assert_eq!(decide(None, None), ConfigMapWrite::Nothing);
}

//! CustomResourceDefinitions in `apiextensions.k8s.io/v1beta1`, the version that Kubernetes stores.
//!
//! In v1beta1, what all versions of a CRD have in common may be stated once, for the CRD.

use value::{Map, Value};

/// Fields of a version in v1, and of the whole CRD in v1beta1.
const COMMON: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Converts a CRD from v1 as Kubernetes does to store it: common fields move to the CRD if they are equal in all versions.
pub(super) fn to_v1beta1(mut crd: Value) -> Value {
    crd.set_at(&["apiVersion"], "apiextensions.k8s.io/v1beta1");
    let first = crd.list_at(&["spec", "versions"]).first().and_then(|version| version.str_at(&["name"]));
    if let Some(first) = first.map(str::to_owned) {
        crd.set_at(&["spec", "version"], first);
    }
    for (of_version, of_crd) in COMMON {
        if let Some(common) = take_common(&mut crd, of_version)
            && !is_empty(&common)
        {
            crd.set_at(&["spec", of_crd], common);
        }
    }
    if let Some(mut webhook) = crd.remove_at(&["spec", "conversion", "webhook"]) {
        for (of_webhook, of_conversion) in [
            ("clientConfig", "webhookClientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            if let Some(moved) = webhook.remove_at(&[of_webhook]) {
                crd.set_at(&["spec", "conversion", of_conversion], moved);
            }
        }
    }
    if crd.at(&["spec", "preserveUnknownFields"]).is_none() {
        crd.set_at(&["spec", "preserveUnknownFields"], false);
    }
    rename_column_paths(&mut crd, "jsonPath", "JSONPath");
    crd
}

/// Renames the path of every printer column, of the CRD and of its versions.
fn rename_column_paths(crd: &mut Value, from: &str, to: &str) {
    fn columns(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
        value.and_then(|of| of.at_mut(&["additionalPrinterColumns"])).into_iter().flat_map(items)
    }
    fn items(list: &mut Value) -> impl Iterator<Item = &mut Value> {
        if let Value::List(items) = list { items.iter_mut() } else { [].iter_mut() }
    }
    let rename = |column: &mut Value| {
        if let Some(path) = column.remove_at(&[from]) {
            column.set_at(&[to], path);
        }
    };
    columns(crd.at_mut(&["spec"])).for_each(rename);
    let versions = crd.at_mut(&["spec", "versions"]).into_iter().flat_map(items);
    versions.flat_map(|version| columns(Some(version))).for_each(rename);
}

/// Removes a field from all versions and returns it, if it is equal in all of them.
fn take_common(crd: &mut Value, field: &str) -> Option<Value> {
    let Some(Value::List(versions)) = crd.at_mut(&["spec", "versions"]) else { return None };
    let of = |version: &Value| version.at(&[field]).filter(|value| !is_empty(value)).cloned();
    let common = of(versions.first()?);
    if versions.iter().any(|version| of(version) != common) {
        return None;
    }
    for version in versions {
        version.remove_at(&[field]);
    }
    common
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

/// Converts a stored CRD to v1, with the defaults of v1beta1. Common fields replace those of the versions.
pub(super) fn from_v1beta1(crd: &mut Value) {
    crd.set_at(&["apiVersion"], "apiextensions.k8s.io/v1");
    rename_column_paths(crd, "JSONPath", "jsonPath");
    let old_version = crd.remove_at(&["spec", "version"]);
    if crd.list_at(&["spec", "versions"]).is_empty()
        && let Some(name) = old_version
    {
        let only = Value::map([("name", name), ("served", true.into()), ("storage", true.into())]);
        crd.set_at(&["spec", "versions"], Value::List(vec![only]));
    }
    for (of_version, of_crd) in COMMON {
        let common = crd.remove_at(&["spec", of_crd]);
        if let (Some(common), Some(Value::List(versions))) = (common, crd.at_mut(&["spec", "versions"])) {
            for version in versions {
                version.set_at(&[of_version], common.clone());
            }
        }
    }
    let mut webhook = Map::new();
    for (of_conversion, of_webhook) in
        [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
    {
        if let Some(moved) = crd.remove_at(&["spec", "conversion", of_conversion]) {
            webhook.insert(of_webhook, moved);
        }
    }
    if crd.str_at(&["spec", "conversion", "strategy"]) == Some("Webhook") {
        if webhook.get("conversionReviewVersions").is_none() {
            webhook.insert("conversionReviewVersions", Value::List(vec!["v1beta1".into()]));
        }
        crd.set_at(&["spec", "conversion", "webhook"], Value::Map(webhook));
    }
    if crd.at(&["spec", "preserveUnknownFields"]).is_none() {
        crd.set_at(&["spec", "preserveUnknownFields"], true);
    }
    if crd.at(&["spec", "scope"]).is_none() {
        crd.set_at(&["spec", "scope"], "Namespaced");
    }
}

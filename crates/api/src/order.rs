//! Field order of the objects that Kubernetes encodes from its own types: `Status`, lists, tables, discovery.
//!
//! Stored objects are written from their stored bytes, which have `kind` and `apiVersion` first and all other keys
//! sorted.

use value::Value;
use value::order::{KeyOrder, SORTED};

/// Order of an object of a built-in kind, or without a kind.
pub fn of(value: &Value) -> &'static KeyOrder {
    match value.str_at(&["kind"]) {
        Some("Status") => &STATUS,
        Some("Table") => &TABLE,
        Some("Statusz" | "Flagz") => &PAGE,
        Some("APIVersions") => &VERSIONS,
        Some("APIGroup") => &GROUP,
        Some("APIGroupList") => &GROUPS,
        Some("APIResourceList") => &RESOURCES,
        Some("APIGroupDiscoveryList") => &DISCOVERY,
        Some(kind) if kind.ends_with("List") && value.at(&["items"]).is_some() => &LIST,
        Some(_) => &OBJECT,
        None if value.at(&["gitVersion"]).is_some() => &VERSION,
        None => &SORTED,
    }
}

/// Order of a custom resource: sorted, except for the forms that every kind has, such as lists and tables.
pub fn of_custom(value: &Value) -> &'static KeyOrder {
    match value.str_at(&["kind"]) {
        Some("Status" | "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList") => of(value),
        Some("Scale") if value.str_at(&["apiVersion"]) == Some("autoscaling/v1") => &OBJECT,
        _ => &SORTED,
    }
}

static OBJECT: KeyOrder = KeyOrder(&[("kind", &SORTED), ("apiVersion", &SORTED)]);

/// Order of a list's `metadata`.
pub static LIST_META: KeyOrder =
    KeyOrder(&[("resourceVersion", &SORTED), ("continue", &SORTED), ("remainingItemCount", &SORTED)]);

static LIST: KeyOrder =
    KeyOrder(&[("kind", &SORTED), ("apiVersion", &SORTED), ("metadata", &LIST_META), ("items", &OBJECT)]);

static STATUS: KeyOrder = KeyOrder(&[
    ("kind", &SORTED),
    ("apiVersion", &SORTED),
    ("metadata", &LIST_META),
    ("status", &SORTED),
    ("message", &SORTED),
    ("reason", &SORTED),
    ("details", &DETAILS),
    ("code", &SORTED),
]);

static DETAILS: KeyOrder = KeyOrder(&[
    ("name", &SORTED),
    ("group", &SORTED),
    ("kind", &SORTED),
    ("uid", &SORTED),
    ("causes", &CAUSE),
    ("retryAfterSeconds", &SORTED),
]);

static CAUSE: KeyOrder = KeyOrder(&[("reason", &SORTED), ("message", &SORTED), ("field", &SORTED)]);

static TABLE: KeyOrder = KeyOrder(&[
    ("kind", &SORTED),
    ("apiVersion", &SORTED),
    ("metadata", &LIST_META),
    ("columnDefinitions", &COLUMN),
    ("rows", &ROW),
]);

static COLUMN: KeyOrder = KeyOrder(&[
    ("name", &SORTED),
    ("type", &SORTED),
    ("format", &SORTED),
    ("description", &SORTED),
    ("priority", &SORTED),
]);

static ROW: KeyOrder = KeyOrder(&[("cells", &SORTED), ("conditions", &SORTED), ("object", &OBJECT)]);

static PAGE: KeyOrder = KeyOrder(&[
    ("kind", &SORTED),
    ("apiVersion", &SORTED),
    ("metadata", &SORTED),
    ("startTime", &SORTED),
    ("uptimeSeconds", &SORTED),
    ("binaryVersion", &SORTED),
    ("emulationVersion", &SORTED),
    ("paths", &SORTED),
    ("flags", &SORTED),
]);

static VERSIONS: KeyOrder =
    KeyOrder(&[("kind", &SORTED), ("versions", &SORTED), ("serverAddressByClientCIDRs", &SORTED)]);

static GROUP: KeyOrder = KeyOrder(&[
    ("kind", &SORTED),
    ("apiVersion", &SORTED),
    ("name", &SORTED),
    ("versions", &SORTED),
    ("preferredVersion", &SORTED),
]);

static GROUPS: KeyOrder = KeyOrder(&[("kind", &SORTED), ("apiVersion", &SORTED), ("groups", &GROUP)]);

static RESOURCES: KeyOrder = KeyOrder(&[
    ("kind", &SORTED),
    ("apiVersion", &SORTED),
    ("groupVersion", &SORTED),
    ("resources", &RESOURCE),
]);

static RESOURCE: KeyOrder = KeyOrder(&[
    ("name", &SORTED),
    ("singularName", &SORTED),
    ("namespaced", &SORTED),
    ("group", &SORTED),
    ("version", &SORTED),
    ("kind", &SORTED),
    ("verbs", &SORTED),
    ("shortNames", &SORTED),
    ("categories", &SORTED),
    ("storageVersionHash", &SORTED),
]);

static DISCOVERY: KeyOrder = KeyOrder(&[
    ("kind", &SORTED),
    ("apiVersion", &SORTED),
    ("metadata", &SORTED),
    ("items", &DISCOVERED_GROUP),
]);

static DISCOVERED_GROUP: KeyOrder = KeyOrder(&[("metadata", &SORTED), ("versions", &DISCOVERED_VERSION)]);

static DISCOVERED_VERSION: KeyOrder =
    KeyOrder(&[("version", &SORTED), ("resources", &DISCOVERED), ("freshness", &SORTED)]);

static DISCOVERED: KeyOrder = KeyOrder(&[
    ("resource", &SORTED),
    ("responseKind", &GVK),
    ("scope", &SORTED),
    ("singularResource", &SORTED),
    ("verbs", &SORTED),
    ("shortNames", &SORTED),
    ("categories", &SORTED),
    ("subresources", &SUBRESOURCE),
]);

static SUBRESOURCE: KeyOrder = KeyOrder(&[
    ("subresource", &SORTED),
    ("responseKind", &GVK),
    ("acceptedTypes", &GVK),
    ("verbs", &SORTED),
]);

static GVK: KeyOrder = KeyOrder(&[("group", &SORTED), ("version", &SORTED), ("kind", &SORTED)]);

static VERSION: KeyOrder = KeyOrder(&[
    ("major", &SORTED),
    ("minor", &SORTED),
    ("emulationMajor", &SORTED),
    ("emulationMinor", &SORTED),
    ("minCompatibilityMajor", &SORTED),
    ("minCompatibilityMinor", &SORTED),
    ("gitVersion", &SORTED),
    ("gitCommit", &SORTED),
    ("gitTreeState", &SORTED),
    ("buildDate", &SORTED),
    ("goVersion", &SORTED),
    ("compiler", &SORTED),
    ("platform", &SORTED),
]);

#[cfg(test)]
mod tests {
    use value::json;

    use super::{of, of_custom};
    use crate::{GroupResource, Status};

    fn written(json: &str) -> String {
        let value = json::parse(json.as_bytes()).unwrap();
        let mut out = Vec::new();
        of(&value).write(&mut out, &value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_status_is_written_in_the_order_of_its_fields() {
        let status = Status::not_found(&GroupResource::new("apps", "deployments"), "d").to_value();
        let mut out = Vec::new();
        of(&status).write(&mut out, &status);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"d\" not found","reason":"NotFound","details":{"name":"d","group":"apps","kind":"deployments"},"code":404}"#
        );
        assert_eq!(
            written(
                r#"{"kind":"Status","details":{"causes":[{"field":"f","message":"m","reason":"r"}],"uid":"u"}}"#
            ),
            r#"{"kind":"Status","details":{"uid":"u","causes":[{"reason":"r","message":"m","field":"f"}]}}"#
        );
    }

    #[test]
    fn list_items_are_written_last_and_unknown_fields_are_sorted() {
        assert_eq!(
            written(
                r#"{"apiVersion":"v1","items":[{"z":1,"a":2,"kind":"P"}],"kind":"PodList","metadata":{"continue":"c","resourceVersion":"1"}}"#
            ),
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"c"},"items":[{"kind":"P","a":2,"z":1}]}"#
        );
        assert_eq!(written(r#"{"b":1,"a":[{"d":1,"c":2}]}"#), r#"{"a":[{"c":2,"d":1}],"b":1}"#);
    }

    #[test]
    fn custom_resource_fields_are_sorted_for_every_kind_name() {
        let list = json::parse(br#"{"kind":"WidgetList","items":[],"apiVersion":"v1"}"#).unwrap();
        let mut out = Vec::new();
        of_custom(&list).write(&mut out, &list);
        assert_eq!(out, br#"{"apiVersion":"v1","items":[],"kind":"WidgetList"}"#);
    }
}

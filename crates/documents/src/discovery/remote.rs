//! Converts the discovery documents of aggregated API servers into entries of the aggregated document.
//!
//! INVARIANT: no part of a remote document is passed on unchanged. Known fields are read and written again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::gvk::compare_versions;
use kinds::table::priority::{self, ApiServicePriority};

use value::{Map, Str, Value};

use super::{GroupEntries, Registration, aggregated_group, aggregated_list, aggregated_version};

/// A group and version served by an aggregated API server.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteVersion {
    pub registration: Registration,
    /// Its entry, from [`aggregated_versions`], [`legacy_version`] or [`stale_version`].
    pub entry: Arc<Value>,
}

/// The entry of a version whose server cannot be reached.
pub fn stale_version(version: &str) -> Value {
    Value::map([("version", version), ("freshness", "Stale")])
}

/// The entry of `group` and `version` in an `APIGroupDiscoveryList`; without resources if the list does not have it. Returns an error
/// if the document is not such a list.
pub fn aggregated_versions(list: &Value, group: &str, version: &str) -> Result<Value, String> {
    is_a(list, "apidiscovery.k8s.io/v2", "APIGroupDiscoveryList")?;
    let mut found = None;
    for item in items(list, "items")? {
        for listed in items(item, "versions")? {
            if item.str_at(&["metadata", "name"]) == Some(group)
                && listed.str_at(&["version"]) == Some(version)
            {
                found = Some(listed);
            }
        }
    }
    let resources = found.map(|found| items(found, "resources")).transpose()?.unwrap_or_default();
    for found in resources {
        is_typed(found, &["resource", "scope"])?;
    }
    Ok(current(version, resources.iter().map(resource).collect()))
}

/// Checks the apiVersion and kind of a document.
fn is_a(document: &Value, api_version: &str, kind: &str) -> Result<(), String> {
    let said = |field| document.str_at(&[field]).unwrap_or_default();
    if said("apiVersion") == api_version && said("kind") == kind {
        return Ok(());
    }
    Err(format!("the document is not a {kind} of {api_version}"))
}

/// The items of an optional list field.
fn items<'v>(of: &'v Value, field: &str) -> Result<&'v [Value], String> {
    match of.get(field) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::List(items)) => Ok(items),
        Some(other) => Err(format!("{field} is no list but of type {}", other.json_type())),
    }
}

/// Checks that these optional fields of a resource are strings and that its verbs are a list of strings.
fn is_typed(resource: &Value, texts: &[&str]) -> Result<(), String> {
    for field in texts {
        if !matches!(resource.get(field), None | Some(Value::Null | Value::String(_))) {
            return Err(format!("{field} is no text"));
        }
    }
    if items(resource, "verbs")?.iter().any(|verb| verb.as_str().is_none()) {
        return Err("a verb is no text".to_owned());
    }
    Ok(())
}

/// The entry of a version from its `APIResourceList`.
pub fn legacy_version(list: &Value, version: &str) -> Result<Value, String> {
    is_a(list, "v1", "APIResourceList")?;
    let all = items(list, "resources")?;
    for item in all {
        is_typed(item, &["name"])?;
        if !matches!(item.get("namespaced"), None | Some(Value::Null | Value::Bool(_))) {
            return Err("namespaced is neither true nor false".to_owned());
        }
    }
    let mut resources = ResourceEntries::default();
    for item in all.iter().filter(|item| !text(item, "name").contains('/')) {
        resources.add(text(item, "name"), legacy_resource(item));
    }
    for item in all {
        if let Some((parent, below)) = text(item, "name").split_once('/') {
            resources.add_subresource(parent, below, item)?;
        }
    }
    Ok(current(version, resources.finish()))
}

fn text<'a>(item: &'a Value, field: &str) -> &'a str {
    item.str_at(&[field]).unwrap_or_default()
}

fn scope(item: &Value) -> &'static str {
    match item.bool_at(&["namespaced"]) {
        Some(true) => "Namespaced",
        _ => "Cluster",
    }
}

fn kind(item: &Value) -> Value {
    Value::map([
        ("group", text(item, "group")),
        ("version", text(item, "version")),
        ("kind", text(item, "kind")),
    ])
}

/// The entry of a resource from its `APIResource`, without subresources.
fn legacy_resource(item: &Value) -> Value {
    let mut resource = Map::new();
    resource.insert("resource", text(item, "name"));
    resource.insert("responseKind", kind(item));
    resource.insert("scope", scope(item));
    resource.insert("singularResource", text(item, "singularName"));
    resource.insert("verbs", strings(item, "verbs"));
    for field in ["shortNames", "categories"] {
        keep_list(&mut resource, item, field);
    }
    Value::Map(resource)
}

/// The entries of the resources of a version, in their order, with their subresources.
#[derive(Default)]
struct ResourceEntries {
    resources: Vec<(Value, Vec<Value>)>,
    /// The first entry of each name.
    index_by_name: HashMap<Str, usize>,
}

impl ResourceEntries {
    fn add(&mut self, name: &str, resource: Value) {
        self.index_by_name.entry(name.into()).or_insert(self.resources.len());
        self.resources.push((resource, Vec::new()));
    }

    /// Adds the subresource `below` from its `APIResource`. A parent without an entry of its own gets one, which has no kind.
    fn add_subresource(&mut self, parent: &str, below: &str, item: &Value) -> Result<(), String> {
        if !self.index_by_name.contains_key(parent) {
            let resource = Value::map([
                ("resource", Value::from(parent)),
                ("responseKind", no_kind()),
                ("scope", scope(item).into()),
                ("singularResource", "".into()),
                ("verbs", Value::List(Vec::new())),
            ]);
            self.add(parent, resource);
        }
        let entry = self.index_by_name.get(parent).and_then(|at| self.resources.get_mut(*at));
        let Some((resource, subresources)) = entry else { return Ok(()) };
        let parent_scope = text(resource, "scope");
        if parent_scope != scope(item) {
            return Err(format!(
                "Error: Parent {parent} (scope: {parent_scope}) and subresource {below} (scope: {}) scope do not match",
                scope(item)
            ));
        }
        let response_kind = if text(item, "kind").is_empty() { no_kind() } else { kind(item) };
        subresources.push(Value::map([
            ("subresource", Value::from(below)),
            ("responseKind", response_kind),
            ("verbs", strings(item, "verbs")),
        ]));
        Ok(())
    }

    fn finish(self) -> Vec<Value> {
        let complete = |(mut resource, subresources): (Value, Vec<Value>)| {
            if !subresources.is_empty() {
                resource.set_at(&["subresources"], Value::List(subresources));
            }
            resource
        };
        self.resources.into_iter().map(complete).collect()
    }
}

fn current(version: &str, resources: Vec<Value>) -> Value {
    let mut entry = Map::new();
    entry.insert("version", version);
    if !resources.is_empty() {
        entry.insert("resources", Value::List(resources));
    }
    entry.insert("freshness", "Current");
    Value::Map(entry)
}

/// Rewrites a resource of a remote aggregated document.
fn resource(found: &Value) -> Value {
    let mut resource = Map::new();
    resource.insert("resource", found.str_at(&["resource"]).unwrap_or_default());
    resource.insert("responseKind", response_kind(found));
    resource.insert("scope", found.str_at(&["scope"]).unwrap_or_default());
    resource.insert("singularResource", found.str_at(&["singularResource"]).unwrap_or_default());
    resource.insert("verbs", strings(found, "verbs"));
    for field in ["shortNames", "categories"] {
        keep_list(&mut resource, found, field);
    }
    let below = found.list_at(&["subresources"]);
    if !below.is_empty() {
        let below = below.iter().map(|found| {
            let mut subresource = Map::new();
            subresource.insert("subresource", found.str_at(&["subresource"]).unwrap_or_default());
            subresource.insert("responseKind", response_kind(found));
            let accepted = found.list_at(&["acceptedTypes"]);
            if !accepted.is_empty() {
                subresource.insert("acceptedTypes", Value::list(accepted.iter().map(group_version_kind)));
            }
            subresource.insert("verbs", strings(found, "verbs"));
            Value::Map(subresource)
        });
        resource.insert("subresources", Value::list(below));
    }
    Value::Map(resource)
}

fn response_kind(found: &Value) -> Value {
    // Some clients require this field.
    found.get("responseKind").map_or_else(no_kind, group_version_kind)
}

fn group_version_kind(found: &Value) -> Value {
    let part = |field: &'static str| (field, found.str_at(&[field]).unwrap_or_default());
    Value::map([part("group"), part("version"), part("kind")])
}

fn no_kind() -> Value {
    group_version_kind(&Value::Null)
}

fn strings(item: &Value, field: &str) -> Value {
    Value::list(item.list_at(&[field]).iter().filter_map(Value::as_str))
}

fn keep_list(resource: &mut Map, item: &Value, field: &'static str) {
    if !item.list_at(&[field]).is_empty() {
        resource.insert(field, strings(item, field));
    }
}

/// The aggregated document of local and remote groups. A version registered for an aggregated API server replaces the local one.
pub(super) fn merge<'a>(
    local: impl Iterator<Item = &'a GroupEntries<'a>>,
    remote: &[RemoteVersion],
) -> Value {
    let mut groups: BTreeMap<&str, BTreeMap<&str, (ApiServicePriority, Value)>> = BTreeMap::new();
    for group in local {
        for (version, entries) in &group.versions {
            let priority = match priority::priority(group.name, version) {
                Some(priority) => priority,
                None if group.name == "apiregistration.k8s.io" => priority::REGISTRATION,
                None => priority::CUSTOM,
            };
            let entry = aggregated_version(version, entries);
            groups.entry(group.name).or_default().insert(version, (priority, entry));
        }
    }
    for RemoteVersion { registration, entry } in remote {
        let priority = (registration.group_priority, registration.version_priority);
        let versions = groups.entry(registration.group.as_str()).or_default();
        versions.insert(registration.version.as_str(), (priority, Value::clone(entry)));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(name, versions)| {
        (Reverse(versions.values().map(|((group, _), _)| *group).max()), *name)
    });
    aggregated_list(groups.into_iter().map(|(name, versions)| {
        let mut versions: Vec<_> = versions.into_iter().collect();
        versions.sort_by(|(a, ((_, a_priority), _)), (b, ((_, b_priority), _))| {
            b_priority.cmp(a_priority).then_with(|| compare_versions(a, b))
        });
        aggregated_group(name, versions.into_iter().map(|(_, (_, entry))| entry))
    }))
}

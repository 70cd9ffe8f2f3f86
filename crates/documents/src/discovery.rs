//! Builds discovery documents from the table of built-in resources and from CRDs.
//!
//! The legacy form has one document per level (`/api`, `/apis`, `/apis/GROUP`, `/apis/GROUP/VERSION`); the aggregated form has one document
//! each for `/api` and `/apis`. Both are built from [`DiscoveryResource`] rows: those of the table and those that the caller adds for
//! custom resources.

#[cfg(test)]
mod built_in_tests;
mod registered;
mod remote;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use api::gvk::compare_versions;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use value::{Map, Value};

use kinds::table::{GROUPS, KindStorage, Resource, Served, Verb};

pub use registered::{Registration, built_in, of_custom_version, registered_group, registered_groups};
pub use remote::{RemoteVersion, aggregated_versions, legacy_version, stale_version};

/// Media type of the aggregated form.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[derive(Clone, Debug)]
pub struct DiscoveryResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
    pub plural: &'a str,
    pub singular: &'a str,
    pub short_names: Vec<&'a str>,
    pub categories: Vec<&'a str>,
    pub namespaced: bool,
    pub verbs: &'a [Verb],
    /// The subresources, sorted by name.
    pub subresources: Vec<DiscoverySubresource<'a>>,
    /// The `storageVersionHash`; `None` if objects are not stored.
    pub storage_hash: Option<String>,
    /// Whether it is a custom resource. The aggregated form includes the group and version in the `responseKind` of those.
    pub custom: bool,
}

#[derive(Clone, Debug)]
pub struct DiscoverySubresource<'a> {
    pub name: &'a str,
    pub kind: &'a str,
    /// The group and version of the kind, if they differ from those of the resource.
    pub group_version: Option<(&'a str, &'a str)>,
    pub verbs: &'a [Verb],
}

impl DiscoveryResource<'static> {
    /// Builds the entry of a table row in one of its versions.
    pub fn of(row: &'static Resource, version: &'static str) -> Self {
        DiscoveryResource {
            group: row.group,
            version,
            kind: row.kind,
            plural: row.plural,
            singular: row.singular,
            short_names: row.short_names.to_vec(),
            categories: row.categories.to_vec(),
            namespaced: row.is_namespaced(),
            verbs: row.verbs,
            subresources: row
                .subresources
                .iter()
                .map(|sub| DiscoverySubresource {
                    name: sub.name,
                    kind: sub.kind,
                    group_version: sub.group_version,
                    verbs: sub.verbs,
                })
                .collect(),
            storage_hash: storage_hash(row),
            custom: false,
        }
    }
}

/// The `storageVersionHash` of a resource. Resources with equal hashes share their stored objects.
pub fn storage_hash(row: &Resource) -> Option<String> {
    match row.storage {
        KindStorage::Own(version) => Some(hash(row.group, row.hashed_version.unwrap_or(version), row.kind)),
        KindStorage::With(group, version) => Some(hash(group, version, row.kind)),
        KindStorage::Nowhere => None,
    }
}

/// The `storageVersionHash` of a stored group, version and kind.
pub fn hash(group: &str, version: &str, kind: &str) -> String {
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    STANDARD.encode(digest.get(..8).unwrap_or_default())
}

/// The legacy document at `/api`.
pub fn core_versions(server_address: &str) -> Value {
    Value::map([
        ("kind", Value::from("APIVersions")),
        ("versions", Value::list(["v1"])),
        (
            "serverAddressByClientCIDRs",
            Value::list([Value::map([("clientCIDR", "0.0.0.0/0"), ("serverAddress", server_address)])]),
        ),
    ])
}

/// The legacy document at `/apis/GROUP` for a group that is served without an APIService.
pub fn group(served: &Served, custom: &[DiscoveryResource<'_>], name: &str) -> Option<Value> {
    let groups = ServedGroups::collect(served, custom);
    let mut document = group_document(groups.named().find(|group| group.name == name)?);
    document.insert("kind", "APIGroup");
    document.insert("apiVersion", "v1");
    Some(Value::Map(document))
}

/// The legacy document at `/api/v1` or `/apis/GROUP/VERSION`.
pub fn resources(
    served: &Served,
    custom: &[DiscoveryResource<'_>],
    group: &str,
    version: &str,
) -> Option<Value> {
    let groups = ServedGroups::collect(served, custom);
    let found = groups.0.iter().find(|found| found.name == group)?;
    let (_, entries) = found.versions.iter().find(|(name, _)| *name == version)?;
    let mut list = Vec::new();
    for entry in entries {
        let mut resource = Map::new();
        resource.insert("name", entry.plural);
        resource.insert("singularName", entry.singular);
        resource.insert("namespaced", entry.namespaced);
        resource.insert("kind", entry.kind);
        resource.insert("verbs", verbs(entry.verbs));
        names(&mut resource, "shortNames", &entry.short_names);
        names(&mut resource, "categories", &entry.categories);
        if let Some(hash) = &entry.storage_hash {
            resource.insert("storageVersionHash", hash.as_str());
        }
        list.push(Value::Map(resource));
        for sub in &entry.subresources {
            let mut resource = Map::new();
            resource.insert("name", format!("{}/{}", entry.plural, sub.name).as_str());
            resource.insert("singularName", "");
            resource.insert("namespaced", entry.namespaced);
            if let Some((group, version)) = sub.group_version {
                resource.insert("group", group);
                resource.insert("version", version);
            }
            resource.insert("kind", sub.kind);
            resource.insert("verbs", verbs(sub.verbs));
            list.push(Value::Map(resource));
        }
    }
    let mut document = Map::new();
    document.insert("kind", "APIResourceList");
    // The document of the core group never had an apiVersion.
    if !group.is_empty() {
        document.insert("apiVersion", "v1");
    }
    document.insert("groupVersion", group_version(group, version));
    document.insert("resources", Value::List(list));
    Some(Value::Map(document))
}

/// The aggregated document at `/api`.
pub fn aggregated_core(served: &Served) -> Value {
    let groups = ServedGroups::collect(served, &[]);
    aggregated(groups.0.iter().filter(|group| group.name.is_empty()))
}

/// The aggregated document at `/apis`, including groups of aggregated API servers.
pub fn aggregated_groups(
    served: &Served,
    custom: &[DiscoveryResource<'_>],
    remote: &[RemoteVersion],
) -> Value {
    let groups = ServedGroups::collect(served, custom);
    if remote.is_empty() {
        return aggregated(groups.named());
    }
    remote::merge(groups.named(), remote)
}

/// The groups with at least one served version, in order.
struct ServedGroups<'a>(Vec<GroupEntries<'a>>);

struct GroupEntries<'a> {
    name: &'a str,
    versions: Vec<(&'a str, Vec<DiscoveryResource<'a>>)>,
}

impl<'a> ServedGroups<'a> {
    fn collect(served: &Served, custom: &'a [DiscoveryResource<'a>]) -> Self {
        let mut groups: Vec<GroupEntries<'a>> = GROUPS
            .iter()
            .map(|group| {
                let versions = group.versions.iter().filter(|version| served.is_served(group.name, version));
                let versions = versions.map(|version| {
                    let rows = group.resources.iter().filter(|row| served.is_resource_served(row, version));
                    (*version, rows.map(|row| DiscoveryResource::of(row, version)).collect())
                });
                GroupEntries { name: group.name, versions: versions.collect() }
            })
            .filter(|group: &GroupEntries<'_>| !group.versions.is_empty())
            .collect();
        // Custom groups follow the built-in ones, sorted by name.
        let mut by_group: BTreeMap<&str, Vec<&DiscoveryResource<'a>>> = BTreeMap::new();
        // A group version that is served by built-in resources has no custom ones: clients would send requests for its kinds to them.
        for entry in custom.iter().filter(|entry| !served.is_served(entry.group, entry.version)) {
            by_group.entry(entry.group).or_default().push(entry);
        }
        let built_in = groups.len();
        for (name, entries) in by_group {
            // Only built-in groups need a search, because no custom group occurs twice.
            let at = groups.iter().take(built_in).position(|group| group.name == name);
            let mut group = match at {
                Some(at) => groups.remove(at),
                None => GroupEntries { name, versions: Vec::new() },
            };
            let mut by_version: HashMap<&str, usize> =
                group.versions.iter().enumerate().map(|(at, (version, _))| (*version, at)).collect();
            for entry in entries {
                let at = *by_version.entry(entry.version).or_insert_with(|| {
                    group.versions.push((entry.version, Vec::new()));
                    group.versions.len() - 1
                });
                if let Some((_, entries)) = group.versions.get_mut(at) {
                    entries.push(entry.clone());
                }
            }
            for (_, entries) in &mut group.versions {
                entries.sort_by(|a, b| a.plural.cmp(b.plural));
            }
            group.versions.sort_by(|(a, _), (b, _)| compare_versions(a, b));
            groups.insert(at.unwrap_or(groups.len()), group);
        }
        ServedGroups(groups)
    }

    /// The groups under `/apis`, which excludes the core group.
    fn named(&self) -> impl Iterator<Item = &GroupEntries<'a>> {
        self.0.iter().filter(|group| !group.name.is_empty())
    }
}

fn group_document(group: &GroupEntries<'_>) -> Map {
    let version = |version: &str| {
        Value::map([
            ("groupVersion", Value::from(group_version(group.name, version))),
            ("version", Value::from(version)),
        ])
    };
    let mut document = Map::new();
    document.insert("name", group.name);
    document.insert("versions", Value::list(group.versions.iter().map(|(name, _)| version(name))));
    if let Some((preferred, _)) = group.versions.first() {
        document.insert("preferredVersion", version(preferred));
    }
    document
}

fn aggregated<'a>(groups: impl Iterator<Item = &'a GroupEntries<'a>>) -> Value {
    aggregated_list(groups.map(|group| {
        let versions = group.versions.iter();
        aggregated_group(group.name, versions.map(|(version, entries)| aggregated_version(version, entries)))
    }))
}

fn aggregated_group(name: &str, versions: impl Iterator<Item = Value>) -> Value {
    let metadata = match name {
        "" => Map::new(),
        name => Map::from_iter([("name".into(), name.into())]),
    };
    Value::map([("metadata", Value::Map(metadata)), ("versions", Value::list(versions))])
}

fn aggregated_version(version: &str, entries: &[DiscoveryResource<'_>]) -> Value {
    Value::map([
        ("version", Value::from(version)),
        ("resources", Value::list(entries.iter().map(aggregated_resource))),
        ("freshness", Value::from("Current")),
    ])
}

fn aggregated_list(items: impl Iterator<Item = Value>) -> Value {
    Value::map([
        ("kind", Value::from("APIGroupDiscoveryList")),
        ("apiVersion", Value::from("apidiscovery.k8s.io/v2")),
        ("metadata", Value::Map(Map::new())),
        ("items", Value::list(items)),
    ])
}

fn aggregated_resource(entry: &DiscoveryResource<'_>) -> Value {
    // The group and version are given only if they differ from those of the resource's URL.
    let response_kind = |group_version: Option<(&str, &str)>, kind: &str| {
        let (group, version) = group_version.unwrap_or(("", ""));
        Value::map([("group", group), ("version", version), ("kind", kind)])
    };
    let mut resource = Map::new();
    resource.insert("resource", entry.plural);
    let own = entry.custom.then_some((entry.group, entry.version));
    resource.insert("responseKind", response_kind(own, entry.kind));
    resource.insert("scope", if entry.namespaced { "Namespaced" } else { "Cluster" });
    resource.insert("singularResource", entry.singular);
    resource.insert("verbs", verbs(entry.verbs));
    names(&mut resource, "shortNames", &entry.short_names);
    names(&mut resource, "categories", &entry.categories);
    if !entry.subresources.is_empty() {
        let list = entry.subresources.iter().map(|sub| {
            Value::map([
                ("subresource", Value::from(sub.name)),
                ("responseKind", response_kind(sub.group_version.or(own), sub.kind)),
                ("verbs", verbs(sub.verbs)),
            ])
        });
        resource.insert("subresources", Value::list(list));
    }
    Value::Map(resource)
}

fn verbs(verbs: &[Verb]) -> Value {
    Value::list(verbs.iter().map(|verb| verb.as_str()))
}

fn names(map: &mut Map, key: &'static str, names: &[&str]) {
    if !names.is_empty() {
        map.insert(key, Value::list(names.iter().copied()));
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

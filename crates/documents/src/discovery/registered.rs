//! The legacy documents at `/apis` and `/apis/GROUP`: the registered APIServices in the order of their priorities.

use std::cmp::Reverse;
use std::collections::HashMap;

use api::gvk::compare_versions;
use kinds::table::{GROUPS, Served, priority};
use value::{Map, Str, Value};

use super::group_version;

/// A group and version registered by an APIService.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The API group; empty for the core group.
    pub group: Str,
    pub version: Str,
    /// `groupPriorityMinimum`: groups with higher values come first.
    pub group_priority: i64,
    /// `versionPriority`: versions with higher values come first within their group.
    pub version_priority: i64,
}

impl Registration {
    /// The name of the APIService.
    pub fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }
}

/// The registrations of all served built-in versions, except the group of APIServices itself.
pub fn built_in(served: &Served) -> Vec<Registration> {
    let versions =
        GROUPS.iter().flat_map(|group| group.versions.iter().map(move |version| (group.name, *version)));
    versions
        .filter(|(group, version)| served.is_served(group, version))
        .filter_map(|(group, version)| {
            let (group_priority, version_priority) = priority::priority(group, version)?;
            Some(Registration {
                group: group.into(),
                version: version.into(),
                group_priority,
                version_priority,
            })
        })
        .collect()
}

/// The registration of a CRD version.
pub fn of_custom_version(group: &str, version: &str) -> Registration {
    let (group_priority, version_priority) = priority::CUSTOM;
    Registration { group: group.into(), version: version.into(), group_priority, version_priority }
}

/// The group of APIServices itself, for which there is no APIService.
const OWN: (&str, &str) = ("apiregistration.k8s.io", "v1");

/// The legacy document at `/apis`.
pub fn registered_groups(registrations: &[Registration]) -> Value {
    let own = group_document(OWN.0, [OWN.1].into_iter());
    let groups = sorted(registrations).into_iter().filter(|group| !group.group().is_empty());
    let groups = groups.map(|group| Value::Map(group_document(group.group(), group.versions())));
    Value::map([
        ("kind", Value::from("APIGroupList")),
        ("apiVersion", Value::from("v1")),
        ("groups", Value::list(std::iter::once(Value::Map(own)).chain(groups))),
    ])
}

/// The legacy document at `/apis/GROUP`; `None` if the group is not registered.
pub fn registered_group(registrations: &[Registration], name: &str) -> Option<Value> {
    let groups = sorted(registrations);
    let group = groups.iter().find(|group| group.group() == name)?;
    let mut document = group_document(name, group.versions());
    document.insert("kind", "APIGroup");
    document.insert("apiVersion", "v1");
    Some(Value::Map(document))
}

/// The registrations of one group, preferred version first; never empty.
struct RegisteredGroup<'a>(Vec<&'a Registration>);

impl<'a> RegisteredGroup<'a> {
    fn group(&self) -> &'a str {
        self.0.first().map(|first| first.group.as_str()).unwrap_or_default()
    }

    fn versions(&self) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|registration| registration.version.as_str())
    }
}

/// Sorts groups by their highest priority, then by the name of that registration; versions by priority, then by Kubernetes' version
/// order.
fn sorted(registrations: &[Registration]) -> Vec<RegisteredGroup<'_>> {
    let mut all: Vec<(String, &Registration)> = registrations.iter().map(|r| (r.name(), r)).collect();
    all.sort_by(|(a_name, a), (b_name, b)| {
        (Reverse(a.group_priority), a_name).cmp(&(Reverse(b.group_priority), b_name))
    });
    let mut groups: Vec<RegisteredGroup<'_>> = Vec::new();
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for (_, registration) in all {
        let at = *by_name.entry(&registration.group).or_insert_with(|| {
            groups.push(RegisteredGroup(Vec::new()));
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(at) {
            group.0.push(registration);
        }
    }
    for group in &mut groups {
        group.0.sort_by(|a, b| {
            b.version_priority.cmp(&a.version_priority).then_with(|| compare_versions(&a.version, &b.version))
        });
    }
    groups
}

fn group_document<'a>(name: &str, versions: impl Iterator<Item = &'a str>) -> Map {
    let versions: Vec<Value> = versions
        .map(|version| {
            Value::map([
                ("groupVersion", Value::from(group_version(name, version))),
                ("version", Value::from(version)),
            ])
        })
        .collect();
    let mut document = Map::new();
    document.insert("name", name);
    if let Some(preferred) = versions.first() {
        document.insert("preferredVersion", preferred.clone());
    }
    document.insert("versions", Value::List(versions));
    document
}

use std::collections::BTreeMap;

use kinds::table::{self, GROUPS, KindStorage, Served};

use super::{CRDS, NAMED, ROOT, SERVICES, built_in, custom_prefix, custom_resource, prefix, prefix_end};
use crate::Catalog;

#[test]
fn resources_with_special_prefixes_are_stored_under_them() {
    for (group, plural, named) in NAMED {
        assert_eq!(built_in(group, plural), Some(*named), "{group} {plural}");
    }
}

/// Covers all built-in resources in all versions, and custom resources with every combination of known group and plural names.
#[test]
fn no_two_resources_have_overlapping_prefixes() {
    let mut owners: BTreeMap<String, String> = BTreeMap::new();
    for row in table::all() {
        for _version in row.versions {
            let Some(prefix) = prefix(row) else { continue };
            // Both groups of events share their objects.
            let (group, ()) = match row.storage {
                KindStorage::With(group, _) => {
                    assert_eq!((row.group, row.plural, group), ("events.k8s.io", "events", ""));
                    (group, ())
                }
                _ => (row.group, ()),
            };
            let owner = format!("built-in {}.{group}", row.plural);
            let other = owners.insert(prefix, owner.clone());
            assert!(other.as_ref().is_none_or(|other| *other == owner), "{owner} and {other:?}");
        }
    }
    let plurals: Vec<&str> =
        table::all().map(|row| row.plural).chain(["specs", "endpoints", "things"]).collect();
    let own = ["example.com", "pods.example.com", "services.specs", "k8s.io"];
    let mut refused = Vec::new();
    // CRD validation rejects a group without a dot; `table::overlapping` covers those.
    for group in GROUPS.iter().map(|group| group.name).chain(own).chain(plurals.iter().copied()) {
        for plural in &plurals {
            if table::overlapping(group, plural).is_some() {
                refused.push((group, *plural));
            } else if !group.is_empty() {
                owners.insert(custom_prefix(group, plural), format!("custom {plural}.{group}"));
            }
        }
    }
    // In sorted order, a prefix directly precedes the keys it contains.
    let all: Vec<_> = owners.iter().collect();
    assert!(all.len() > 1000, "{}", all.len());
    for pair in all.windows(2) {
        assert!(!pair[1].0.starts_with(pair[0].0.as_str()), "{pair:?}");
    }
    refused.retain(|(group, _)| group.contains('.'));
    assert_eq!(
        refused,
        [("apiregistration.k8s.io", "apiservices"), ("apiextensions.k8s.io", "customresourcedefinitions")]
    );
    // The resource of a key is that of its prefix.
    for prefix in owners.keys() {
        for rest in ["a", "a/b", "pods/x"] {
            let key = format!("{prefix}{rest}");
            assert_eq!(prefix_end(&key).and_then(|end| key.get(..end)), Some(prefix.as_str()), "{key}");
        }
        assert_eq!(prefix_end(prefix), Some(prefix.len()));
    }
}

#[test]
fn paths_above_the_resource_directories_have_no_prefix() {
    for above in
        ["/", ROOT, "/registry/services/", "/registry/example.com/", "/other/pods/a", "/registry/pods"]
    {
        assert_eq!(prefix_end(above), None, "{above}");
    }
    assert_eq!(prefix_end("/registry/services/specs/default/kubernetes"), Some(SERVICES.len()));
    assert_eq!(custom_resource("/registry/example.com/things/"), Some(("example.com", "things")));
    assert_eq!(custom_resource(CRDS), Some(("apiextensions.k8s.io", "customresourcedefinitions")));
}

#[test]
fn every_served_kind_has_a_prefix_of_its_own_or_shares_it_with_its_other_versions() {
    let catalog = Catalog::new(Served::parse("api/all=true").unwrap());
    for kind in catalog.stored_kinds() {
        for other in catalog.equivalents(&kind) {
            assert_eq!(other.scope(""), kind.scope(""));
        }
        assert!(kind.scope("").starts_with(ROOT));
    }
}

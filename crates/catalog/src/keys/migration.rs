//! Migrates the keys of format 1 of the embedded store, `/registry/<group>/<plural>/…`, to the current layout.
//!
//! In the old layout, custom resources with the group and plural name of a built-in resource were stored among its objects and could be
//! mistaken for them. The key alone therefore does not identify the kind of an object, but its first bytes do: the server always wrote
//! built-in objects with `kind` first and custom resources with `apiVersion` first, regardless of what clients sent. An object is
//! migrated only if its first bytes match its row of the resource table or a stored CRD exactly, and if its name and namespace match
//! its key. All other objects are skipped and logged; they remain in the old file.

use std::collections::HashMap;
use std::sync::Arc;

use api::{GroupVersion, meta};
use kinds::table::{self, KindStorage, Resource};
use storage::{StoredEntries, StoredEntry};
use tracing::error;
use value::Str;

use super::{ROOT, custom_prefix, prefix};
use crate::encode;

/// The key prefix of CRDs in format 1.
const OLD_CRDS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
/// Maximum number of skipped objects that are logged individually.
const NAMED: usize = 100;

/// The properties of a CRD in a store of format 1 that identify its objects.
struct OldCrd {
    namespaced: bool,
    /// The first bytes of its objects, for each of its versions.
    heads: Vec<Vec<u8>>,
}

/// The new keys, in the order of the entries; `None` for an entry that is skipped.
pub fn migrate(entries: &StoredEntries) -> Vec<Option<Arc<str>>> {
    let crds = stored_crds(entries);
    let mut left_out = 0_usize;
    let mut keys = Vec::with_capacity(entries.len());
    for entry in entries {
        match new_key(entry, &crds) {
            Ok(key) => keys.push(Some(Arc::from(key))),
            Err(reason) => {
                left_out += 1;
                if left_out <= NAMED {
                    error!(key = %entry.key, reason, "an object is left out of the migrated store; only the old file beside it contains the object");
                }
                keys.push(None);
            }
        }
    }
    if left_out > 0 {
        error!(
            left_out,
            "objects were left out of the migrated store; the old file beside it still contains them"
        );
    }
    keys
}

fn stored_crds(entries: &StoredEntries) -> HashMap<(Str, Str), OldCrd> {
    let rows = table::group("apiextensions.k8s.io").map(|group| group.resources).unwrap_or_default();
    let head = rows.first().and_then(stored_head).unwrap_or_default();
    let mut crds = HashMap::new();
    for entry in
        entries.iter().filter(|entry| entry.key.starts_with(OLD_CRDS) && entry.body.starts_with(&head))
    {
        let Ok(crd) = encode::tree(entry) else { continue };
        let text = |path: &[&str]| Str::from(crd.str_at(path).unwrap_or_default());
        let (group, kind) = (text(&["spec", "group"]), text(&["spec", "names", "kind"]));
        let heads = crd.list_at(&["spec", "versions"]).iter().map(|version| {
            let version = version.str_at(&["name"]).unwrap_or_default();
            encode::sorted_head(&GroupVersion::new(group.clone(), version).to_string(), &kind)
        });
        let known = OldCrd {
            namespaced: crd.str_at(&["spec", "scope"]) == Some("Namespaced"),
            heads: heads.collect(),
        };
        crds.insert((group, text(&["spec", "names", "plural"])), known);
    }
    crds
}

/// The first bytes of a built-in resource's objects; `None` if it has no storage of its own.
fn stored_head(row: &Resource) -> Option<Vec<u8>> {
    let KindStorage::Own(version) = row.storage else { return None };
    Some(encode::head(&GroupVersion::new(row.group, version).to_string(), row.kind))
}

fn new_key(entry: &StoredEntry, crds: &HashMap<(Str, Str), OldCrd>) -> Result<String, &'static str> {
    let mut parts = entry.key.strip_prefix(ROOT).unwrap_or_default().splitn(3, '/');
    let (Some(group), Some(plural), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("the key is not that of an object");
    };
    let group = if group == "core" { "" } else { group };
    let row = table::group(group).and_then(|group| group.resources.iter().find(|row| row.plural == plural));
    if let Some(row) = row
        && stored_head(row).is_some_and(|head| entry.body.starts_with(&head))
    {
        check_namespace_and_name(entry, rest, row.is_namespaced())?;
        return prefix(row)
            .map(|prefix| format!("{prefix}{rest}"))
            .ok_or("objects of its resource are not stored");
    }
    let Some(crd) = crds.get(&(group.into(), plural.into())) else {
        return Err("it is neither a built-in object nor one of a stored CustomResourceDefinition");
    };
    if table::overlapping(group, plural).is_some() {
        return Err("its CustomResourceDefinition has the storage of a built-in resource");
    }
    if !crd.heads.iter().any(|head| entry.body.starts_with(head)) {
        return Err("it does not have the kind and a version of its CustomResourceDefinition");
    }
    check_namespace_and_name(entry, rest, crd.namespaced)?;
    Ok(format!("{}{rest}", custom_prefix(group, plural)))
}

/// Checks that the rest of a key, `[<namespace>/]<name>`, matches the object's metadata. An object that cannot be decoded is migrated
/// by its first bytes and the form of its key, so that it is still reported as unreadable.
fn check_namespace_and_name(entry: &StoredEntry, rest: &str, namespaced: bool) -> Result<(), &'static str> {
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) if namespaced && !name.contains('/') => (namespace, name),
        None if !namespaced => ("", rest),
        _ => return Err("its key does not fit the scope of its resource"),
    };
    match encode::tree(entry) {
        Ok(object) if meta::name(&object) != name || meta::namespace(&object) != namespace => {
            Err("its name and namespace are not those of its key")
        }
        _ => Ok(()),
    }
}

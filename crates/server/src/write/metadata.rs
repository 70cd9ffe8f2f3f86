//! The metadata that the server sees to itself, whatever was sent: where an object is, what it keeps of its predecessor, and that
//! no owner is named twice.

use std::collections::HashSet;

use api::{Status, meta};
use value::Value;

use crate::call::Call;

/// Removes the metadata of a new object that only the server sets.
pub(crate) fn remove_server_metadata(object: &mut Value) {
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        object.remove_at(&["metadata", field]);
    }
}

/// Puts the request's namespace on an object, or refuses one that says another.
pub fn place(object: &mut Value, namespace: &str) -> Result<(), Status> {
    let own = meta::namespace(object);
    if own == namespace {
        Ok(())
    } else if namespace.is_empty() {
        object.remove_at(&["metadata", "namespace"]);
        Ok(())
    } else if own.is_empty() {
        meta::set(object, "namespace", namespace);
        Ok(())
    } else {
        Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ))
    }
}

/// Gives an object the stored one's metadata field, or none if that has none.
pub(super) fn copy_meta(new: &mut Value, old: &Value, field: &str) {
    match old.at(&["metadata", field]) {
        Some(value) => meta::set(new, field, value.clone()),
        None => {
            new.remove_at(&["metadata", field]);
        }
    }
}

/// Drops owner references that occur twice, and says so.
pub(super) fn dedup_owners(call: &mut Call, object: &mut Value, after_mutation: bool) {
    let Some(owners) = object.at_mut(&["metadata", "ownerReferences"]).and_then(Value::as_list_mut) else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    let mut seen: HashSet<Vec<u8>> = HashSet::with_capacity(owners.len());
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let is_new = seen.insert(value::write::to_vec(owner));
        if !is_new {
            repeated.push(owner.str_at(&["uid"]).unwrap_or_default().to_owned());
        }
        is_new
    });
    if !repeated.is_empty() {
        let when = if after_mutation { " after mutating admission happens" } else { "" };
        call.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}

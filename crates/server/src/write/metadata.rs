//! Metadata that the server enforces on every write: the namespace, fields copied from the old object, and unique owner references.

use std::collections::HashSet;

use api::{Status, meta};
use value::Value;

use crate::call::Call;

pub(crate) fn remove_server_metadata(object: &mut Value) {
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        object.remove_at(&["metadata", field]);
    }
}

/// Sets the request's namespace on an object, or removes it if `namespace` is empty. Refuses an object that names another namespace.
pub fn set_namespace(object: &mut Value, namespace: &str) -> Result<(), Status> {
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

/// Copies a metadata field from `old`, or removes it if `old` does not have it.
pub(super) fn copy_meta(new: &mut Value, old: &Value, field: &str) {
    match old.at(&["metadata", field]) {
        Some(value) => meta::set(new, field, value.clone()),
        None => {
            new.remove_at(&["metadata", field]);
        }
    }
}

/// Removes duplicate owner references and warns the client.
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

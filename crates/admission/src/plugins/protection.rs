//! The finalizers that prevent the deletion of objects in use.

use api::meta;
use value::Value;

use crate::{AdmissionAttributes, Operation};

/// Adds a finalizer to a new object.
pub(super) fn protect(attributes: &AdmissionAttributes<'_>, object: &mut Value, finalizer: &'static str) {
    let new = attributes.operation == Operation::Create && attributes.subresource.is_empty();
    if new && !meta::finalizers(object).any(|known| known == finalizer) {
        super::append(object, &["metadata", "finalizers"], finalizer.into());
    }
}

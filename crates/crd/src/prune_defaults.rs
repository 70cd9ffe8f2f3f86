//! Prunes unknown fields from the defaults of a schema.

use super::node::SchemaNode;
use super::prune::{self, UnknownFields};

/// Prunes the defaults of a schema and of all schemas below it. Validation rejects CRDs with such defaults, but a stored CRD may be
/// older than that check.
pub(super) fn prune_defaults(node: &mut SchemaNode) {
    if let Some(mut default) = node.default.take() {
        prune::prune(&mut default, Some(node), &mut UnknownFields::new(false));
        node.default = Some(default);
    }
    if let Some(items) = &mut node.items {
        prune_defaults(items);
    }
    if let Some(values) = node.additional.as_mut().and_then(|additional| additional.node.as_mut()) {
        prune_defaults(values);
    }
    for (name, property) in &mut node.properties {
        // Metadata is typed regardless of the schema.
        if name != "metadata" {
            prune_defaults(property);
        }
    }
}

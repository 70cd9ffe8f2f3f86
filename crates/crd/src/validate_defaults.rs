//! The defaults in a schema: without what the schema does not know.

use super::node::Node;
use super::prune::{self, Trail};

/// Prunes the defaults of a schema and of everything below it. Definitions are refused where that would change something; a
/// stored one may be older than that rule.
pub(super) fn prune_defaults(node: &mut Node) {
    if let Some(mut default) = node.default.take() {
        prune::prune(&mut default, Some(node), &mut Trail::new(false));
        node.default = Some(default);
    }
    if let Some(items) = &mut node.items {
        prune_defaults(items);
    }
    if let Some(values) = node.additional.as_mut().and_then(|additional| additional.node.as_mut()) {
        prune_defaults(values);
    }
    for (name, property) in &mut node.properties {
        // What is in metadata is typed, whatever the schema says of it.
        if name != "metadata" {
            prune_defaults(property);
        }
    }
}

//! The three lists of containers in a pod spec.

use api::validation::fields::{At, Read};
use value::Value;

/// Iterates over all containers, in the order in which Kubernetes visits them.
pub(crate) fn containers<'a>(spec: impl Read<'a>) -> impl Iterator<Item = &'a Value> {
    CONTAINER_LISTS.into_iter().flat_map(move |list| spec.items(list))
}

/// Container lists in the order in which Kubernetes visits them.
pub(crate) const CONTAINER_LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Calls `visit` with every container and its field path; `spec_at` is the path of `spec`.
pub(crate) fn visit_containers<'a>(
    spec: impl Read<'a>,
    spec_at: &At<'_>,
    mut visit: impl FnMut(&'a Value, &At<'_>),
) {
    for list in CONTAINER_LISTS {
        let at = spec_at.field(list);
        for (i, container) in spec.items(list).iter().enumerate() {
            visit(container, &at.index(i));
        }
    }
}

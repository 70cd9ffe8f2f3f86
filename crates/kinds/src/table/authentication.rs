//! Rows of the `authentication.k8s.io` group: reviews of the caller's identity, which are never stored.

use super::{KindBehavior, Resource};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        ..review(KindBehavior {
            defaults: None,
            rules: None,
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
    Resource {
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        ..review(KindBehavior {
            defaults: None,
            rules: None,
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
];

const fn review(behavior: KindBehavior) -> Resource {
    Resource { group: "authentication.k8s.io", ..Resource::unstored(behavior) }
}

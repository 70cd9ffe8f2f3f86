//! `authentication.k8s.io`: questions about who is calling, answered and forgotten.

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

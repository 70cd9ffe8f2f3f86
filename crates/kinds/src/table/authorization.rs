//! Rows of the `authorization.k8s.io` group: access reviews, which are never stored.

use super::{KindBehavior, Resource, Scope};
use crate::validation;

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        scope: Scope::Namespaced,
        ..review(KindBehavior {
            defaults: None,
            rules: Some(validation::reviews::LOCAL_SUBJECT_ACCESS_REVIEW),
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
    Resource {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        ..review(KindBehavior {
            defaults: None,
            rules: Some(validation::reviews::SELF_SUBJECT_ACCESS_REVIEW),
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
    Resource {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
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
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        ..review(KindBehavior {
            defaults: None,
            rules: Some(validation::reviews::SUBJECT_ACCESS_REVIEW),
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
];

const fn review(behavior: KindBehavior) -> Resource {
    Resource { group: "authorization.k8s.io", ..Resource::unstored(behavior) }
}

//! `authorization.k8s.io`: questions about who may do what, answered and forgotten.

use super::{Resource, Scope};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        scope: Scope::Namespaced,
        ..REVIEW
    },
    Resource {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        ..REVIEW
    },
    Resource {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        ..REVIEW
    },
    Resource {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        ..REVIEW
    },
];

const REVIEW: Resource = Resource { group: "authorization.k8s.io", ..Resource::VIRTUAL };

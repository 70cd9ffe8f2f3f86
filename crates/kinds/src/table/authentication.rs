//! `authentication.k8s.io`: questions about who is calling, answered and forgotten.

use super::Resource;

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        ..REVIEW
    },
    Resource { kind: "TokenReview", plural: "tokenreviews", singular: "tokenreview", ..REVIEW },
];

const REVIEW: Resource = Resource { group: "authentication.k8s.io", ..Resource::VIRTUAL };

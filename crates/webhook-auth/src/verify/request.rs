//! [`AdmissionRequest`]: what a caller asks about, as far as its token goes.

use serde::Deserialize;

/// Why a review cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// It is no `AdmissionReview` with a request.
    #[error("not an AdmissionReview with a request")]
    Malformed,
    /// Its version is not one of `admission.k8s.io`.
    #[error("not a version of AdmissionReview that is known")]
    Version,
}

/// A group, version and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Resource {
    /// The API group; `""` for the core group.
    #[serde(default)]
    pub group: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The resource, as `pods`.
    #[serde(default)]
    pub resource: String,
}

/// A group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Kind {
    /// The API group; `""` for the core group.
    #[serde(default)]
    pub group: String,
    /// The version.
    #[serde(default)]
    pub version: String,
    /// The kind, as `Pod`.
    #[serde(default)]
    pub kind: String,
}

/// The `request` of an `AdmissionReview`, as far as a token goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// The id of this call.
    #[serde(default)]
    pub uid: String,
    /// What kind the object is.
    #[serde(default)]
    pub kind: Kind,
    /// The resource that is asked about.
    pub resource: Resource,
    /// Its subresource, if one is asked about.
    #[serde(default)]
    pub sub_resource: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview {
    api_version: String,
    kind: String,
    request: AdmissionRequest,
}

/// Kinds that are sent to subresources of other groups.
const LENT: [(&str, &str); 3] =
    [("autoscaling", "Scale"), ("policy", "Eviction"), ("authentication.k8s.io", "TokenRequest")];

impl AdmissionRequest {
    /// A request about a resource of this group.
    pub fn about(group: &str, version: &str, resource: &str, kind: &str) -> Self {
        AdmissionRequest {
            uid: String::new(),
            kind: Kind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() },
            resource: Resource {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.to_owned(),
            },
            sub_resource: None,
        }
    }

    /// Reads the request of an `AdmissionReview`. A field that matters and comes twice is an error: the webhook may read the other
    /// one.
    pub fn from_review(body: &[u8]) -> Result<Self, ReviewError> {
        let review: AdmissionReview = serde_json::from_slice(body).map_err(|_| ReviewError::Malformed)?;
        if review.kind != "AdmissionReview" {
            return Err(ReviewError::Malformed);
        }
        match review.api_version.as_str() {
            "admission.k8s.io/v1" | "admission.k8s.io/v1beta1" => Ok(review.request),
            _ => Err(ReviewError::Version),
        }
    }

    /// The API group that the request is about, if it is about one. That is the resource's; the kind must be of the same group, since
    /// webhooks decide by it too, unless it is one that other groups have for their subresources (a `Scale` of `autoscaling` for a
    /// deployment of `apps`).
    pub(super) fn group(&self) -> Option<&str> {
        let whole = self.sub_resource.as_deref().unwrap_or_default().is_empty();
        let lent = !whole && LENT.contains(&(self.kind.group.as_str(), self.kind.kind.as_str()));
        let coherent = lent || self.kind == Kind::default() || self.kind.group == self.resource.group;
        coherent.then_some(self.resource.group.as_str())
    }
}

//! [`AdmissionRequest`]: the fields of a request that are compared with a token.

use serde::Deserialize;

/// The review is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The body is not an `AdmissionReview` with a request.
    #[error("not an AdmissionReview with a request")]
    Malformed,
    /// The API version is neither `admission.k8s.io/v1` nor `admission.k8s.io/v1beta1`.
    #[error("not a version of AdmissionReview that is known")]
    Version,
}

/// A group, version and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ReviewedResource {
    /// The API group; `""` for the core group.
    #[serde(default)]
    pub group: String,
    /// The API version, for example `v1`.
    #[serde(default)]
    pub version: String,
    /// The plural name, for example `pods`.
    #[serde(default)]
    pub resource: String,
}

/// A group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Kind {
    /// The API group; `""` for the core group.
    #[serde(default)]
    pub group: String,
    /// The API version, for example `v1`.
    #[serde(default)]
    pub version: String,
    /// The kind's name, for example `Pod`.
    #[serde(default)]
    pub kind: String,
}

/// The `request` of an `AdmissionReview`, as far as tokens are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// The uid of this call, which the response must repeat.
    #[serde(default)]
    pub uid: String,
    /// The kind of the object.
    #[serde(default)]
    pub kind: Kind,
    /// The requested resource, after conversion to the version in the webhook's rule.
    pub resource: ReviewedResource,
    /// The requested subresource, if any.
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

/// Group and kind of subresources that resources of other groups share.
const LENT: [(&str, &str); 3] =
    [("autoscaling", "Scale"), ("policy", "Eviction"), ("authentication.k8s.io", "TokenRequest")];

impl AdmissionRequest {
    /// A request for a resource whose kind is of the same group and version, without a subresource.
    pub fn about(group: &str, version: &str, resource: &str, kind: &str) -> Self {
        AdmissionRequest {
            uid: String::new(),
            kind: Kind { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() },
            resource: ReviewedResource {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: resource.to_owned(),
            },
            sub_resource: None,
        }
    }

    /// Decodes the request of an `AdmissionReview`. A duplicate field is an error if it matters here: the
    /// webhook might read the other value.
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

    /// The API group of the resource. The kind must be absent or have the same group, because webhooks also decide by kind,
    /// unless it is a subresource kind that other groups share, such as `Scale`. `None` if the groups differ.
    pub(super) fn group(&self) -> Option<&str> {
        let whole = self.sub_resource.as_deref().unwrap_or_default().is_empty();
        let lent = !whole && LENT.contains(&(self.kind.group.as_str(), self.kind.kind.as_str()));
        let coherent = lent || self.kind == Kind::default() || self.kind.group == self.resource.group;
        coherent.then_some(self.resource.group.as_str())
    }
}

//! [`Review`]: an axum extractor that decodes the review and responds with 403 if the token is not valid for
//! it.

use axum_core::extract::{FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http_body_util::{BodyExt as _, Limited};
use serde::de::DeserializeOwned;

use crate::layer::Authentication;
use crate::verify::{AdmissionRequest, Rejection, Verified};

/// Longer reviews are rejected. An API server accepts objects of up to 3 MiB, and a review contains at most
/// two.
pub const MAX_REVIEW: usize = 8 * 1024 * 1024;

/// A review whose caller has a token that is valid for it. `T` is the webhook's own type for `AdmissionReview`.
#[derive(Clone, Debug)]
pub struct Review<T> {
    /// The whole review, decoded as the webhook's own type.
    pub review: T,
    /// The part of it that was compared with the token.
    pub request: AdmissionRequest,
    /// The verified caller. Always set in [`Mode::Require`](crate::Mode::Require).
    pub verified: Option<Verified>,
}

/// The review was rejected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The route has no [`WebhookAuthLayer`](crate::layer::WebhookAuthLayer), so no caller was authenticated.
    #[error("the route has no layer that authenticates callers")]
    NoLayer,
    /// The body could not be read, or is too long.
    #[error("the body could not be read, or is too long")]
    Body,
    /// The body is not an AdmissionReview.
    #[error("the body is not a valid AdmissionReview")]
    Malformed,
    /// The token is not valid for this request. The response does not contain the details of the rejection.
    #[error("the token of the caller is not valid for this request")]
    Rejected(Rejection),
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match &self {
            Refused::NoLayer => StatusCode::INTERNAL_SERVER_ERROR,
            Refused::Body => StatusCode::PAYLOAD_TOO_LARGE,
            Refused::Malformed => StatusCode::BAD_REQUEST,
            Refused::Rejected(rejection) => {
                StatusCode::from_u16(rejection.reason().status()).unwrap_or(StatusCode::FORBIDDEN)
            }
        };
        (status, self.to_string()).into_response()
    }
}

impl<T, S> FromRequest<S> for Review<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Refused;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refused> {
        let (parts, body) = request.into_parts();
        let authentication = Authentication::of(&parts.extensions).ok_or(Refused::NoLayer)?;
        let body = Limited::new(body, MAX_REVIEW).collect().await.map_err(|_| Refused::Body)?.to_bytes();
        let request = AdmissionRequest::from_review(&body).map_err(|_| Refused::Malformed)?;
        let verified = authentication.check(&request).map_err(Refused::Rejected)?;
        // Decoded only after the check: a review for which the token is not valid is not processed further.
        let review = serde_json::from_slice(&body).map_err(|_| Refused::Malformed)?;
        Ok(Review { review, request, verified })
    }
}

//! Validates a decoded review and extracts its response.

use api::field::quote;
use api::meta;
use value::{Str, Value};

use crate::webhook::AdmissionReviewVersion;

/// The content of `AdmissionReview.response`.
#[derive(Debug, PartialEq)]
pub(super) struct ReviewResponse {
    pub(super) allowed: bool,
    /// The `status` that comes with a denial.
    pub(super) result: Option<Value>,
    /// Empty if there is no patch.
    pub(super) patch: Vec<u8>,
    /// Empty if there is no patch.
    pub(super) patch_type: Str,
    /// Audit annotations, without the webhook's name in their keys.
    pub(super) annotations: Vec<(Str, String)>,
    pub(super) warnings: Vec<String>,
}

/// The only supported patch type.
pub(super) const JSON_PATCH: &str = "JSONPatch";

/// Returns the response if it answers the review `uid`. `v1beta1` reviews are validated less strictly, as in
/// kube-apiserver.
pub(super) fn verify(
    version: AdmissionReviewVersion,
    uid: &str,
    mutating: bool,
    review: &Value,
) -> Result<ReviewResponse, String> {
    let Some(response @ Value::Map(_)) = review.get("response") else {
        return Err("webhook response was absent".to_owned());
    };
    let mut patch = match response.get("patch") {
        Some(Value::String(text)) => {
            value::go::base64::STD.decode(text).map_err(|error| error.to_string())?
        }
        Some(Value::List(numbers)) => numbers
            .iter()
            .map(|n| n.as_int().and_then(|n| u8::try_from(n).ok()).unwrap_or_default())
            .collect(),
        _ => Vec::new(),
    };
    let patch_type = response.get("patchType").and_then(Value::as_str);
    let patch_type: Str = match version {
        AdmissionReviewVersion::V1 => {
            let got = response.str_at(&["uid"]).unwrap_or_default();
            if got != uid {
                return Err(format!("expected response.uid={}, got {}", quote(uid), quote(got)));
            }
            let (expected, sent) = (version.kind(), meta::gvk(review));
            if sent != expected {
                let (group, version, kind) = (&sent.group, &sent.version, &sent.kind);
                return Err(format!(
                    "expected webhook response of {}/{}, Kind={}, got {group}/{version}, Kind={kind}",
                    expected.group, expected.version, expected.kind
                ));
            }
            match (mutating, patch.is_empty(), patch_type) {
                (true, false, None) => {
                    return Err("webhook returned response.patch but not response.patchType".to_owned());
                }
                (true, true, Some(_)) => {
                    return Err("webhook returned response.patchType but not response.patch".to_owned());
                }
                (true, _, Some("")) => {
                    return Err("webhook returned invalid response.patchType of \"\"".to_owned());
                }
                (false, false, _) => {
                    return Err("validating webhook may not return response.patch".to_owned());
                }
                (false, true, Some(_)) => {
                    return Err("validating webhook may not return response.patchType".to_owned());
                }
                (_, _, patch_type) => patch_type.unwrap_or_default().into(),
            }
        }
        AdmissionReviewVersion::V1beta1 if mutating && !patch.is_empty() => Str::new_static(JSON_PATCH),
        AdmissionReviewVersion::V1beta1 => {
            patch.clear();
            Str::default()
        }
    };
    let annotations = match response.get("auditAnnotations").and_then(Value::as_map) {
        Some(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        None => Vec::new(),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(ReviewResponse {
        allowed: response.bool_at(&["allowed"]).unwrap_or_default(),
        result: response.get("status").filter(|status| !status.is_null()).cloned(),
        patch,
        patch_type,
        annotations,
        warnings: response.list_at(&["warnings"]).iter().map(text).collect(),
    })
}

//! Conversion of PodCertificateRequests between the served `v1` and the stored `v1beta1`.
//!
//! `v1` has neither `pkixPublicKey` nor `proofOfPossession`. Everything else is equal.

use value::Value;

/// Converts a request from `v1beta1` to `v1`.
pub fn request_to_v1(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["pkixPublicKey", "proofOfPossession"] {
        object.remove_at(&["spec", field]);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::{Value, request_to_v1};

    #[test]
    fn only_the_fields_that_v1_lacks_are_removed() {
        let request = |fields: &str| -> Value {
            let text = format!(r#"{{"spec":{{{fields}"stubPKCS10Request":"eA=="}}}}"#);
            value::json::parse(text.as_bytes()).unwrap()
        };
        let stored = request(r#""pkixPublicKey":"eA==","proofOfPossession":null,"#);
        assert_eq!(request_to_v1(&stored), request(""));
        assert_eq!(request_to_v1(&request("")), request(""));
    }
}

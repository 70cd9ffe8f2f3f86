use super::*;

/// The message about an invalid response must not contain all of a long response.
#[test]
fn error_about_an_invalid_webhook_response_truncates_it() {
    let report = |padding: usize| {
        let body = format!(
            r#"{{"apiVersion":"other/","kind":"AdmissionReview","padding":"{}"}}"#,
            "x".repeat(padding)
        );
        let reply = WebhookReply {
            status: 200,
            content_type: "application/json".to_owned(),
            body: body.into_bytes(),
        };
        read(&reply, AdmissionReviewVersion::V1).unwrap_err().message
    };
    assert!(report(1000).len() > 1000, "{}", report(1000));
    assert!(report(1 << 20).len() < 10_000);
}

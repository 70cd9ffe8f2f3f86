use super::*;

/// What a client is told of an answer that is none is no copy of it.
#[test]
fn a_long_answer_is_quoted_in_part() {
    let said = |padding: usize| {
        let body = format!(
            r#"{{"apiVersion":"other/","kind":"AdmissionReview","padding":"{}"}}"#,
            "x".repeat(padding)
        );
        let reply =
            Reply { status: 200, content_type: "application/json".to_owned(), body: body.into_bytes() };
        read(&reply, ReviewVersion::V1).unwrap_err().message
    };
    assert!(said(1000).len() > 1000, "{}", said(1000));
    assert!(said(1 << 20).len() < 10_000);
}

use runtime::truncate_remote::MAX_TEXT;
use value::{Value, json};

use super::{ConversionFailure, converted, read, restore};

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

const V1: &str = "apiextensions.k8s.io/v1";

#[test]
fn a_conversion_response_must_match_its_request() {
    let answer = |text: &str| converted(&parse(text), "v1", V1, "u").map(<[Value]>::len);
    let good = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u","result":{"status":"Success"},"convertedObjects":[{},{}]}}"#;
    assert_eq!(answer(good), Ok(2));
    for (text, expected) in [
        (
            good.replace("ConversionReview", "Other"),
            "no kind \"Other\" is registered for version \"apiextensions.k8s.io/v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
        ),
        (
            good.replace("k8s.io/v1\"", "k8s.io/v1beta1\""),
            "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        ),
        (
            "{}".to_owned(),
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
        ),
        (
            r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":"x"}"#.to_owned(),
            "json: cannot unmarshal string into Go struct field ConversionReview.response of type v1.ConversionResponse",
        ),
        (good.replace("\"response\"", "\"x\""), "no response provided"),
        (good.replace("\"u\"", "\"w\""), "expected response.uid=\"u\", got \"w\""),
        (good.replace("Success", "Failure"), "response.result.status was 'Failure', not 'Success'"),
        (good.replace("\"Success\"", "\"Failure\",\"message\":\"no way\""), "no way"),
    ] {
        assert_eq!(answer(&text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn a_conversion_webhook_cannot_change_the_identity_of_an_object() {
    let original = parse(
        r#"{"apiVersion":"example.com/v1","kind":"T","metadata":{"name":"n","uid":"u","generation":3,"labels":{"a":"b"}},"spec":{"x":1}}"#,
    );
    let result = parse(
        r#"{"apiVersion":"example.com/v2","kind":"T","metadata":{"name":"n","uid":"u","generation":9,"labels":{"c":"d"}},"spec":{"y":1}}"#,
    );
    let restored = restore(&original, &result, "example.com/v2").unwrap();
    assert_eq!(restored.int_at(&["metadata", "generation"]), Some(3));
    assert_eq!(restored.str_at(&["metadata", "labels", "c"]), Some("d"));
    assert_eq!(restored.at(&["metadata", "labels", "a"]), None);
    for (path, value, expected) in [
        (&["metadata", "name"][..], "other", "object: must have the same name: n != other"),
        (&["metadata", "uid"], "other", "object: must have the same UID: u != other"),
        (&["kind"], "Other", "object at index 0: invalid kind (expected T, received Other)"),
        (
            &["apiVersion"],
            "example.com/v3",
            "object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
    ] {
        let mut wrong = result.clone();
        wrong.set_at(path, value);
        assert_eq!(
            restore(&original, &wrong, "example.com/v2").unwrap_err(),
            ConversionFailure::Object(expected.to_owned())
        );
    }
    for (wrong, expected) in [
        ("null", "unexpected end of JSON input"),
        ("\"x\"", "json: cannot unmarshal string into Go value of type map[string]interface {}"),
        (r#"{"apiVersion":"v1"}"#, r#"Object 'Kind' is missing in '{"apiVersion":"v1"}'"#),
    ] {
        assert_eq!(
            restore(&original, &parse(wrong), "example.com/v2").unwrap_err(),
            ConversionFailure::NoObject(expected.to_owned())
        );
    }
    let mut bad = result;
    bad.set_at(&["metadata", "labels", "bad key"], "x");
    let wrong = restore(&original, &bad, "example.com/v2").unwrap_err();
    assert!(
        matches!(&wrong, ConversionFailure::Object(why) if why.starts_with("metadata: metadata.labels: Invalid value")),
        "{wrong:?}"
    );
}

#[test]
fn an_undecodable_conversion_review_is_rejected_with_the_decoders_message() {
    assert!(read(b"{}").is_ok());
    let why = read(b"hello").unwrap_err();
    assert!(
        why.starts_with("couldn't get version/kind; json parse error: json: cannot unmarshal string into")
    );
}

#[test]
fn long_conversion_webhook_errors_are_truncated() {
    let long = "x".repeat(1 << 20);
    for wrong in [
        ConversionFailure::Call(long.clone()),
        ConversionFailure::NoObject(long.clone()),
        ConversionFailure::Object(long),
    ] {
        let status = wrong.status("example.com/v1, Kind=T");
        assert!(status.message().len() < MAX_TEXT + 100, "{}", status.message().len());
        assert!(status.message().ends_with("x..."));
    }
    let status = ConversionFailure::Call("no way".to_owned()).status("example.com/v1, Kind=T");
    assert_eq!(status.message(), "conversion webhook for example.com/v1, Kind=T failed: no way");
}

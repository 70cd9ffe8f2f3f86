use super::*;

#[test]
fn an_openapi_v2_document_has_a_size_limit() {
    let of = |length: usize| bounded(Value::from("x".repeat(length)));
    of(MAX_MEMORY - 1000).unwrap();
    let why = of(MAX_MEMORY).unwrap_err();
    assert!(why.contains("more than 16777216"), "{why}");
}

use super::*;

#[test]
fn all_openapi_v2_documents_together_have_a_size_limit() {
    let documents = Documents::default();
    let of = |length: usize| Value::map([("paths", Value::from("p".repeat(length)))]);
    let half = MAX_V2_MEMORY / 2 - 1000;
    let names = [Str::from("a"), Str::from("b")];
    for name in &names {
        assert_eq!(documents.replace_v2(name, of(half)), Ok(true));
        assert_eq!(documents.replace_v2(name, of(half)), Ok(false), "it is the same");
    }
    let why = documents.replace_v2(&"c".into(), of(10_000)).unwrap_err();
    assert!(why.contains("67108864"), "{why}");
    // A document is replaced by a smaller one, and then the other fits.
    assert_eq!(documents.replace_v2(&names[0], of(1)), Ok(true));
    assert_eq!(documents.replace_v2(&"c".into(), of(10_000)), Ok(true));
    documents.replace_v2(&names[1], of(MAX_V2_MEMORY)).unwrap_err();
    assert!(documents.get("b").v2.is_none(), "the former document is not served for long");
}

#[test]
fn the_discovery_of_a_version_has_a_size_limit() {
    let of = |length: usize| bounded(Value::map([("resources", Value::from("r".repeat(length)))]));
    assert!(of(MAX_ENTRY - 100).is_ok());
    let why = of(MAX_ENTRY).unwrap_err();
    assert!(why.contains("more than 1048576"), "{why}");
}

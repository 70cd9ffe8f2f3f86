use value::json;

use super::version_kind;

fn said(text: &str) -> Result<String, String> {
    let root = json::read(text.as_bytes()).unwrap().value;
    let gvk = version_kind(&root, text.as_bytes()).map_err(|untyped| untyped.message)?;
    Ok(format!("{} {}", gvk.api_version(), gvk.kind))
}

#[test]
fn type_meta_field_names_ignore_case() {
    assert_eq!(said(r#"{"apiVersion": "a/v1", "kind": "K"}"#).unwrap(), "a/v1 K");
    assert_eq!(said(r#"{"APIVERSION": "a/v1", "Kind": "K"}"#).unwrap(), "a/v1 K");
    // The one that is spelled right comes last.
    assert_eq!(said(r#"{"apiVersion": "a/v1", "kind": "K", "Kind": "L"}"#).unwrap(), "a/v1 K");
    assert_eq!(said(r#"{"apiVersion": "a/v1", "kind": null, "Kind": "L"}"#).unwrap(), "a/v1 L");
}

#[test]
fn missing_or_invalid_type_meta_has_kubernetes_messages() {
    assert_eq!(
        said(r#"{"apiVersion":"v1"}"#).unwrap_err(),
        r#"Object 'Kind' is missing in '{"apiVersion":"v1"}'"#
    );
    assert_eq!(said(r#"{"kind":"K"}"#).unwrap_err(), r#"Object 'apiVersion' is missing in '{"kind":"K"}'"#);
    assert!(
        said(r#"{"Kind":5}"#)
            .unwrap_err()
            .ends_with("cannot unmarshal number into Go struct field .kind of type string")
    );
    assert!(said("[]").unwrap_err().contains("cannot unmarshal array into Go value of type struct"));
}

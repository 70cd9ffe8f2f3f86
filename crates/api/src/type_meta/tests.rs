use value::json;

use super::require;

fn read(text: &str) -> Result<String, String> {
    let root = json::read(text.as_bytes()).unwrap().value;
    let gvk = require(&root, text.as_bytes()).map_err(|error| error.message)?;
    Ok(format!("{} {}", gvk.api_version(), gvk.kind))
}

#[test]
fn type_meta_field_names_ignore_case() {
    assert_eq!(read(r#"{"apiVersion": "a/v1", "kind": "K"}"#).unwrap(), "a/v1 K");
    assert_eq!(read(r#"{"APIVERSION": "a/v1", "Kind": "K"}"#).unwrap(), "a/v1 K");
    // The exact spelling wins over one in another case.
    assert_eq!(read(r#"{"apiVersion": "a/v1", "kind": "K", "Kind": "L"}"#).unwrap(), "a/v1 K");
    assert_eq!(read(r#"{"apiVersion": "a/v1", "kind": null, "Kind": "L"}"#).unwrap(), "a/v1 L");
}

#[test]
fn missing_or_invalid_type_meta_has_kubernetes_messages() {
    assert_eq!(
        read(r#"{"apiVersion":"v1"}"#).unwrap_err(),
        r#"Object 'Kind' is missing in '{"apiVersion":"v1"}'"#
    );
    assert_eq!(read(r#"{"kind":"K"}"#).unwrap_err(), r#"Object 'apiVersion' is missing in '{"kind":"K"}'"#);
    assert!(
        read(r#"{"Kind":5}"#)
            .unwrap_err()
            .ends_with("cannot unmarshal number into Go struct field .kind of type string")
    );
    assert!(read("[]").unwrap_err().contains("cannot unmarshal array into Go value of type struct"));
}

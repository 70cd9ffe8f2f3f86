//! Admin access to devices (KEP-5018), which requires a label on the namespace.

use api::{FieldError, GroupKind};
use value::{Path, Value};

pub use api::admin_access::{KEP_LABEL, LABEL, allowed_by};

/// Returns the first field of a new object, or of an updated status, that requests admin access. An update that retains it passes.
pub fn requesting_field(kind: &GroupKind, new: &Value, old_status_of: Option<&Value>) -> Option<Path> {
    if kind.group != "resource.k8s.io" {
        return None;
    }
    let requests = |path: &[&str]| {
        let first = api::admin_access::first_asking(new.list_at(path))?;
        // Templates are reported under the path of a claim, too.
        let at = Path::root().field("spec").field("devices").field("requests").index(first);
        Some(at.field("adminAccess"))
    };
    match (kind.kind.as_str(), old_status_of) {
        ("ResourceClaim", None) => requests(&["spec", "devices", "requests"]),
        ("ResourceClaimTemplate", None) => requests(&["spec", "spec", "devices", "requests"]),
        ("ResourceClaim", Some(old)) if granted(old).is_none() => {
            let at = Path::root().field("status").field("allocation").field("devices").field("results");
            granted(new).map(|first| at.index(first).field("adminAccess"))
        }
        _ => None,
    }
}

/// Index of the first allocation result with admin access.
fn granted(claim: &Value) -> Option<usize> {
    let results = claim.list_at(&["status", "allocation", "devices", "results"]);
    results.iter().position(|result| result.at(&["adminAccess"]) == Some(&Value::Bool(true)))
}

pub fn refused(at: &Path) -> FieldError {
    FieldError::forbidden(at, api::admin_access::refusal())
}

#[cfg(test)]
mod tests {
    use api::GroupKind;
    use value::json::parse;

    use crate::validation::admin_access::{allowed_by, requesting_field};

    #[test]
    fn the_first_device_request_with_admin_access_is_named_in_claims_and_templates() {
        let kind = |kind: &str| GroupKind::new("resource.k8s.io", kind);
        let spec = r#"{"devices":{"requests":[{"name":"a","exactly":{}},{"name":"b","exactly":{"adminAccess":true}}]}}"#;
        let claim = parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
        let template = parse(format!(r#"{{"spec":{{"spec":{spec}}}}}"#).as_bytes()).unwrap();
        let path = Some("spec.devices.requests[1].adminAccess".to_owned());
        assert_eq!(requesting_field(&kind("ResourceClaim"), &claim, None).map(|p| p.to_string()), path);
        assert_eq!(
            requesting_field(&kind("ResourceClaimTemplate"), &template, None).map(|p| p.to_string()),
            path
        );
        assert_eq!(requesting_field(&kind("DeviceClass"), &claim, None), None);
        assert_eq!(requesting_field(&GroupKind::new("example.com", "ResourceClaim"), &claim, None), None);
    }

    #[test]
    fn a_status_requests_admin_access_when_it_first_gains_such_a_result() {
        let kind = GroupKind::new("resource.k8s.io", "ResourceClaim");
        let none = parse(b"{}").unwrap();
        let some =
            parse(br#"{"status":{"allocation":{"devices":{"results":[{"adminAccess":true}]}}}}"#).unwrap();
        let path = requesting_field(&kind, &some, Some(&none)).map(|p| p.to_string());
        assert_eq!(path.as_deref(), Some("status.allocation.devices.results[0].adminAccess"));
        assert_eq!(requesting_field(&kind, &some, Some(&some)), None);
        assert_eq!(requesting_field(&kind, &none, Some(&none)), None);
    }

    #[test]
    fn either_namespace_label_set_to_true_allows_admin_access() {
        let namespace = |label: &str, value: &str| {
            parse(format!(r#"{{"metadata":{{"labels":{{"{label}":"{value}"}}}}}}"#).as_bytes()).unwrap()
        };
        assert_eq!(
            allowed_by(&namespace(crate::validation::admin_access::LABEL, "true")),
            Some(crate::validation::admin_access::LABEL)
        );
        assert_eq!(
            allowed_by(&namespace(crate::validation::admin_access::KEP_LABEL, "true")),
            Some(crate::validation::admin_access::KEP_LABEL)
        );
        assert_eq!(allowed_by(&namespace(crate::validation::admin_access::LABEL, "yes")), None);
        assert_eq!(allowed_by(&namespace("resource.k8s.io/admin-access", "true")), None);
    }
}

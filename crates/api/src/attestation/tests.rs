use value::json;

use super::{AttestationDialect, WebhookConfigurationKind, audience};

fn of(text: &str) -> Option<String> {
    audience(&json::parse(text.as_bytes()).unwrap()).map(|audience| audience.to_string())
}

#[test]
fn the_audience_of_a_url_is_the_url_unchanged() {
    for url in ["https://hooks.example/admit", "https://hooks.example:8443/a/?q", "https://hooks.example"] {
        assert_eq!(of(&format!(r#"{{"url":"{url}"}}"#)).as_deref(), Some(url));
    }
}

#[test]
fn the_audience_of_a_service_has_its_port_and_its_path() {
    let service =
        |rest: &str| of(&format!(r#"{{"service":{{"name":"svc","namespace":"ns"{rest}}}}}"#)).unwrap();
    assert_eq!(service(""), "https://svc.ns.svc:443/");
    assert_eq!(service(r#","path":"""#), "https://svc.ns.svc:443/");
    assert_eq!(service(r#","port":8443,"path":"/p/q/""#), "https://svc.ns.svc:8443/p/q/");
    assert_eq!(service(r#","path":"p""#), "https://svc.ns.svc:443/p");
    assert_eq!(of("{}"), None);
}

#[test]
fn the_core_group_has_a_name_that_no_other_group_can_use() {
    assert_eq!(AttestationDialect::Kep.name_of(""), "core");
    assert_eq!(AttestationDialect::Kep.name_of("apps"), "apps");
    assert!(
        AttestationDialect::Kep.is_reserved("core")
            && !AttestationDialect::Kep.is_reserved("")
            && !AttestationDialect::Kep.is_reserved("apps")
    );
    // Kubernetes' dialect cannot ask for the core group, so the name `core` is not reserved there.
    assert!(!AttestationDialect::Kubernetes.is_reserved("core"));
}

#[test]
fn only_webhook_configurations_of_v1_are_recognized() {
    let of = |kind: &str, version: &str| {
        WebhookConfigurationKind::of_reference(&value::Value::map([("kind", kind), ("apiVersion", version)]))
    };
    let version = "admissionregistration.k8s.io/v1";
    assert_eq!(of("ValidatingWebhookConfiguration", version), Some(WebhookConfigurationKind::Validating));
    assert_eq!(of("MutatingWebhookConfiguration", version), Some(WebhookConfigurationKind::Mutating));
    assert_eq!(of("ValidatingAdmissionPolicy", version), None);
    assert_eq!(of("MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1beta1"), None);
}

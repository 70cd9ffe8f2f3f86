use value::{Value, json};

use super::super::ValidationContext;
use super::CUSTOM_RESOURCE_DEFINITION;

const CRD: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ts.g.example.com"},
    "spec":{"group":"g.example.com","scope":"Cluster","names":{"plural":"ts","singular":"t","kind":"T","listKind":"TList"},
    "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},
    "status":{"storedVersions":["v1"]}}"#;

fn decoded(text: &str) -> Value {
    let mut object = json::parse(text.as_bytes()).unwrap();
    let schema = schema::of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    assert_eq!(schema::decode::normalize(&mut object, schema).type_error(&[]), None);
    object
}

fn errors(crd: &Value) -> Vec<String> {
    let errors = (CUSTOM_RESOURCE_DEFINITION.create)(crd, &ValidationContext::default());
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_crd_over_the_storage_of_a_built_in_resource_is_refused() {
    let of = |group: &str, plural: &str| {
        let text = value::write::to_string(&decoded(CRD));
        let named = text
            .replace("g.example.com", group)
            .replace(r#""plural":"ts""#, &format!(r#""plural":"{plural}""#));
        let named = named.replace(r#""name":"ts."#, &format!(r#""name":"{plural}."#));
        let approved = r#""metadata":{"annotations":{"api-approved.kubernetes.io":"https://example.com/1"},"#;
        errors(&decoded(&named.replace(r#""metadata":{"#, approved)))
    };
    for (group, plural) in
        [("apiregistration.k8s.io", "apiservices"), ("apiextensions.k8s.io", "customresourcedefinitions")]
    {
        assert_eq!(
            of(group, plural),
            [format!(
                r#"spec.names.plural: Invalid value: "{plural}": {plural}.{group} is a built-in resource, whose storage custom resources must not share"#
            )]
        );
    }
    assert_eq!(of("apiregistration.k8s.io", "others"), [""; 0]);
    assert_eq!(of("networking.k8s.io", "networkpolicies"), [""; 0]);
    // These groups are invalid because they have no dot, and also overlap with built-in resources.
    for (group, plural) in
        [("services", "specs"), ("services", "endpoints"), ("pods", "things"), ("events", "events")]
    {
        assert_eq!(of(group, plural).len(), 2, "{group} {plural}");
    }
}

use std::sync::Arc;

use api::selector::SelectorFacts;
use storage::{Change, Expect, Memory, StoreOptions, Write, WritePriority};

use super::*;

async fn store(objects: &[(&str, &str)]) -> Store {
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    for (key, text) in objects {
        let object = value::json::parse(text.as_bytes()).unwrap();
        let facts = SelectorFacts::of(&object, []);
        let change = Change::Put(encode::record(b"{", &object, facts));
        store
            .commit(Write {
                key: Arc::from(*key),
                expect: Expect::Any,
                change,
                priority: WritePriority::Ordinary,
                ttl: None,
            })
            .await
            .unwrap();
    }
    store
}

const SERVICE: (&str, &str) = (
    "/registry/services/specs/ns/hook",
    r#"{"metadata":{"name":"hook"},"spec":{"ipFamilies":["IPv4"],"ports":[{"name":"web","port":443},{"name":"other","port":444}]}}"#,
);

fn slice(name: &str, service: &str, ready: bool, address: &str) -> (String, String) {
    let family = if address.contains(':') { "IPv6" } else { "IPv4" };
    (
        format!("/registry/endpointslices/ns/{name}"),
        format!(
            r#"{{"addressType":"{family}","metadata":{{"name":"{name}","labels":{{"kubernetes.io/service-name":"{service}"}}}},"ports":[{{"name":"web","port":8443}}],"endpoints":[{{"addresses":["{address}"],"conditions":{{"ready":{ready}}}}}]}}"#
        ),
    )
}

async fn found(slices: &[(String, String)], port: u16) -> Result<String, String> {
    let mut objects = vec![SERVICE];
    objects.extend(slices.iter().map(|(key, text)| (key.as_str(), text.as_str())));
    endpoint(&store(&objects).await, "ns", "hook", port)
}

#[tokio::test]
async fn only_ready_endpoints_of_the_service_itself_are_called() {
    let slices = [
        slice("a", "other", true, "10.0.0.1"),
        slice("b", "hook", false, "10.0.0.2"),
        slice("c", "hook", true, "10.0.0.3"),
        slice("hook", "", true, "10.0.0.4"),
    ];
    for _ in 0..20 {
        assert_eq!(found(&slices, 443).await, Ok("10.0.0.3:8443".to_owned()));
    }
    let none = Err("no endpoints available for service \"hook\"".to_owned());
    assert_eq!(found(&slices[..2], 443).await, none);
    assert_eq!(found(&slices, 444).await, none, "no endpoint serves that port");
}

#[tokio::test]
async fn the_primary_address_family_of_a_webhook_service_is_preferred() {
    let both = [slice("a", "hook", true, "fd00::1"), slice("b", "hook", true, "10.0.0.1")];
    for _ in 0..20 {
        assert_eq!(found(&both, 443).await, Ok("10.0.0.1:8443".to_owned()));
    }
    assert_eq!(found(&both[..1], 443).await, Ok("[fd00::1]:8443".to_owned()));
}

#[tokio::test]
async fn missing_and_unsupported_services_have_kubernetes_error_messages() {
    assert_eq!(found(&[], 1).await, Err("no service port 1 found for service \"hook\"".to_owned()));
    let empty = store(&[]).await;
    assert_eq!(endpoint(&empty, "ns", "hook", 443), Err("service \"hook\" not found".to_owned()));
    let strange = ("/registry/services/specs/ns/hook", r#"{"metadata":{},"spec":{"type":"Strange"}}"#);
    let store = store(&[strange]).await;
    assert_eq!(endpoint(&store, "ns", "hook", 443), Err("unsupported service type \"Strange\"".to_owned()));
}

#[tokio::test]
async fn external_name_services_are_called_by_their_external_name() {
    let external = |name: &str| {
        format!(r#"{{"metadata":{{}},"spec":{{"type":"ExternalName","externalName":"{name}"}}}}"#)
    };
    let at = "/registry/services/specs/ns/hook";
    let named = store(&[(at, &external("hook.example.com"))]).await;
    assert_eq!(endpoint(&named, "ns", "hook", 8443), Ok("hook.example.com:8443".to_owned()));
    let nameless = store(&[(at, &external(""))]).await;
    assert_eq!(
        endpoint(&nameless, "ns", "hook", 443),
        Err("service \"hook\" has no external name".to_owned())
    );
}

#[tokio::test]
async fn fqdn_and_local_endpoint_addresses_are_never_called() {
    let none = Err("no endpoints available for service \"hook\"".to_owned());
    for bad in
        ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "::ffff:127.0.0.1", "fe80::1", "example.com"]
    {
        assert_eq!(found(&[slice("a", "hook", true, bad)], 443).await, none, "{bad}");
    }
    let (key, text) = slice("a", "hook", true, "10.0.0.1");
    let names = (key, text.replace("\"IPv4\"", "\"FQDN\""));
    assert_eq!(found(&[names], 443).await, none);
    let both = [slice("a", "hook", true, "127.0.0.1"), slice("b", "hook", true, "10.0.0.1")];
    assert_eq!(found(&both, 443).await, Ok("10.0.0.1:8443".to_owned()), "the good one is used");
}

use std::sync::Arc;

use authn::InternalIdentity;
use authz::rbac::reconcile::ReconcileAction;
use value::{Value, json};

use super::{BootstrapItem, DesiredState, Hook, reconcile_action};
use crate::Ephemeral;
use crate::client::Client;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const FIELDS: &[&[&str]] = &[&["endpoints"], &["ports"]];

fn slice(family: &str, port: i64) -> Value {
    let address = if family == "IPv4" { "192.0.2.1" } else { "2001:db8::1" };
    let text = format!(
        r#"{{"metadata":{{"name":"s","namespace":"default"}},"addressType":"{family}",
            "endpoints":[{{"addresses":["{address}"]}}],"ports":[{{"name":"https","port":{port},"protocol":"TCP"}}]}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

async fn bring(client: &Client, object: Value) -> Result<(), u16> {
    let item = BootstrapItem::new(
        Hook::KubernetesService,
        (SLICES.to_owned(), object),
        DesiredState::Fields(FIELDS),
    );
    item.write(client).await.map_err(|status| status.code())
}

#[test]
fn bootstrap_recreates_objects_only_when_an_immutable_field_differs() {
    let stored = slice("IPv4", 443);
    assert_eq!(reconcile_action(&stored, Some(&stored), FIELDS), ReconcileAction::Keep);
    assert_eq!(reconcile_action(&stored, None, FIELDS), ReconcileAction::Create(stored.clone()));
    assert_eq!(
        reconcile_action(&slice("IPv4", 6443), Some(&stored), FIELDS),
        ReconcileAction::Update(slice("IPv4", 6443))
    );
    let other = slice("IPv6", 443);
    assert_eq!(reconcile_action(&other, Some(&stored), FIELDS), ReconcileAction::Recreate(other.clone()));
}

#[tokio::test]
async fn an_invalid_bootstrap_object_is_not_recreated_and_concurrent_bootstraps_succeed() {
    let server = Ephemeral::start().await.unwrap();
    let client = Client::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    let path = format!("{SLICES}/s");
    bring(&client, slice("IPv4", 443)).await.unwrap();
    let first = client.get(&path).await.unwrap();
    let mut wrong = slice("IPv4", 443);
    wrong.set_at(&["endpoints"], Value::list([Value::map([("addresses", Value::list(["nowhere"]))])]));
    assert_eq!(bring(&client, wrong).await, Err(422));
    assert_eq!(client.get(&path).await.unwrap(), first, "what is refused stays as it was");

    bring(&client, slice("IPv6", 443)).await.unwrap();
    let second = client.get(&path).await.unwrap();
    assert_ne!(api::meta::uid(&second), api::meta::uid(&first));

    let (one, two) = tokio::join!(bring(&client, slice("IPv6", 1)), bring(&client, slice("IPv6", 2)));
    assert_eq!((one, two), (Ok(()), Ok(())));
    assert_eq!(api::meta::uid(&client.get(&path).await.unwrap()), api::meta::uid(&second));
    server.running.stop().await;
}

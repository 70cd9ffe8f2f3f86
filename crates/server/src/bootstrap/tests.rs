use std::sync::Arc;

use authn::InternalIdentity;
use value::{Value, json};

use super::{BootstrapItem, DesiredState, PostStartHook};
use crate::Ephemeral;
use crate::client::LoopbackClient;

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn binding(role: &str, group: &str) -> Value {
    let text = format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{{"name":"b",
            "annotations":{{"rbac.authorization.kubernetes.io/autoupdate":"true"}}}},
            "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"{role}"}},
            "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"{group}"}}]}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

async fn write_item(client: &LoopbackClient, object: Value) -> Result<(), u16> {
    let item = BootstrapItem::new(PostStartHook::Roles, (BINDINGS.to_owned(), object), DesiredState::Role);
    item.write(client).await.map_err(|status| status.code())
}

#[tokio::test]
async fn an_invalid_bootstrap_object_is_not_recreated_and_concurrent_bootstraps_succeed() {
    let server = Ephemeral::start().await.unwrap();
    let client = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    let path = format!("{BINDINGS}/b");
    write_item(&client, binding("view", "g")).await.unwrap();
    let first = client.get(&path).await.unwrap();
    assert_eq!(write_item(&client, binding("view", "")).await, Err(422));
    assert_eq!(client.get(&path).await.unwrap(), first, "what is refused stays as it was");

    write_item(&client, binding("edit", "g")).await.unwrap();
    let second = client.get(&path).await.unwrap();
    assert_ne!(api::meta::uid(&second), api::meta::uid(&first), "the role of a binding cannot be changed");

    let (one, two) =
        tokio::join!(write_item(&client, binding("edit", "x")), write_item(&client, binding("edit", "y")));
    assert_eq!((one, two), (Ok(()), Ok(())));
    let both = client.get(&path).await.unwrap();
    assert_eq!(api::meta::uid(&both), api::meta::uid(&second));
    assert_eq!(both.list_at(&["subjects"]).len(), 3);
    server.running.stop().await;
}

//! Clients that create and delete objects in a namespace with a quota, which is nearly always used up.

use std::time::Duration;

use conformance::random::Dice;
use serde_json::{Value, json};

use super::{QUOTA_NAMESPACE, RecordingClient};

const NAMES: u64 = 16;

pub(super) async fn run(client: RecordingClient, mut dice: Dice, resource: &'static str) {
    while !client.session.is_stopping() {
        let name = format!("t-{}", dice.roll(NAMES));
        if dice.roll(10) < 6 {
            client.create(resource, QUOTA_NAMESPACE, object(resource, &name)).await;
        } else {
            client.delete(resource, QUOTA_NAMESPACE, &name, None).await;
        }
        tokio::time::sleep(Duration::from_millis(20 + dice.roll(60))).await;
    }
}

fn object(resource: &str, name: &str) -> Value {
    if resource == "pods" {
        return json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "registry.example/pause"}]},
        });
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": name}})
}

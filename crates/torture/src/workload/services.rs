//! Clients that create and delete Services, so that servers allocate the same cluster IPs and node ports at the same time.

use std::time::Duration;

use serde_json::{Value, json};

use super::{NAMESPACE, RecordingClient};
use crate::clock::Dice;
use crate::history::{Outcome, ReadAt, merge};

const RESOURCE: &str = "services";
const NAMES: u64 = 12;
/// Fixed addresses and ports, of which there are fewer than Services.
const FIXED: u64 = 4;

pub(super) async fn run(client: RecordingClient, mut dice: Dice) {
    while !client.session.is_stopping() {
        let name = format!("t-{}", dice.roll(NAMES));
        match dice.roll(10) {
            0..5 => {
                client.create(RESOURCE, NAMESPACE, service(&name, &mut dice)).await;
            }
            5..8 => {
                client.delete(RESOURCE, NAMESPACE, &name, None).await;
            }
            8 => {
                client.list(RESOURCE, NAMESPACE, ReadAt::Latest, 0).await;
            }
            _ => change_type(&client, &name).await,
        }
        tokio::time::sleep(Duration::from_millis(20 + dice.roll(60))).await;
    }
}

/// A Service with an automatic or fixed cluster IP, and with or without a node port, which may be fixed too.
fn service(name: &str, dice: &mut Dice) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]},
    });
    let ip = format!("10.0.0.{}", 200 + dice.roll(FIXED));
    let spec = match dice.roll(4) {
        0 => json!({}),
        1 => json!({"clusterIP": ip}),
        2 => json!({"type": "NodePort"}),
        _ => json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000 + dice.roll(FIXED)}]}),
    };
    merge(&mut service, &json!({"spec": spec}));
    service
}

/// Gives a Service a node port that it did not have.
async fn change_type(client: &RecordingClient, name: &str) {
    let Outcome::Object(Some(seen)) = client.get(RESOURCE, NAMESPACE, name, ReadAt::Latest).await else {
        return;
    };
    let mut object = seen.object;
    merge(&mut object, &json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "NodePort"}}));
    client.update(RESOURCE, NAMESPACE, seen.revision, object).await;
}

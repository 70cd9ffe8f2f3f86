//! Clients that create and delete Services, so that servers allocate the same cluster IPs and node ports at the same time.

use std::time::Duration;

use conformance::random::Dice;
use serde_json::{Value, json};

use super::{NAMESPACE, RecordingClient};
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
            _ => extend(&client, &mut dice, &name).await,
        }
        tokio::time::sleep(Duration::from_millis(20 + dice.roll(60))).await;
    }
}

/// A Service with an automatic or fixed cluster IP of one or both families, and with or without a node port, which may be fixed too.
fn service(name: &str, dice: &mut Dice) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]},
    });
    let ip = format!("10.0.0.{}", 200 + dice.roll(FIXED));
    let ipv6 = format!("fd00:10::{:x}", 200 + dice.roll(FIXED));
    let addresses = match dice.roll(6) {
        0 => json!({}),
        1 => json!({"clusterIP": ip}),
        2 => json!({"ipFamilies": ["IPv6"]}),
        3 => json!({"ipFamilies": ["IPv6"], "clusterIP": ipv6}),
        4 => json!({"ipFamilyPolicy": "RequireDualStack"}),
        _ => json!({"ipFamilyPolicy": "RequireDualStack", "clusterIPs": [ip, ipv6]}),
    };
    let ports = match dice.roll(3) {
        0 => json!({}),
        1 => json!({"type": "NodePort"}),
        _ => json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000 + dice.roll(FIXED)}]}),
    };
    merge(&mut service, &json!({"spec": addresses}));
    merge(&mut service, &json!({"spec": ports}));
    service
}

/// Gives a Service a node port, or an address of the second family, that it did not have.
async fn extend(client: &RecordingClient, dice: &mut Dice, name: &str) {
    let Outcome::Object(Some(seen)) = client.get(RESOURCE, NAMESPACE, name, ReadAt::Latest).await else {
        return;
    };
    let mut object = seen.object;
    let spec = match dice.roll(2) {
        0 => json!({"type": "NodePort"}),
        _ => json!({"ipFamilyPolicy": "PreferDualStack"}),
    };
    merge(&mut object, &json!({"apiVersion": "v1", "kind": "Service", "spec": spec}));
    client.update(RESOURCE, NAMESPACE, seen.revision, object).await;
}

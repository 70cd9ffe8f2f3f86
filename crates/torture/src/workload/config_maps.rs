//! Clients that create, update, patch, delete and read ConfigMaps.

use std::collections::BTreeMap;
use std::time::Duration;

use conformance::random::Dice;
use serde_json::{Value, json};

use super::{NAMESPACE, RecordingClient};
use crate::history::{Outcome, ReadAt, SeenObject, merge};
use crate::server_process::FORBIDDEN_DATA;

const RESOURCE: &str = "configmaps";
/// Number of names: few, so that clients change the same objects.
const NAMES: u64 = 10;

/// Sends requests until the session stops.
pub(super) async fn run(client: RecordingClient, mut dice: Dice) {
    let mut known = BTreeMap::new();
    while !client.session.is_stopping() {
        step(&client, &mut dice, &mut known).await;
        tokio::time::sleep(Duration::from_millis(5 + dice.roll(40))).await;
    }
}

/// `known` are the objects that this client has seen last, by name.
async fn step(client: &RecordingClient, dice: &mut Dice, known: &mut BTreeMap<String, SeenObject>) {
    let name = format!("t-{}", dice.roll(NAMES));
    let outcome = match dice.roll(100) {
        0..14 => client.create(RESOURCE, NAMESPACE, config_map(&name, dice)).await,
        14..42 => match known.get(&name) {
            Some(seen) => update(client, dice, seen.clone()).await,
            None => client.get(RESOURCE, NAMESPACE, &name, ReadAt::Latest).await,
        },
        42..54 => {
            let field = format!("p{}", client.index);
            let patch = json!({"data": {field: dice.roll(1_000_000).to_string()}});
            client.patch(RESOURCE, NAMESPACE, &name, patch).await
        }
        54..62 => {
            let base = known.get(&name).map(|seen| seen.revision).filter(|_| dice.roll(2) == 0);
            client.delete(RESOURCE, NAMESPACE, &name, base).await
        }
        62..78 => client.get(RESOURCE, NAMESPACE, &name, ReadAt::Latest).await,
        78..84 => client.get(RESOURCE, NAMESPACE, &name, session_read(client, dice)).await,
        84..91 => client.list(RESOURCE, NAMESPACE, ReadAt::Latest, 0).await,
        91..94 => client.list(RESOURCE, NAMESPACE, ReadAt::Latest, 3).await,
        94..98 => client.list(RESOURCE, NAMESPACE, session_read(client, dice), 0).await,
        _ => forbidden(client, dice, &name).await,
    };
    match outcome {
        Outcome::Stored(seen) | Outcome::Object(Some(seen)) => {
            known.insert(name, seen);
        }
        // After a refusal the object is not the one that this client knows.
        Outcome::Object(None) | Outcome::Deleted { .. } | Outcome::Refused { .. } => {
            known.remove(&name);
        }
        Outcome::Listed { items, .. } => {
            let by_name =
                |(key, seen): (String, SeenObject)| Some((key.rsplit('/').next()?.to_owned(), seen));
            known.extend(items.into_iter().filter_map(by_name));
        }
        Outcome::Unknown(_) => {}
    }
}

fn config_map(name: &str, dice: &mut Dice) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"value": dice.roll(1_000_000).to_string()},
    })
}

async fn update(client: &RecordingClient, dice: &mut Dice, seen: SeenObject) -> Outcome {
    let mut object = seen.object;
    let change = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "data": {"value": dice.roll(1_000_000).to_string()},
    });
    merge(&mut object, &change);
    client.update(RESOURCE, NAMESPACE, seen.revision, object).await
}

/// A write that the static policy denies.
async fn forbidden(client: &RecordingClient, dice: &mut Dice, name: &str) -> Outcome {
    let patch = json!({"data": {FORBIDDEN_DATA: "yes"}});
    if dice.roll(2) == 0 {
        return client.patch(RESOURCE, NAMESPACE, name, patch).await;
    }
    let mut object = config_map(name, dice);
    merge(&mut object, &patch);
    client.create(RESOURCE, NAMESPACE, object).await
}

/// Any state, or one that is not older than what some client has seen.
fn session_read(client: &RecordingClient, dice: &mut Dice) -> ReadAt {
    match client.session.seen() {
        0 => ReadAt::Any,
        _ if dice.roll(3) == 0 => ReadAt::Any,
        seen => ReadAt::NotOlderThan(seen),
    }
}

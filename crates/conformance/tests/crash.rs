//! Kills the server at random times under a write load; every acknowledged write must be there afterwards.
//!
//! `PORTCULLIS_ROUNDS` sets the number of rounds, `PORTCULLIS_SEED` the random times.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance::random::{Dice, env_number};
use conformance::{Client, Server};
use http::Method;
use serde_json::json;
use tempfile::TempDir;

/// The number of concurrent writers.
const WRITERS: u64 = 8;

/// The last acknowledged state of an object, and a later write that was never answered.
#[derive(Clone, Debug, Default)]
struct ExpectedObject {
    acknowledged: Option<u64>,
    asked: Option<UnansweredWrite>,
}

/// The value of an unanswered write; `None` for a deletion.
#[derive(Clone, Copy, Debug, PartialEq)]
struct UnansweredWrite(Option<u64>);

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    let seed = env_number("PORTCULLIS_SEED", 1);
    let mut dice = Dice::new(seed);
    let folder = TempDir::new().unwrap();
    let model: Arc<Mutex<BTreeMap<String, ExpectedObject>>> = Arc::default();
    let mut revision = 0;
    let mut writes = 0;
    for round in 0..env_number("PORTCULLIS_ROUNDS", 24) {
        let mut server = Server::up_at(folder.path()).await.unwrap_or_else(|problem| {
            panic!("PORTCULLIS_SEED={seed}, round {round}: the server does not start again: {problem}")
        });
        let client = server.client().unwrap();
        check_stored_objects(&client, &model, &mut revision)
            .await
            .unwrap_or_else(|problem| panic!("PORTCULLIS_SEED={seed}, round {round}: {problem}"));

        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(round * WRITERS + number));
                let own = client.as_token(None);
                tokio::spawn(write(own, number, dice, Arc::clone(&model), Arc::clone(&stop)))
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20 + dice.roll(300))).await;
        server.kill().unwrap();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writes += writer.await.unwrap();
        }
    }
    let server = Server::up_at(folder.path()).await.unwrap();
    check_stored_objects(&server.client().unwrap(), &model, &mut revision).await.unwrap();
    println!("{writes} acknowledged writes, all there");
    assert!(writes > 0, "nothing was written");
}

/// Creates, changes and deletes objects that only this writer uses, until the server is killed. Returns the number of
/// acknowledged writes.
async fn write(
    client: Client,
    number: u64,
    mut dice: Dice,
    model: Arc<Mutex<BTreeMap<String, ExpectedObject>>>,
    stop: Arc<AtomicBool>,
) -> u64 {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{number}-{}", dice.roll(20));
        let path = format!("/api/v1/namespaces/default/configmaps/{name}");
        let now = model.lock().unwrap().get(&name).and_then(|known| known.acknowledged);
        let next = match now {
            Some(_) if dice.roll(4) == 0 => None,
            _ => Some(dice.roll(1 << 30)),
        };
        let object = json!({
            "metadata": {"name": name, "labels": {"suite": "crash"}},
            "data": {"value": next.unwrap_or_default().to_string(), "padding": "x".repeat(usize::try_from(dice.roll(4000)).unwrap())},
        });
        model.lock().unwrap().entry(name.clone()).or_default().asked = Some(UnansweredWrite(next));
        let answer = match (now, next) {
            (None, Some(_)) => client.post("/api/v1/namespaces/default/configmaps", &object).await,
            (Some(_), Some(_)) => client.json(Method::PUT, &path, &object).await,
            (_, None) => client.delete(&path).await,
        };
        let Ok(answer) = answer else { break };
        assert!((200..300).contains(&answer.code), "{name}: {} {}", answer.code, answer.text());
        let mut model = model.lock().unwrap();
        model.insert(name, ExpectedObject { acknowledged: next, asked: None });
        acknowledged += 1;
    }
    acknowledged
}

/// Compares the stored objects with the expected ones. An unanswered write may have happened or not; its outcome becomes the
/// expected state.
async fn check_stored_objects(
    client: &Client,
    model: &Mutex<BTreeMap<String, ExpectedObject>>,
    revision: &mut u64,
) -> Result<(), String> {
    let answer = client.get("/api/v1/namespaces/default/configmaps?labelSelector=suite%3Dcrash").await;
    let list = answer.map_err(|problem| problem.to_string())?.json();
    let now: u64 =
        list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    if now < *revision {
        return Err(format!("revisions went back from {revision} to {now}"));
    }
    *revision = now;
    let there: BTreeMap<&str, u64> = list["items"]
        .as_array()
        .ok_or_else(|| format!("no list: {list}"))?
        .iter()
        .filter_map(|item| {
            let value = item["data"]["value"].as_str()?.parse().ok()?;
            Some((item["metadata"]["name"].as_str()?, value))
        })
        .collect();
    let mut model = model.lock().map_err(|_| "a writer failed")?;
    for (name, known) in model.iter_mut() {
        let is = there.get(name.as_str()).copied();
        if is != known.acknowledged && known.asked != Some(UnansweredWrite(is)) {
            return Err(format!("{name} is {is:?}, but {known:?}"));
        }
        *known = ExpectedObject { acknowledged: is, asked: None };
    }
    if let Some(unexpected) = there.keys().find(|name| !model.contains_key(**name)) {
        return Err(format!("{unexpected} exists, but no writer created it"));
    }
    Ok(())
}

//! A snapshot has the objects of one revision, and a restored server has all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use conformance::random::Dice;
use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{MAPS, snapshot_succeeds, status, text};

#[derive(Default)]
struct WriteLog {
    /// Name and value by revision.
    puts: BTreeMap<u64, (String, String)>,
    deletions: Vec<LoggedDeletion>,
}

/// A deletion: its answer does not have its revision, which lies between these two.
struct LoggedDeletion {
    name: String,
    /// The revision of the deleted object.
    deleted: u64,
    /// The revision of the writer's last write before the deletion.
    after: u64,
    /// The revision of a list after the deletion.
    until: u64,
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Creates, changes and deletes objects of its own until it is stopped.
async fn write(client: Client, number: u64, log: Arc<Mutex<WriteLog>>, stop: Arc<AtomicBool>) {
    let mut dice = Dice::new(number);
    let mut live: BTreeMap<String, u64> = BTreeMap::new();
    let mut after = 0;
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{number}-{}", dice.roll(30));
        let path = format!("{MAPS}/{name}");
        let value = dice.roll(1 << 30).to_string();
        let map =
            json!({"metadata": {"name": name, "labels": {"suite": "snapshot"}}, "data": {"value": value}});
        let answer = match live.remove(&name) {
            None => client.post(MAPS, &map).await,
            Some(_) if dice.roll(4) > 0 => client.json(Method::PUT, &path, &map).await,
            Some(deleted) => {
                accepts(client.delete(&path).await).unwrap();
                let until = revision(&accepts(client.get(&format!("{MAPS}?limit=1")).await).unwrap());
                log.lock().unwrap().deletions.push(LoggedDeletion { name, deleted, after, until });
                after = until;
                continue;
            }
        };
        let written = revision(&accepts(answer).unwrap());
        log.lock().unwrap().puts.insert(written, (name.clone(), value));
        live.insert(name, written);
        after = written;
    }
}

/// The objects that must exist at a revision, and the names of which that is not known.
fn expected(log: &WriteLog, at: u64) -> (BTreeMap<String, (u64, String)>, BTreeSet<String>) {
    let puts = log.puts.range(..=at);
    let mut objects: BTreeMap<String, (u64, String)> =
        puts.map(|(revision, (name, value))| (name.clone(), (*revision, value.clone()))).collect();
    let mut unclear = BTreeSet::new();
    for LoggedDeletion { name, deleted, after, until } in &log.deletions {
        if *after < at && objects.get(name).is_some_and(|(revision, _)| revision == deleted) {
            if *until <= at {
                objects.remove(name);
            } else {
                unclear.insert(name.clone());
            }
        }
    }
    (objects, unclear)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_saved_during_writes_has_exactly_the_writes_up_to_its_revision() {
    let home = TempDir::new().unwrap();
    let server = Server::up_at(home.path()).await.unwrap();
    let client = server.client().unwrap();
    let (log, stop) = (Arc::<Mutex<WriteLog>>::default(), Arc::new(AtomicBool::new(false)));
    let writers: Vec<_> = (0..4)
        .map(|number| tokio::spawn(write(client.as_token(None), number, Arc::clone(&log), Arc::clone(&stop))))
        .collect();
    let kubeconfig = format!("--kubeconfig={}", text(&server.kubeconfig().unwrap()));
    let mut files = Vec::new();
    for number in 0..4 {
        let file = home.path().join(format!("snapshot-{number}"));
        let before = revision(&accepts(client.get(&format!("{MAPS}?limit=1")).await).unwrap());
        snapshot_succeeds(&["save", text(&file), &kubeconfig]).await;
        let saved = status(&file).await["revision"].as_u64().unwrap();
        assert!(saved >= before, "a snapshot has everything acknowledged before it: {saved} and {before}");
        files.push((file, saved));
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    drop(server);

    for (number, (file, saved)) in files.iter().enumerate() {
        let home = TempDir::new().unwrap();
        let target = home.path().join("data/store");
        snapshot_succeeds(&["restore", text(file), "--data-dir", text(&target)]).await;
        let server = restored(home.path()).await;
        let list = server.client().unwrap().get(&format!("{MAPS}?labelSelector=suite%3Dsnapshot")).await;
        let list = accepts(list).unwrap();
        let found: BTreeMap<String, (u64, String)> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                let name = item["metadata"]["name"].as_str().unwrap().to_owned();
                (name, (revision(item), item["data"]["value"].as_str().unwrap().to_owned()))
            })
            .collect();
        let (expected, unclear) = expected(&log.lock().unwrap(), *saved);
        let compared = |map: &BTreeMap<String, (u64, String)>| {
            map.clone().into_iter().filter(|(name, _)| !unclear.contains(name)).collect::<Vec<_>>()
        };
        assert_eq!(compared(&found), compared(&expected), "snapshot {number} at {saved}");
        // Each writer has at most one deletion under way.
        assert!(unclear.len() <= 4, "{unclear:?}");
        assert!(!found.is_empty());
    }
}

/// Starts `portcullis up` on a restored store. The directory above it must be private.
async fn restored(home: &std::path::Path) -> Server {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(home.join("data"), std::fs::Permissions::from_mode(0o700)).unwrap();
    Server::up_at(home).await.unwrap()
}

const LISTS: &[&str] = &[
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/example.com/v1/widgets",
];

async fn all(client: &Client) -> BTreeMap<&'static str, Value> {
    let mut lists = BTreeMap::new();
    for path in LISTS {
        lists.insert(*path, accepts(client.get(path).await).unwrap()["items"].clone());
    }
    lists
}

/// The revision that a write of no effect on others gets next.
async fn next_revision(client: &Client) -> u64 {
    let map = json!({"metadata": {"generateName": "next-"}});
    revision(&accepts(client.post(MAPS, &map).await).unwrap())
}

#[tokio::test]
async fn a_restored_server_serves_the_same_objects_with_the_same_resource_versions() {
    let home = TempDir::new().unwrap();
    let mut server = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let crd = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    accepts(client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await).unwrap();
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 3});
    conformance::eventually(super::PATIENCE, async || {
        accepts(client.post("/apis/example.com/v1/namespaces/default/widgets", &widget).await)
    })
    .await
    .unwrap();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    accepts(client.post("/api/v1/namespaces/default/secrets", &secret).await).unwrap();
    accepts(client.post(MAPS, &json!({"metadata": {"name": "deleted"}})).await).unwrap();
    accepts(client.delete(&format!("{MAPS}/deleted")).await).unwrap();
    let before = all(&client).await;

    let file = home.path().join("snapshot");
    let saved = super::post(&client).await.unwrap();
    assert_eq!((saved.code, saved.header("content-type")), (200, "application/vnd.portcullis.snapshot"));
    std::fs::write(&file, &saved.body).unwrap();
    let online = status(&file).await;
    assert_eq!(online["totalSize"], saved.body.len());
    assert_eq!(online["format"], 1);
    let later = next_revision(&client).await;
    server.kill().unwrap();

    for (name, bump) in [("same", 0_u64), ("raised", 1_000_000)] {
        let other = TempDir::new().unwrap();
        std::fs::copy(home.path().join("sa.key"), other.path().join("sa.key")).unwrap();
        let target = other.path().join("data");
        let bump_flag = format!("--bump-revision={bump}");
        snapshot_succeeds(&["restore", text(&file), "--data-dir", text(&target), &bump_flag]).await;
        let server = Server::serve_at(other.path(), &[]).await.unwrap();
        let client = server.client().unwrap();
        assert_eq!(all(&client).await, before, "{name}");
        // A client that has seen a later revision: it must not continue silently.
        let watch =
            client.events(&format!("{MAPS}?watch=1&resourceVersion={later}&timeoutSeconds=1"), &[]).await;
        let mut watch = watch.unwrap();
        if bump > 0 {
            let event = watch.next().await.unwrap().unwrap();
            assert_eq!(
                (event["type"].as_str(), event["object"]["code"].as_u64()),
                (Some("ERROR"), Some(410)),
                "{event}"
            );
        }
        let next = next_revision(&client).await;
        assert!(next > online["revision"].as_u64().unwrap() + bump, "{next}");
        rejects(client.get(&format!("{MAPS}/deleted")).await, 404, "NotFound").unwrap();
    }
}

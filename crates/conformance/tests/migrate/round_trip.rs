//! From the embedded store to etcd and back: clients get the same objects.

use std::time::Duration;

use conformance::{Client, EtcdProcess, Server, accepts, eventually, rejects};
use serde_json::json;
use tempfile::TempDir;

use super::{PATIENCE, digest_after, migrate_succeeds, objects, on, stop, text};

/// Lists wheels by a selectable field of their CRD.
const BIG_WHEELS: &str =
    "/apis/migrate.example.com/v1/namespaces/default/wheels?fieldSelector=spec.size%3Dbig";

async fn revision(client: &Client) -> String {
    let list = accepts(client.get("/api/v1/namespaces?limit=1").await).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// A client that continues a watch from a revision of the source must list again.
async fn old_watches_end(client: &Client, revision: &str) {
    let watch = format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={revision}");
    let mut events = client.events(&watch, &[]).await.unwrap();
    let first = events.within(Duration::from_secs(30)).await.unwrap().unwrap();
    assert_eq!((&first["type"], &first["object"]["code"]), (&json!("ERROR"), &json!(410)), "{first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_equal_after_a_migration_to_etcd_and_back() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    objects::create(&client).await;
    let expected = objects::read(&client).await;
    let old_revision = revision(&client).await;
    let data = server.data();
    stop(server).await;

    let there = [
        "--from-data-dir",
        text(&data),
        "--to-etcd-servers",
        &etcd.url,
        "--advance-revision",
        "--event-ttl",
        "30m",
    ];
    let said = migrate_succeeds(&there).await;
    let digest = digest_after(&said, "source:").to_owned();
    assert!(digest.starts_with("sha256:") && digest.len() == 71, "{said}");
    assert_eq!(digest_after(&said, "verified:"), digest);
    for resource in [
        "pods",
        "services",
        "secrets",
        "wheels.migrate.example.com",
        "ipaddresses.networking.k8s.io",
        "ranges",
    ] {
        assert!(
            said.lines().any(|line| line.split_whitespace().next() == Some(resource)),
            "{resource}: {said}"
        );
    }
    assert!(etcd.revision().await.unwrap() > old_revision.parse().unwrap());
    let left = etcd.list("portcullis-migration").await.unwrap();
    assert!(left.is_empty(), "the marker or the scratch key is left: {left:?}");

    // The encodings of kube-apiserver.
    let keys = etcd.list("/registry/").await.unwrap();
    let value = |key: &str| keys.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_slice());
    assert!(value("/registry/secrets/default/m").unwrap().starts_with(b"k8s\0"));
    let crd =
        value("/registry/apiextensions.k8s.io/customresourcedefinitions/wheels.migrate.example.com").unwrap();
    assert!(String::from_utf8_lossy(crd).contains("apiextensions.k8s.io/v1beta1"));
    assert!(value("/registry/migrate.example.com/wheels/default/m").unwrap().starts_with(b"{"));

    // Back, before a server changes anything: the same digest.
    let back = home.path().join("back/data");
    let said = migrate_succeeds(&["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&back)]).await;
    assert_eq!(digest_after(&said, "verified:"), digest);

    let on_etcd = Server::serve(&[&on(&etcd)]).await.unwrap();
    let client = on_etcd.client().unwrap();
    assert_eq!(objects::read(&client).await, expected, "served from etcd");
    old_watches_end(&client, &old_revision).await;
    let wheels = accepts(client.get(BIG_WHEELS).await).unwrap();
    assert_eq!(wheels["items"].as_array().unwrap().len(), 1);
    let etcd_revision = revision(&client).await;
    stop(on_etcd).await;

    let home = home.path().join("back");
    let embedded = Server::serve_at(&home, &[]).await.unwrap();
    let client = embedded.client().unwrap();
    assert_eq!(objects::read(&client).await, expected, "served from the new directory");
    old_watches_end(&client, &old_revision).await;
    let wheels = accepts(client.get(BIG_WHEELS).await).unwrap();
    assert_eq!(wheels["items"].as_array().unwrap().len(), 1);
    assert!(etcd_revision.parse::<u64>().unwrap() > old_revision.parse().unwrap());

    // The copied allocations are in force: the node port of the Service is taken.
    let service = accepts(client.get("/api/v1/namespaces/default/services/m").await).unwrap();
    let port = &service["spec"]["ports"][0]["nodePort"];
    let second = json!({"metadata": {"name": "second"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
    let refused = client.post("/api/v1/namespaces/default/services", &second).await;
    rejects(refused, 422, "Invalid").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_a_server_wrote_to_etcd_are_equal_in_a_new_directory() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let server = Server::serve(&[&on(&etcd), "--etcd-prefix=/other"]).await.unwrap();
    let client = server.client().unwrap();
    objects::create(&client).await;
    let expected = objects::read(&client).await;
    let last = revision(&client).await;
    stop(server).await;

    // An event with a lease, as kube-apiserver writes it, and two keys that were written in one transaction.
    let lease = etcd.call("lease/grant", &json!({"TTL": 2})).await.unwrap();
    let (_, event) = etcd.list("/other/events/default/m").await.unwrap().remove(0);
    put_with_lease(&etcd, "/other/events/default/short", &event, &lease["ID"]).await;
    put_together(&etcd, ["/other/configmaps/default/one", "/other/configmaps/default/two"]).await;
    eventually(PATIENCE, async || match etcd.list("/other/events/default/short").await?.len() {
        0 => Ok(()),
        _ => Err(conformance::Problem::new("the event has not expired")),
    })
    .await
    .unwrap();

    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let source = ["--from-etcd-servers", &etcd.url, "--etcd-prefix", "other/", "--to-data-dir", text(&data)];
    let mut dry = source.to_vec();
    dry.push("--dry-run");
    let said = migrate_succeeds(&dry).await;
    assert!(said.contains("nothing was written") && !data.exists(), "{said}");
    migrate_succeeds(&source).await;

    let embedded = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = embedded.client().unwrap();
    assert_eq!(objects::read(&client).await, expected);
    let pair = [
        accepts(client.get("/api/v1/namespaces/default/configmaps/one").await).unwrap(),
        accepts(client.get("/api/v1/namespaces/default/configmaps/two").await).unwrap(),
    ];
    let revisions = pair.each_ref().map(|map| map["metadata"]["resourceVersion"].as_str().unwrap());
    assert_ne!(revisions[0], revisions[1]);
    assert!(revision(&client).await.parse::<u64>().unwrap() > last.parse().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_a_lease_keep_their_remaining_time() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    objects::create(&server.client().unwrap()).await;
    let data = server.data();
    stop(server).await;
    let event = "/registry/events/default/m";
    let to_etcd = ["--from-data-dir", text(&data), "--to-etcd-servers", &etcd.url];
    let mut there = to_etcd.to_vec();
    there.extend(["--allow-revision-rollback", "--event-ttl", "2h"]);
    let said = migrate_succeeds(&there).await;
    assert!(said.contains("restart all clients"), "{said}");
    let left = time_to_live(&etcd, event).await.unwrap();
    assert!((7100..=7270).contains(&left), "{left}");
    assert_eq!(time_to_live(&etcd, "/registry/configmaps/default/m").await, None);

    // To a directory and to etcd again, with another default: the event keeps its time.
    let back = home.path().join("back");
    migrate_succeeds(&["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&back)]).await;
    etcd.delete_prefix("/registry/").await.unwrap();
    let again = ["--from-data-dir", text(&back), "--to-etcd-servers", &etcd.url];
    migrate_succeeds(&again).await;
    let left = time_to_live(&etcd, event).await.unwrap();
    assert!((7000..=7330).contains(&left), "{left}");
}

/// The seconds until a key expires; `None` if it does not.
async fn time_to_live(etcd: &EtcdProcess, key: &str) -> Option<u64> {
    use base64::Engine as _;
    let request = json!({"key": base64::prelude::BASE64_STANDARD.encode(key)});
    let found = etcd.call("kv/range", &request).await.unwrap();
    let lease = found["kvs"][0].get("lease")?.clone();
    let answer = etcd.call("lease/timetolive", &json!({"ID": lease})).await.unwrap();
    answer["TTL"].as_str().unwrap().parse().ok()
}

async fn put_with_lease(etcd: &EtcdProcess, key: &str, value: &[u8], lease: &serde_json::Value) {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::prelude::BASE64_STANDARD.encode(bytes);
    let put = json!({"key": encode(key.as_bytes()), "value": encode(value), "lease": lease});
    etcd.call("kv/put", &put).await.unwrap();
}

async fn put_together(etcd: &EtcdProcess, keys: [&str; 2]) {
    use base64::Engine as _;
    let put = |key: &str| {
        let name = key.rsplit('/').next().unwrap();
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "name": name, "namespace": "default", "uid": format!("00000000-0000-0000-0000-00000000{name}0"),
            "creationTimestamp": "2026-01-02T03:04:05Z"}});
        let encode = |text: &str| base64::prelude::BASE64_STANDARD.encode(text);
        json!({"requestPut": {"key": encode(key), "value": encode(&object.to_string())}})
    };
    let transaction = json!({"success": keys.map(put)});
    etcd.call("kv/txn", &transaction).await.unwrap();
}

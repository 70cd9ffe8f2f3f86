//! Refused migrations: each names the reason and a way on, and writes nothing.

use std::fs;
use std::time::Duration;

use conformance::{EtcdProcess, Server, accepts, eventually};
use serde_json::json;
use tempfile::TempDir;

use super::{PATIENCE, migrate, migrate_fails, migrate_succeeds, on, stop, text};

/// A stored ConfigMap, as kube-apiserver with `--storage-media-type=application/json` writes it.
fn stored(name: &str) -> String {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
        "name": name, "namespace": "default", "uid": "0e5e0c5e-0000-0000-0000-000000000000",
        "creationTimestamp": "2026-01-02T03:04:05Z"}, "data": {"a": "b"}});
    object.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_etcd_that_is_not_empty_or_behind_is_refused() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    let data = server.data();
    let args = ["--from-data-dir", text(&data), "--to-etcd-servers", &etcd.url];
    migrate_fails(&args, &["in use by another process"]).await;
    stop(server).await;

    migrate_fails(
        &args,
        &[
            "is lower than the source's",
            "--advance-revision",
            "--allow-revision-rollback",
            "restart all clients",
        ],
    )
    .await;
    etcd.put("/registry/configmaps/default/other", stored("other")).await.unwrap();
    let mut advancing = args.to_vec();
    advancing.push("--advance-revision");
    migrate_fails(&advancing, &["not empty", "/registry/configmaps/default/other", "--etcd-prefix"]).await;
    assert_eq!(etcd.list("/registry/").await.unwrap().len(), 1);
    assert!(etcd.list("portcullis").await.unwrap().is_empty());

    // Another prefix of the same etcd is empty, and a dry run leaves it so.
    let mut other = advancing.clone();
    other.extend(["--etcd-prefix", "/second"]);
    let mut dry = other.clone();
    dry.push("--dry-run");
    migrate_succeeds(&dry).await;
    assert!(etcd.list("/second/").await.unwrap().is_empty());
    migrate_succeeds(&other).await;
    assert_eq!(etcd.list("/registry/").await.unwrap().len(), 1);

    // What another migration has begun is not mixed with this one.
    let marker = "portcullis migration 1\nsource-revision 7\ndigest sha256:00\ntarget-revision 9\nresume portcullis migrate --from-data-dir x\n";
    etcd.put("portcullis-migration:/third/", marker).await.unwrap();
    let mut third = advancing.clone();
    third.extend(["--etcd-prefix", "/third"]);
    migrate_fails(
        &third,
        &[
            "another state of a source (revision 7",
            "portcullis migrate --from-data-dir x",
            "portcullis-migration:/third/",
        ],
    )
    .await;
    let back = home.path().join("back");
    let from_third =
        ["--from-etcd-servers", &etcd.url, "--etcd-prefix", "/third", "--to-data-dir", text(&back)];
    migrate_fails(&from_third, &["incomplete copy", "portcullis migrate --from-data-dir x"]).await;
    etcd.put("portcullis-migration:/third/", "portcullis migration 2\n").await.unwrap();
    migrate_fails(&third, &["another version", "portcullis-migration:/third/"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_etcd_that_is_in_use_or_elsewhere_is_refused() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let target = home.path().join("data");
    let args = ["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&target)];
    migrate_fails(&args, &["no objects in the source", "/registry/"]).await;
    let server = Server::serve(&[&on(&etcd)]).await.unwrap();
    eventually(PATIENCE, async || {
        let leases = etcd.list("/registry/leases/kube-system/apiserver-").await?;
        if leases.is_empty() { Err(conformance::Problem::new("no identity Lease yet")) } else { Ok(()) }
    })
    .await
    .unwrap();
    migrate_fails(&args, &["a server is using the source", "apiserver-", "stop all servers"]).await;
    let mut elsewhere = args.to_vec();
    elsewhere.extend(["--etcd-prefix", "/wrong"]);
    migrate_fails(&elsewhere, &["no objects in the source", "/wrong/"]).await;
    stop(server).await;
    assert!(!target.exists(), "a refused migration creates no directory");

    // The key of a server that does not end gracefully expires 15 seconds later.
    let lease = etcd.call("lease/grant", &json!({"TTL": 15})).await.unwrap();
    let put = |key: &str| {
        use base64::Engine as _;
        json!({"key": base64::prelude::BASE64_STANDARD.encode(key), "value": "", "lease": lease["ID"]})
    };
    etcd.call("kv/put", &put("/registry/masterleases/192.0.2.1")).await.unwrap();
    migrate_fails(&args, &["a server is using the source", "/registry/masterleases/192.0.2.1"]).await;
    etcd.delete_prefix("/registry/masterleases/").await.unwrap();

    fs::create_dir(&target).unwrap();
    fs::write(target.join("notes"), "mine").unwrap();
    migrate_fails(&args, &["not empty"]).await;
    fs::remove_file(target.join("notes")).unwrap();
    migrate_fails(&args, &["chmod 700"]).await;
    fs::remove_dir_all(&target).unwrap();
    migrate_succeeds(&args).await;
    migrate_fails(&args, &["not empty"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_that_cannot_be_decoded_is_named() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let target = home.path().join("data");
    let args = ["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&target)];
    etcd.put("/registry/configmaps/default/good", stored("good")).await.unwrap();
    etcd.put("/registry/configmaps/default/bad", "{\"kind\":").await.unwrap();
    etcd.put("/registry/secrets/default/hidden", "k8s:enc:aescbc:v1:key1:\0\x01").await.unwrap();
    etcd.put("/registry/pods/default/proto", b"k8s\0\xff\xff").await.unwrap();
    etcd.put("/registry/unknown/thing", "x").await.unwrap();
    let said = migrate_fails(
        &args,
        &[
            "/registry/configmaps/default/bad",
            "/registry/secrets/default/hidden",
            "encrypted data",
            "/registry/pods/default/proto",
            "/registry/unknown/thing",
            "--leave-out-unknown-keys",
        ],
    )
    .await;
    assert!(!said.contains("/default/good") && !target.exists(), "{said}");
    for key in ["/registry/configmaps/default/bad", "/registry/secrets/", "/registry/pods/"] {
        etcd.delete_prefix(key).await.unwrap();
    }
    migrate_fails(&args, &["/registry/unknown/thing"]).await;
    let mut leaving_out = args.to_vec();
    leaving_out.push("--leave-out-unknown-keys");
    let said = migrate_succeeds(&leaving_out).await;
    assert!(said.contains("left out: /registry/unknown/thing"), "{said}");
    assert!(said.contains("verified: 1 keys are equal"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_during_the_copy_is_reported() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let target = home.path().join("data");
    let args = ["--from-etcd-servers", &etcd.url, "--to-data-dir", text(&target)];
    for number in 0..300 {
        etcd.put(&format!("/registry/configmaps/default/map-{number}"), stored(&format!("map-{number}")))
            .await
            .unwrap();
    }
    // Another writer goes on until the command has ended.
    let (code, said) = {
        let migration = migrate(&args);
        tokio::pin!(migration);
        let mut number = 0;
        loop {
            tokio::select! {
                ended = &mut migration => break ended,
                () = async {
                    etcd.put("/registry/configmaps/default/map-1", stored("map-1")).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                } => number += 1,
            }
            assert!(number < 1_000_000);
        }
    };
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`/registry/configmaps/default/map-1` was changed"), "{said}");
    assert!(said.contains("remove"), "{said}");
    // The copy of a source that has changed cannot be resumed.
    migrate_fails(&args, &["the source has changed since", "map-1"]).await;
    fs::remove_dir_all(&target).unwrap();
    migrate_succeeds(&args).await;
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    let maps = server.client().unwrap().get("/api/v1/namespaces/default/configmaps").await;
    assert!(accepts(maps).unwrap()["items"].as_array().unwrap().len() >= 300);
}

#[tokio::test]
async fn usage_errors_have_exit_code_2_and_a_missing_store_names_the_flag() {
    let (code, said) = migrate(&["--from-data-dir", "a"]).await;
    assert_eq!(code, Some(2), "{said}");
    let home = TempDir::new().unwrap();
    let args = ["--from-data-dir", text(home.path()), "--to-etcd-servers", "http://127.0.0.1:1"];
    migrate_fails(&args, &["there is no store in", "--data-dir"]).await;
}

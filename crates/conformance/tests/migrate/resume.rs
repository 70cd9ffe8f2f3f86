//! Resuming from a target that was changed meanwhile: every difference from the source is found.

use conformance::{EtcdProcess, Server, accepts};
use serde_json::json;
use tempfile::TempDir;

use super::{migrate_fails, migrate_succeeds, stop, text};

const MAP: &str = "/registry/configmaps/default/changed";

/// The word after `name` in the first line.
fn field<'a>(said: &'a str, name: &str) -> &'a str {
    let line = said.lines().next().unwrap_or_default();
    let (_, rest) = line.split_once(name).unwrap_or_default();
    rest.split([',', ' ']).next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_changed_while_it_was_incomplete_is_not_completed() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let home = TempDir::new().unwrap();
    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    let data = server.data();
    let created = json!({"metadata": {"name": "changed"}, "data": {"key": "value"}});
    let client = server.client().unwrap();
    accepts(client.post("/api/v1/namespaces/default/configmaps", &created).await).unwrap();
    stop(server).await;
    let args = ["--from-data-dir", text(&data), "--to-etcd-servers", &etcd.url, "--allow-revision-rollback"];
    let mut dry = args.to_vec();
    dry.push("--dry-run");
    let said = migrate_succeeds(&dry).await;
    let (revision, digest) = (field(&said, "revision "), field(&said, "digest "));
    let marker = format!(
        "portcullis migration 1\nsource-revision {revision}\ndigest {digest}\ntarget-revision 1\nresume portcullis migrate\n"
    );
    let map = |name: &str| {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default",
            "uid": "0e5e0c5e-0000-0000-0000-000000000000", "creationTimestamp": "2026-01-02T03:04:05Z"}});
        object.to_string()
    };
    etcd.put("portcullis-migration:/registry/", &marker).await.unwrap();

    // An object of the source with another content.
    etcd.put(MAP, map("changed")).await.unwrap();
    migrate_fails(&args, &["differs from the source", MAP, "not equal"]).await;
    etcd.delete_prefix(MAP).await.unwrap();

    // An object that the source does not have.
    etcd.put("/registry/configmaps/default/other", map("other")).await.unwrap();
    migrate_fails(&args, &["differs from the source", "/default/other", "only in the copy"]).await;
    etcd.delete_prefix("/registry/configmaps/default/other").await.unwrap();

    // Without the marker it would count as complete.
    assert_eq!(etcd.list("portcullis-migration:").await.unwrap().len(), 1);
    let without_flag = args.split_last().unwrap().1;
    migrate_fails(without_flag, &["is lower than the source's"]).await;
    let said = migrate_succeeds(&args).await;
    assert!(said.contains("resuming"), "{said}");
    assert!(etcd.list("portcullis-migration").await.unwrap().is_empty());
}

//! `portcullis store` removes unreadable objects while no server runs.

use std::time::Duration;

use conformance::server::run_to_end;
use conformance::{Server, accepts, rejects};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn store_removes_a_key_only_while_no_server_runs() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    for name in ["gone", "kept"] {
        accepts(client.post(MAPS, &json!({"metadata": {"name": name}})).await).unwrap();
    }
    let data = server.data();
    let flag = format!("--data-dir={}", data.display());
    let key = "/registry/configmaps/default/gone";
    let store = async |args: &[&str]| {
        let mut all = vec!["store"];
        all.extend(args);
        run_to_end(&all, PATIENCE).await.unwrap()
    };

    let (code, said) = store(&["delete-key", key, &flag]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is in use by another process"), "{said}");
    accepts(client.get(&format!("{MAPS}/gone")).await).unwrap();
    server.kill().unwrap();

    let (code, said) = store(&["check", &flag]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(" 0 cannot be read"), "{said}");
    let (code, said) = store(&["delete-key", "/registry/configmaps/default/none", &flag]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nothing is stored under the key"), "{said}");
    let (code, said) = store(&["delete-key", key, "--data-dir=/nonexistent"]).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no store in `/nonexistent`"), "{said}");
    let (code, said) = store(&["delete-key", key, &flag]).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("removed {key} (revision ")), "{said}");

    let server = Server::serve_at(home.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    rejects(client.get(&format!("{MAPS}/gone")).await, 404, "NotFound").unwrap();
    accepts(client.get(&format!("{MAPS}/kept")).await).unwrap();
}

//! A custom resource is served from the moment that the `Established` condition of its CRD is stored, not before.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use server::client::LoopbackClient;
use server::{Ephemeral, StorageBackend};
use value::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of CRDs in each test: the order of events varies.
const ROUNDS: usize = 20;

struct Server {
    admin: LoopbackClient,
    _running: Ephemeral,
    _data: tempfile::TempDir,
}

impl Server {
    /// A server that stores on disk, so that a write takes a while.
    async fn start() -> Server {
        let data = tempfile::tempdir().unwrap();
        let directory = data.path().join("store");
        let running =
            Ephemeral::start_with(|config| config.storage.data = StorageBackend::Directory(directory))
                .await
                .unwrap();
        let admin = LoopbackClient::new(Arc::clone(running.running.state()), InternalIdentity::ApiServer);
        Server { admin, _running: running, _data: data }
    }

    async fn create_crd(&self, number: usize) {
        let crd = format!(
            r#"{{"metadata":{{"name":"things{number}.example.com"}},"spec":{{"group":"example.com","scope":"Cluster","names":{{"plural":"things{number}","kind":"Thing{number}"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}]}}}}"#
        );
        self.admin.create(CRDS, &json::parse(crd.as_bytes()).unwrap()).await.unwrap();
    }

    async fn is_established(&self, number: usize) -> bool {
        let crd = self.admin.get(&format!("{CRDS}/things{number}.example.com")).await.unwrap();
        let is_established = |condition: &Value| {
            condition.str_at(&["type"]) == Some("Established")
                && condition.str_at(&["status"]) == Some("True")
        };
        crd.list_at(&["status", "conditions"]).iter().any(is_established)
    }

    async fn is_served(&self, number: usize) -> bool {
        self.admin.get(&format!("/apis/example.com/v1/things{number}")).await.is_ok()
    }

    async fn is_discovered(&self, number: usize) -> bool {
        let Ok(list) = self.admin.get("/apis/example.com/v1").await else { return false };
        let name = format!("things{number}");
        list.list_at(&["resources"]).iter().any(|found| found.str_at(&["name"]) == Some(&*name))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_is_served_or_discovered_is_established() {
    let server = Server::start().await;
    for number in 0..ROUNDS {
        server.create_crd(number).await;
        let begin = Instant::now();
        loop {
            let is_visible = if number % 2 == 0 {
                server.is_served(number).await
            } else {
                server.is_discovered(number).await
            };
            if is_visible {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "the resource is not served");
        }
        assert!(server.is_established(number).await, "things{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_established_resource_is_served_and_discovered() {
    let server = Server::start().await;
    for number in 0..ROUNDS {
        server.create_crd(number).await;
        let begin = Instant::now();
        while !server.is_established(number).await {
            assert!(begin.elapsed() < PATIENCE, "the CRD is not established");
        }
        if number % 2 == 0 {
            assert!(server.is_discovered(number).await, "things{number} is not discovered");
        }
        assert!(server.is_served(number).await, "things{number} is not served");
    }
}

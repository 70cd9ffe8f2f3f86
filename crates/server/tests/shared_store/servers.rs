//! Two servers on one store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Status, meta};
use authn::InternalIdentity;
use server::client::LoopbackClient;
use server::{Ephemeral, StorageBackend};
use storage::shared_memory::{SharedMemory, StoreStream};
use value::{Value, json};

/// Time limit of every wait, generous for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

pub(crate) fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

pub(crate) struct Servers {
    pub(crate) service: SharedMemory,
    pub(crate) one: LoopbackClient,
    pub(crate) two: LoopbackClient,
    /// The changes that the second server receives.
    pub(crate) stream: StoreStream,
    pub(crate) running: [Ephemeral; 2],
}

async fn start_server(service: &SharedMemory, controllers: bool) -> (Ephemeral, LoopbackClient, StoreStream) {
    let backend = service.backend();
    let stream = backend.stream();
    let started = Ephemeral::start_with(|config| {
        config.storage.data = StorageBackend::Backend(Arc::new(backend));
        config.controllers.enabled = controllers;
    });
    let ephemeral = started.await.unwrap();
    let client = LoopbackClient::new(Arc::clone(ephemeral.running.state()), InternalIdentity::ApiServer);
    (ephemeral, client, stream)
}

impl Servers {
    /// Starts two servers. The first runs the controllers.
    pub(crate) async fn start() -> Servers {
        let service = SharedMemory::new();
        let (first, one, _) = start_server(&service, true).await;
        let (second, two, stream) = start_server(&service, false).await;
        let begin = Instant::now();
        while one.get("/api/v1/namespaces/default/serviceaccounts/default").await.is_err() {
            assert!(begin.elapsed() < PATIENCE, "the servers are not ready");
            tokio::task::yield_now().await;
        }
        Servers { service, one, two, stream, running: [first, second] }
    }

    /// Creates an object through the first server, of which the second does not know yet.
    pub(crate) async fn create(&self, path: &str, object: &str) -> Value {
        self.stream.deliver_on_request();
        self.one.create(path, &parse(object)).await.unwrap_or_else(|status| panic!("POST {path}: {status}"))
    }

    /// Creates an object that both servers know.
    pub(crate) async fn create_known(&self, path: &str, object: &str) -> Value {
        let created = self.create(path, object).await;
        self.stream.resume();
        let named = format!("{path}/{}", meta::name(&created));
        self.two.get(&named).await.unwrap_or_else(|status| panic!("GET {named}: {status}"));
        created
    }

    /// Changes an object through the first server, without the knowledge of the second.
    pub(crate) async fn patch(&self, path: &str, patch: &str) -> Value {
        self.stream.deliver_on_request();
        self.one.merge_patch(path, &parse(patch)).await.unwrap()
    }

    /// Deletes an object through the first server, without the knowledge of the second.
    pub(crate) async fn delete(&self, path: &str) {
        self.stream.deliver_on_request();
        self.one.delete(path, &parse("{}")).await.unwrap();
    }
}

pub(crate) fn code(result: Result<Value, Status>) -> u16 {
    result.map_or_else(|status| status.code(), |_| 200)
}

pub(crate) fn pod(name: &str, more: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"spec":{{{more}"containers":[{{"name":"c","image":"i"}}]}}}}"#
    )
}

//! Creates in namespaces that are deleted or changed while the write is on its way to the store.

use std::time::Instant;

use api::Status;
use storage::shared_memory::{CommitHold, HoldPoint};
use tokio::task::JoinHandle;
use value::Value;

use crate::servers::{PATIENCE, Servers, code, parse};

const NAMESPACES: &str = "/api/v1/namespaces";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/rolebindings";
const BINDING_KEY: &str = "/registry/rolebindings/n/b";

/// A creation of a RoleBinding through the second server, which has admitted it.
struct HeldCreation {
    servers: Servers,
    hold: CommitHold,
    creation: JoinHandle<Result<Value, Status>>,
}

impl HeldCreation {
    async fn start() -> HeldCreation {
        let servers = Box::pin(Servers::start()).await;
        servers.create_known(NAMESPACES, r#"{"metadata":{"name":"n"}}"#).await;
        let mut hold = servers.service.hold_next_commit(BINDING_KEY, HoldPoint::BeforeDecision);
        let client = servers.two.clone();
        let creation = tokio::spawn(async move {
            let binding = r#"{"metadata":{"name":"b"},"subjects":[{"kind":"User","name":"alice","apiGroup":"rbac.authorization.k8s.io"}],"roleRef":{"kind":"ClusterRole","name":"view","apiGroup":"rbac.authorization.k8s.io"}}"#;
            client.create(BINDINGS, &parse(binding)).await
        });
        tokio::time::timeout(PATIENCE, hold.reached()).await.unwrap();
        HeldCreation { servers, hold, creation }
    }

    /// Deletes the namespace and waits until its controller has finished.
    async fn delete_namespace(&self) {
        self.servers.one.delete("/api/v1/namespaces/n", &parse("{}")).await.unwrap();
        let begin = Instant::now();
        while self.servers.one.get("/api/v1/namespaces/n").await.is_ok() {
            assert!(begin.elapsed() < PATIENCE, "the namespace is not deleted");
            tokio::task::yield_now().await;
        }
    }

    /// Lets the store decide; returns the answer, and whether the object is stored.
    async fn finish(self) -> (Result<Value, Status>, bool) {
        self.hold.release();
        let answer = self.creation.await.unwrap();
        (answer, code(self.servers.one.get(&format!("{BINDINGS}/b")).await) == 200)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_not_created_in_a_namespace_that_was_deleted_meanwhile() {
    let held = HeldCreation::start().await;
    held.delete_namespace().await;
    let (answer, is_stored) = held.finish().await;
    assert!(!is_stored, "the object outlives its namespace: {answer:?}");
    let refused = answer.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (404, r#"namespaces "n" not found"#));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_not_created_in_a_new_namespace_of_the_name_it_was_admitted_for() {
    let held = HeldCreation::start().await;
    held.delete_namespace().await;
    held.servers.create_known(NAMESPACES, r#"{"metadata":{"name":"n"}}"#).await;
    let (answer, is_stored) = held.finish().await;
    assert!(!is_stored, "the object was admitted for another namespace: {answer:?}");
    assert_eq!(answer.unwrap_err().code(), 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_not_created_in_a_namespace_that_became_terminating() {
    let held = HeldCreation::start().await;
    let finalizer = r#"{"metadata":{"finalizers":["example.com/wait"]}}"#;
    let object = r#"{"metadata":{"name":"m","finalizers":["example.com/wait"]}}"#;
    held.servers.one.merge_patch("/api/v1/namespaces/n", &parse(finalizer)).await.unwrap();
    held.servers.one.create("/api/v1/namespaces/n/configmaps", &parse(object)).await.unwrap();
    held.servers.one.delete("/api/v1/namespaces/n", &parse("{}")).await.unwrap();
    let (answer, is_stored) = held.finish().await;
    assert!(!is_stored, "the object is created in a terminating namespace: {answer:?}");
    let refused = answer.unwrap_err();
    assert_eq!(refused.code(), 403, "{refused}");
    assert!(
        refused.message().ends_with(
            "forbidden: unable to create new content in namespace n because it is being terminated"
        )
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_created_in_a_namespace_whose_labels_change_meanwhile() {
    let held = HeldCreation::start().await;
    // The second server does not know of the change when the store refuses the first attempt.
    held.servers.patch("/api/v1/namespaces/n", r#"{"metadata":{"labels":{"team":"a"}}}"#).await;
    let (answer, is_stored) = held.finish().await;
    answer.unwrap();
    assert!(is_stored);
}

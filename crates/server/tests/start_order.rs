//! The order in which a server starts, as far as it can be observed from outside.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::InternalIdentity;
use server::client::LoopbackClient;
use server::{Authorization, Config, Ephemeral, StorageBackend};

/// Time limit of every wait, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The error of a server that cannot start, because its port is in use. `change` may add other reasons.
async fn error_with_port_in_use(change: impl FnOnce(&mut Config)) -> String {
    let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
    let started = Ephemeral::start_with(|config| {
        config.listen = occupied.local_addr().unwrap();
        change(config);
    });
    started.await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_port_in_use_is_reported_before_the_store_is_created() {
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("data");
    let error =
        error_with_port_in_use(|config| config.storage.data = StorageBackend::Directory(data.clone())).await;
    assert!(error.starts_with("cannot listen on"), "{error}");
    assert!(!data.exists());
}

#[tokio::test]
async fn tls_authorization_and_admission_are_checked_before_the_port_is_bound() {
    let missing = tempfile::tempdir().unwrap().path().join("missing");
    let changes: [fn(&mut Config, std::path::PathBuf); 3] = [
        |config, _| config.serving.identity.key_pem.clear(),
        |config, missing| {
            config.authorization = Authorization::File { path: missing, policy_file: String::new() };
        },
        |config, missing| config.admission.configuration_file = Some(missing),
    ];
    for change in changes {
        let error = error_with_port_in_use(|config| change(config, missing.clone())).await;
        assert!(!error.starts_with("cannot listen on"), "{error}");
    }
}

/// The revision of the last write of an object, once the object exists.
async fn revision(admin: &LoopbackClient, path: &str) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match admin.get(path).await {
            Ok(object) => {
                let revision = object.str_at(&["metadata", "resourceVersion"]).map(str::parse);
                return revision.unwrap().unwrap();
            }
            Err(status) if status.code() == 404 && Instant::now() < deadline => {}
            Err(status) => panic!("GET {path}: {status}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_write_their_first_objects_after_bootstrap_is_done() {
    let server = Ephemeral::start_with(|config| config.controllers.enabled = true).await.unwrap();
    assert!(server.running.is_ready());
    let admin = LoopbackClient::new(Arc::clone(server.running.state()), InternalIdentity::ApiServer);
    let mut last_of_bootstrap = 0;
    for path in [
        "/api/v1/namespaces/kube-node-lease",
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-admin",
    ] {
        last_of_bootstrap = last_of_bootstrap.max(revision(&admin, path).await);
    }
    for path in [
        "/api/v1/namespaces/default/serviceaccounts/default",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
    ] {
        assert!(revision(&admin, path).await > last_of_bootstrap, "{path}");
    }
    server.running.stop().await;
}

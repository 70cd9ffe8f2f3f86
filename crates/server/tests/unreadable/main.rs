//! Stored objects that cannot be decoded: reads report them, dependent requests are denied, and an operator can remove them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../admin_connection/mod.rs"]
mod admin_connection;
mod nodes;
mod parameters;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use authn::InternalIdentity;
use requests::request_info::Query;
use server::client::LoopbackClient;
use server::{Config, Ephemeral, StorageBackend, offline};
use storage::{Change, Embedded, Expect, Record, Store, StoreOptions, Write, WritePriority};
use value::{Value, json};

const ROBOT: InternalIdentity<'static> =
    InternalIdentity::ServiceAccount { namespace: "mine", name: "robot" };

struct Server {
    ephemeral: Ephemeral,
    admin: LoopbackClient,
    robot: LoopbackClient,
}

impl Server {
    async fn start(directory: &Path) -> Self {
        Self::start_with(directory, |_| {}).await
    }

    async fn start_with(directory: &Path, change: impl FnOnce(&mut Config)) -> Self {
        let data = StorageBackend::Directory(directory.to_owned());
        let start = Ephemeral::start_with(|config| {
            config.storage.data = data;
            change(config);
        });
        let ephemeral = start.await.unwrap();
        let client = |identity| LoopbackClient::new(Arc::clone(ephemeral.running.state()), identity);
        let (admin, robot) = (client(InternalIdentity::ApiServer), client(ROBOT));
        Server { ephemeral, admin, robot }
    }

    async fn create(&self, path: &str, object: &str) {
        let made = self.admin.create(path, &parse(object)).await;
        made.unwrap_or_else(|status| panic!("POST {path}: {status}"));
    }

    /// The status code and message of a GET request.
    async fn get(&self, path: &str) -> (u16, String) {
        outcome(self.admin.get(path).await)
    }

    /// The status code and message of a dry-run create request.
    async fn tries(&self, path: &str, object: &str) -> (u16, String) {
        outcome(self.admin.create(&format!("{path}?dryRun=All"), &parse(object)).await)
    }

    fn health(&self, path: &str) -> (u16, String) {
        let state = self.ephemeral.running.state();
        state.serving.health.page(path, &Query::parse("verbose"), true).unwrap()
    }

    async fn stop(self) {
        self.ephemeral.running.stop().await;
    }
}

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn outcome(answer: Result<Value, api::Status>) -> (u16, String) {
    match answer {
        Ok(_) => (200, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

/// Replaces the object whose key has these segments by invalid JSON, and returns the key.
async fn break_object(store: &Store, segments: &[&str]) -> String {
    let has = |key: &str| {
        let mut parts = key.split('/');
        segments.iter().all(|segment| parts.any(|part| part == *segment)) && parts.next().is_none()
    };
    let all = store.snapshot("/registry/").entries;
    let found: Vec<_> = all.iter().filter(|entry| has(&entry.key)).collect();
    let [entry] = found.as_slice() else { panic!("{segments:?} names {} keys", found.len()) };
    let record = Record { body: "{\"kind\":".into(), revision_at: 0, facts: entry.facts.clone() };
    let (change, priority) = (Change::Put(record), WritePriority::System);
    let write = Write { key: Arc::clone(&entry.key), expect: Expect::Any, change, priority, ttl: None };
    store.commit(write).await.unwrap();
    entry.key.to_string()
}

/// Like [`break_object`], in a directory that no server uses.
async fn break_offline(directory: &Path, segments: &[&str]) -> String {
    let store = Store::open(Embedded::at(directory), StoreOptions::default()).await.unwrap();
    let key = break_object(&store, segments).await;
    store.close().await;
    key
}

const MAPS: &str = "/api/v1/namespaces/mine/configmaps";
const OTHER_MAPS: &str = "/api/v1/namespaces/other/configmaps";
const MAP: &str = r#"{"metadata":{"name":"new"}}"#;
const SERVICES: &str = "/api/v1/namespaces/other/services";
const SERVICE: &str = r#"{"metadata":{"name":"new"},"spec":{"ports":[{"port":80}]}}"#;
const VOLUMES: &str = "/api/v1/persistentvolumes";
const VOLUME: &str = r#"{"metadata":{"name":"new"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],
    "hostPath":{"path":"/none"}}}"#;
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/mine/widgets";

/// Fills a directory with one object of each kind that requests depend on, and an ordinary one.
async fn filled(directory: &Path) {
    let server = Server::start(directory).await;
    server.create("/api/v1/namespaces", r#"{"metadata":{"name":"mine"}}"#).await;
    server.create("/api/v1/namespaces", r#"{"metadata":{"name":"other"}}"#).await;
    server.create(MAPS, r#"{"metadata":{"name":"plain"},"data":{"k":"v"}}"#).await;
    server.create(OTHER_MAPS, r#"{"metadata":{"name":"plain"},"data":{"k":"v"}}"#).await;
    let role = r#"{"metadata":{"name":"all"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}"#;
    server.create(&format!("{RBAC}/roles"), role).await;
    let binding = r#"{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"all"},
        "subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"mine"}]}"#;
    server.create(&format!("{RBAC}/rolebindings"), binding).await;
    // The policy and the webhook match no request, but the server cannot know that once they are unreadable.
    let policy = r#"{"metadata":{"name":"p"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["none.example.com"],
        "apiVersions":["*"],"operations":["*"],"resources":["*"]}]},"validations":[{"expression":"false"}]}}"#;
    server.create(&format!("{ADMISSION}/validatingadmissionpolicies"), policy).await;
    let webhook = r#"{"metadata":{"name":"w"},"webhooks":[]}"#;
    server.create(&format!("{ADMISSION}/mutatingwebhookconfigurations"), webhook).await;
    let quota = r#"{"metadata":{"name":"q"},"spec":{"hard":{"configmaps":"100"}}}"#;
    server.create("/api/v1/namespaces/mine/resourcequotas", quota).await;
    server
        .create(
            "/api/v1/namespaces/mine/services",
            r#"{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}"#,
        )
        .await;
    let crd = r#"{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
        "names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    server.create(DEFINITIONS, crd).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_name_an_unreadable_object_and_other_requests_are_unaffected() {
    let directory = private_directory();
    filled(directory.path()).await;
    let key = break_offline(directory.path(), &["configmaps", "mine", "plain"]).await;
    let server = Server::start(directory.path()).await;
    for path in [
        format!("{MAPS}/plain"),
        MAPS.to_owned(),
        "/api/v1/configmaps".to_owned(),
        format!("{MAPS}?watch=true&resourceVersion=0"),
        format!("{MAPS}?limit=1"),
    ] {
        let (code, message) = server.get(&path).await;
        assert_eq!(code, 500, "{path}: {message}");
        assert!(message.contains(&key), "{path}: {message}");
    }
    assert_eq!(server.get(&format!("{OTHER_MAPS}/plain")).await.0, 200);
    assert_eq!(server.get(OTHER_MAPS).await.0, 200);
    assert_eq!(server.tries(OTHER_MAPS, MAP).await.0, 200);
    assert_eq!(server.health("/readyz/informer-sync").0, 200);
    // Neither an update nor a deletion ignores an object that cannot be decoded.
    let put = server.admin.update(&format!("{MAPS}/plain"), &parse(r#"{"metadata":{"name":"plain"}}"#)).await;
    assert_eq!(outcome(put).0, 500);
    let deleted = server.admin.delete(&format!("{MAPS}/plain"), &parse("{}")).await;
    assert_eq!(outcome(deleted).0, 500);

    // A running server locks the store; after it has stopped, the key can be deleted.
    let held = offline::delete_key(directory.path(), &key).await.unwrap_err();
    assert!(matches!(held, maintenance::OfflineError::Open(_)), "{held}");
    server.stop().await;
    let (unreadable, _) = offline::check(directory.path()).await.unwrap();
    assert_eq!(unreadable.iter().map(|found| found.key.as_str()).collect::<Vec<_>>(), [key.as_str()]);
    let removed = offline::delete_key(directory.path(), &key).await.unwrap();
    assert!(removed.unreadable.is_some());
    let missing = offline::delete_key(directory.path(), &key).await.unwrap_err();
    assert!(matches!(missing, maintenance::OfflineError::NoSuchKey(_)), "{missing}");
    let server = Server::start(directory.path()).await;
    assert_eq!(server.get(MAPS).await.0, 200);
    assert_eq!(server.get(&format!("{MAPS}/plain")).await.0, 404);
    server.stop().await;
}

/// An object to break, and requests to a server whose store contains it.
struct BrokenObjectCase {
    /// Segments of the key of the object to break.
    segments: &'static [&'static str],
    /// Create requests that fail with 500 and name the key, and ones that succeed.
    refused: &'static [(&'static str, &'static str)],
    allowed: &'static [(&'static str, &'static str)],
}

const DECISIVE: &[BrokenObjectCase] = &[
    BrokenObjectCase {
        segments: &["validatingadmissionpolicies", "p"],
        refused: &[(MAPS, MAP), (OTHER_MAPS, MAP), (SERVICES, SERVICE)],
        allowed: &[],
    },
    BrokenObjectCase {
        segments: &["mutatingwebhookconfigurations", "w"],
        refused: &[(MAPS, MAP), (OTHER_MAPS, MAP)],
        allowed: &[],
    },
    BrokenObjectCase {
        segments: &["resourcequotas", "mine", "q"],
        refused: &[(MAPS, MAP)],
        allowed: &[(OTHER_MAPS, MAP), (SERVICES, SERVICE)],
    },
    BrokenObjectCase {
        segments: &["namespaces", "mine"],
        refused: &[(MAPS, MAP)],
        allowed: &[(OTHER_MAPS, MAP)],
    },
    BrokenObjectCase {
        segments: &["mine", "s"],
        refused: &[(SERVICES, SERVICE)],
        allowed: &[(MAPS, MAP), (OTHER_MAPS, MAP)],
    },
    BrokenObjectCase {
        segments: &["customresourcedefinitions", "widgets.example.com"],
        refused: &[(WIDGETS, r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"new"}}"#)],
        allowed: &[(MAPS, MAP), (SERVICES, SERVICE)],
    },
];

async fn check(server: &Server, asked: &BrokenObjectCase, key: &str) {
    for (path, object) in asked.refused {
        let (code, message) = server.tries(path, object).await;
        assert_eq!(code, 500, "{key}: {path}: {message}");
        assert!(message.contains(key), "{key}: {path}: {message}");
    }
    for (path, object) in asked.allowed {
        assert_eq!(server.tries(path, object).await, (200, String::new()), "{key}: {path}");
    }
    // Other objects can still be read and the server is live, but it is not ready.
    assert_eq!(server.get(&format!("{OTHER_MAPS}/plain")).await.0, 200, "{key}");
    let (code, page) = server.health("/readyz");
    assert_eq!(code, 500, "{key}: {page}");
    let line = page.lines().find(|line| line.starts_with("[-]informer-sync failed: ")).unwrap_or_default();
    assert!(line.contains(key), "{page}");
    assert_eq!(server.health("/livez").0, 200, "{key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_depend_on_an_unreadable_object_are_refused_after_a_restart() {
    let directory = private_directory();
    filled(directory.path()).await;
    for asked in DECISIVE {
        let copy = private_directory();
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let key = break_offline(copy.path(), asked.segments).await;
        let server = Server::start(copy.path()).await;
        check(&server, asked, &key).await;
        server.stop().await;
        offline::delete_key(copy.path(), &key).await.unwrap();
        let server = Server::start(copy.path()).await;
        assert_eq!(server.health("/readyz/informer-sync").0, 200, "{key}");
        assert_eq!(server.tries(OTHER_MAPS, MAP).await.0, 200, "{key}");
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_becomes_unreadable_at_runtime_blocks_writes_but_not_the_server() {
    let directory = private_directory();
    filled(directory.path()).await;
    let server = Server::start(directory.path()).await;
    assert_eq!(server.tries(MAPS, MAP).await.0, 200);
    let store = &server.ephemeral.running.state().storage.store;
    let key = break_object(store, &["validatingadmissionpolicies", "p"]).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.tries(MAPS, MAP).await.0 != 500 {
        assert!(std::time::Instant::now() < deadline, "writes still pass");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let (_, message) = server.tries(MAPS, MAP).await;
    assert!(message.contains(&key), "{message}");
    server.stop().await;
}

/// Asserts that the robot has no access, others keep theirs, and `/readyz` names the key that cannot be decoded.
async fn grants_nothing(server: &Server, key: &str) {
    assert_eq!(outcome(server.robot.get(&format!("{MAPS}/plain")).await).0, 403);
    assert_eq!(server.get(&format!("{MAPS}/plain")).await.0, 200);
    let (code, page) = server.health("/readyz");
    assert!(code == 500 && page.contains(key), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_binding_grants_nothing() {
    let directory = private_directory();
    filled(directory.path()).await;
    let server = Server::start(directory.path()).await;
    assert_eq!(outcome(server.robot.get(&format!("{MAPS}/plain")).await).0, 200);
    server.stop().await;
    let key = break_offline(directory.path(), &["rolebindings", "mine", "all"]).await;
    let server = Server::start(directory.path()).await;
    grants_nothing(&server, &key).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_role_grants_nothing() {
    let directory = private_directory();
    filled(directory.path()).await;
    let key = break_offline(directory.path(), &["roles", "mine", "all"]).await;
    let server = Server::start(directory.path()).await;
    grants_nothing(&server, &key).await;
    server.stop().await;
}

/// With an unreadable APIService it is unknown which server serves the group: a request must neither be proxied, nor served locally,
/// nor get a 404.
#[tokio::test(flavor = "multi_thread")]
async fn the_group_of_an_unreadable_api_service_is_not_served() {
    let directory = private_directory();
    let server = Server::start(directory.path()).await;
    let things = "/apis/things.example.com/v1/things";
    let service = r#"{"metadata":{"name":"v1.things.example.com"},"spec":{"group":"things.example.com","version":"v1",
        "groupPriorityMinimum":100,"versionPriority":10,"service":{"namespace":"default","name":"none"}}}"#;
    server.create("/apis/apiregistration.k8s.io/v1/apiservices", service).await;
    let others = server.admin.elsewhere();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while outcome(others.get(things).await).0 != 503 {
        assert!(std::time::Instant::now() < deadline, "the group is not passed on");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    server.stop().await;
    let aggregated = break_offline(directory.path(), &["apiservices", "v1.things.example.com"]).await;
    let own = break_offline(directory.path(), &["apiservices", "v1.apps"]).await;
    let server = Server::start(directory.path()).await;
    let others = server.admin.elsewhere();
    for (path, key) in [(things, &aggregated), ("/apis/apps/v1/deployments", &own)] {
        let (code, message) = outcome(others.get(path).await);
        assert!(code == 500 && message.contains(key.as_str()), "{path}: {code} {message}");
    }
    let (code, message) = outcome(others.create(things, &parse(r#"{"metadata":{"name":"t"}}"#)).await);
    assert!(code == 500 && message.contains(&aggregated), "{code} {message}");
    assert_eq!(server.get("/apis/batch/v1/jobs").await.0, 200);
    let (code, page) = server.health("/readyz");
    assert!(code == 500 && page.contains("apiservices"), "{page}");
    server.stop().await;
}

/// A directory that only its owner can open, as the store requires.
fn private_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    directory
}

//! What every cluster begins with, written through the pipeline as `system:apiserver` before the server is ready.

use std::net::IpAddr;
use std::sync::Arc;

use api::Status;
use authn::InternalIdentity;
use authz::rbac::bootstrap;
use authz::rbac::reconcile::{self, Action};
use tokio::task::JoinSet;
use value::{Map, Value};

use crate::admission::webhooks::account;
use crate::client::Client;
use crate::config::ConfigError;
use crate::state::State;

/// The namespaces that are always there.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Writes what is missing.
pub(crate) async fn run(state: &Arc<State>, port: u16, advertise: IpAddr) -> Result<(), ConfigError> {
    let client = Client::new(Arc::clone(state), InternalIdentity::ApiServer);
    let failed = |what: &str, status: &Status| {
        ConfigError::other(format!("bootstrap could not write {what}: {status}"))
    };

    // Namespaces first, because what lives in them comes next. All of a group goes at once and shares a commit.
    let mut group = Group::default();
    for name in NAMESPACES {
        let mut namespace = object("v1", "Namespace", "", name);
        namespace.set_at(&["metadata", "labels", "kubernetes.io/metadata.name"], *name);
        group.ensure(&client, "/api/v1/namespaces".to_owned(), namespace);
    }
    group.wait().await.map_err(|(what, status)| failed(&what, &status))?;

    if state.webhook_tokens.is_some() {
        // Before whatever webhooks of an earlier run are asked about.
        let mut group = Group::default();
        let (collection, account) = account::account();
        group.ensure(&client, collection, account);
        for expected in bootstrap::webhook_tokens() {
            group.reconcile(&client, expected);
        }
        group.wait().await.map_err(|(what, status)| failed(&what, &status))?;
    }

    let mut group = Group::default();
    for expected in bootstrap::objects() {
        group.reconcile(&client, expected);
    }
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000_i64,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        let mut class = object("scheduling.k8s.io/v1", "PriorityClass", "", name);
        class.set_at(&["value"], value);
        class.set_at(&["description"], description);
        class.set_at(&["preemptionPolicy"], "PreemptLowerPriority");
        group.ensure(&client, "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(), class);
    }
    if let Some(address) = state.addresses.first() {
        kubernetes_service(&mut group, &client, address, port, advertise);
    }
    group.wait().await.map_err(|(what, status)| failed(&what, &status))
}

/// The `kubernetes` service, by which pods reach the server.
fn kubernetes_service(group: &mut Group, client: &Client, address: IpAddr, port: u16, advertise: IpAddr) {
    let labels = |object: &mut Value| {
        for (key, value) in [("component", "apiserver"), ("provider", "kubernetes")] {
            object.set_at(&["metadata", "labels", key], value);
        }
    };
    let mut service = object("v1", "Service", "default", "kubernetes");
    labels(&mut service);
    service.set_at(&["spec", "clusterIP"], address.to_string());
    service.set_at(&["spec", "ipFamilyPolicy"], "SingleStack");
    service.set_at(&["spec", "sessionAffinity"], "None");
    service.set_at(&["spec", "type"], "ClusterIP");
    let port_entry = Value::map([
        ("name", Value::from("https")),
        ("port", Value::from(443_i64)),
        ("protocol", Value::from("TCP")),
        ("targetPort", Value::from(port)),
    ]);
    service.set_at(&["spec", "ports"], Value::List(vec![port_entry]));
    group.ensure(client, "/api/v1/namespaces/default/services".to_owned(), service);

    // Nobody outside can connect to a loopback address, and an endpoint may not be one.
    if advertise.is_loopback() || advertise.is_unspecified() {
        return;
    }
    let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", "default", "kubernetes");
    slice.set_at(&["metadata", "labels", "kubernetes.io/service-name"], "kubernetes");
    slice.set_at(&["addressType"], if advertise.is_ipv4() { "IPv4" } else { "IPv6" });
    let mut endpoint = Value::map([("addresses", Value::list([advertise.to_string()]))]);
    endpoint.set_at(&["conditions", "ready"], true);
    slice.set_at(&["endpoints"], Value::List(vec![endpoint]));
    let port = Value::map([
        ("name", Value::from("https")),
        ("port", Value::from(port)),
        ("protocol", Value::from("TCP")),
    ]);
    slice.set_at(&["ports"], Value::List(vec![port]));
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    group.ensure(client, path.to_owned(), slice);
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name", name);
    if !namespace.is_empty() {
        metadata.insert("namespace", namespace);
    }
    Value::map([
        ("apiVersion", Value::from(api_version)),
        ("kind", Value::from(kind)),
        ("metadata", Value::Map(metadata)),
    ])
}

/// Writes that go on at the same time.
#[derive(Default)]
struct Group {
    tasks: JoinSet<Result<(), (String, Status)>>,
}

impl Group {
    /// Creates an object unless one of its name is there.
    fn ensure(&mut self, client: &Client, collection: String, object: Value) {
        let client = client.clone();
        self.tasks.spawn(async move {
            let path = format!("{collection}/{}", api::meta::name(&object));
            match client.get(&path).await {
                Ok(_) => Ok(()),
                Err(_) => create(&client, &collection, &object).await.map_err(|status| (path, status)),
            }
        });
    }

    /// Brings a role or binding up to what it should be.
    fn reconcile(&mut self, client: &Client, expected: Value) {
        let client = client.clone();
        self.tasks.spawn(async move {
            let collection = rbac_collection(&expected);
            let path = format!("{collection}/{}", api::meta::name(&expected));
            let stored = client.get(&path).await.ok();
            let outcome = match reconcile::action(&expected, stored.as_ref()) {
                Action::Keep => Ok(()),
                Action::Create(object) => create(&client, &collection, &object).await,
                Action::Update(object) => client.update(&path, &object).await.map(|_| ()),
                Action::Recreate(object) => match client.delete(&path, &Value::Map(Map::new())).await {
                    Ok(_) => create(&client, &collection, &object).await,
                    Err(status) => Err(status),
                },
            };
            outcome.map_err(|status| (path, status))
        });
    }

    async fn wait(mut self) -> Result<(), (String, Status)> {
        while let Some(done) = self.tasks.join_next().await {
            match done {
                Ok(outcome) => outcome?,
                Err(e) => return Err(("an object".to_owned(), Status::internal(e))),
            }
        }
        Ok(())
    }
}

/// Another server on the same store may have been first: that is as good.
async fn create(client: &Client, collection: &str, object: &Value) -> Result<(), Status> {
    match client.create(collection, object).await {
        Err(status) if status.code() != 409 => Err(status),
        _ => Ok(()),
    }
}

/// Where a role or binding is created.
pub(crate) fn rbac_collection(object: &Value) -> String {
    const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
    let namespace = api::meta::namespace(object);
    let plural = match object.str_at(&["kind"]).unwrap_or_default() {
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        _ => "rolebindings",
    };
    if namespace.is_empty() {
        format!("{GROUP}/{plural}")
    } else {
        format!("{GROUP}/namespaces/{namespace}/{plural}")
    }
}

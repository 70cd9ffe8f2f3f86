//! What every cluster begins with, written through the pipeline as `system:apiserver` before the server is ready.

mod cidr;
mod service;

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
use crate::kept::{Kept, Placed};
use crate::state::State;

/// The names of the namespaces that are always there.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Writes what is missing.
pub(crate) async fn run(state: &Arc<State>, port: u16, advertise: IpAddr) -> Result<(), ConfigError> {
    let client = Client::new(Arc::clone(state), InternalIdentity::ApiServer);
    let failed = |what: &str, status: &Status| {
        ConfigError::other(format!("bootstrap could not write {what}: {status}"))
    };

    // Namespaces first, because what lives in them comes next. All of a group goes at once and shares a commit.
    let mut group = Group::default();
    for (collection, namespace) in namespaces() {
        group.ensure(&client, collection, namespace);
    }
    let ranges = cidr::placed(state);
    group.tasks.spawn(cidr::ensure(client.clone(), ranges.clone()));
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
    group.tasks.spawn(cidr::mark_ready(client.clone(), ranges));
    for (collection, object) in service::objects(state, port, advertise) {
        group.bring(&client, collection, object, service::RECONCILED);
    }
    group.wait().await.map_err(|(what, status)| failed(&what, &status))
}

/// The namespaces that are always there.
fn namespaces() -> impl Iterator<Item = Placed> {
    NAMESPACES.iter().map(|name| {
        let mut namespace = object("v1", "Namespace", "", name);
        namespace.set_at(&["metadata", "labels", "kubernetes.io/metadata.name"], *name);
        ("/api/v1/namespaces".to_owned(), namespace)
    })
}

/// What comes back when it is deleted: the namespaces, the ranges of services, and the service by which pods reach the server.
pub(crate) fn kept(state: &State, port: u16, advertise: IpAddr) -> Result<Kept, ConfigError> {
    let objects = namespaces().chain([cidr::placed(state)]).chain(service::objects(state, port, advertise));
    let objects = objects.collect();
    Kept::watch(&state.store, objects, |_, _| {})
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
            let action = |stored: Option<&Value>| match stored {
                Some(_) => Action::Keep,
                None => Action::Create(object.clone()),
            };
            act(&client, &collection, &path, action).await.map_err(|status| (path, status))
        });
    }

    /// Creates an object, or brings those of its fields that are given up to what they should be.
    fn bring(
        &mut self,
        client: &Client,
        collection: String,
        object: Value,
        fields: &'static [&'static [&'static str]],
    ) {
        let client = client.clone();
        self.tasks.spawn(async move {
            let path = format!("{collection}/{}", api::meta::name(&object));
            let action = |stored: Option<&Value>| brought(&object, stored, fields);
            act(&client, &collection, &path, action).await.map_err(|status| (path, status))
        });
    }

    /// Brings a role or binding up to what it should be.
    fn reconcile(&mut self, client: &Client, expected: Value) {
        let client = client.clone();
        self.tasks.spawn(async move {
            let collection = rbac_collection(&expected);
            let path = format!("{collection}/{}", api::meta::name(&expected));
            let action = |stored: Option<&Value>| reconcile::action(&expected, stored);
            act(&client, &collection, &path, action).await.map_err(|status| (path, status))
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

/// How often somebody else may have been faster, or the machine too slow.
const ATTEMPTS: usize = 10;

/// Fields that an update cannot change.
const IMMUTABLE: &[&[&str]] = &[&["addressType"]];

/// What brings an object up to another in some of its fields.
fn brought(object: &Value, stored: Option<&Value>, fields: &[&[&str]]) -> Action {
    let Some(stored) = stored else { return Action::Create(object.clone()) };
    let differs = |field: &&&[&str]| object.at(field).is_some_and(|value| stored.at(field) != Some(value));
    if IMMUTABLE.iter().any(|field| differs(&field)) {
        return Action::Recreate(object.clone());
    }
    let mut updated = stored.clone();
    for field in fields.iter().filter(differs) {
        updated.set_at(field, object.at(field).cloned().unwrap_or_default());
    }
    if updated == *stored { Action::Keep } else { Action::Update(updated) }
}

/// Does what has to be done about what is stored; should another server on the same store be faster, about what that one wrote.
async fn act(
    client: &Client,
    collection: &str,
    path: &str,
    action: impl Fn(Option<&Value>) -> Action,
) -> Result<(), Status> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = attempt(client, collection, path, &action).await;
        if !matches!(&outcome, Err(status) if matches!(status.code(), 409 | 504)) {
            break;
        }
    }
    outcome
}

async fn attempt(
    client: &Client,
    collection: &str,
    path: &str,
    action: impl Fn(Option<&Value>) -> Action,
) -> Result<(), Status> {
    let stored = match client.get(path).await {
        Ok(stored) => Some(stored),
        Err(status) if status.code() == 404 => None,
        // What cannot be read may well be there.
        Err(status) => return Err(status),
    };
    match action(stored.as_ref()) {
        Action::Keep => {}
        Action::Create(object) => drop(client.create(collection, &object).await?),
        Action::Update(object) => drop(client.update(path, &object).await?),
        Action::Recreate(object) => {
            let mut this_one = Value::Null;
            let uid = stored.as_ref().map(api::meta::uid).unwrap_or_default();
            this_one.set_at(&["preconditions", "uid"], uid);
            match client.delete(path, &this_one).await {
                Err(status) if status.code() != 404 => return Err(status),
                _ => drop(client.create(collection, &object).await?),
            }
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests;

//! What every cluster begins with, written through the pipeline as `system:apiserver`.
//!
//! The server starts without it: a policy or a webhook may refuse any of these objects, or not answer. Each object is written by
//! a task of its own, which tries again with growing pauses until the object is there. What is missing meanwhile, and why, is in
//! the log and on `/readyz` ([`Progress`]). Authorization fails closed: a role that is not written allows nothing.

mod cidr;
mod progress;
mod service;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use authn::InternalIdentity;
use authz::rbac::bootstrap;
use authz::rbac::reconcile::{self, ReconcileAction};
use tracing::{info, warn};
use value::{Map, Value};

use crate::admission::webhooks::account;
use crate::client::Client;
use crate::restore_deleted::{ObjectAt, RestoreDeleted};
use crate::state::State;

pub(crate) use progress::{Hook, Progress};

/// The names of the namespaces that are always there.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// How long a step holds up the next one when its objects are not answered about.
const STEP: Duration = Duration::from_secs(2);

/// How long it takes until the next attempt after one that failed.
pub(crate) const PAUSE: Duration = Duration::from_millis(500);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Begins to write what is missing, and returns when everything is under way.
pub(crate) async fn run(state: &Arc<State>, port: u16, advertise: IpAddr) {
    let client = Client::new(Arc::clone(state), InternalIdentity::ApiServer);
    for step in steps(state, port, advertise) {
        // All of a step goes at once and shares a commit.
        for item in &step {
            state.bootstrap.begin(item.hook, &item.path());
        }
        for item in step {
            tokio::spawn(item.write_until_done(client.clone(), Arc::clone(state)));
        }
        let _ = tokio::time::timeout(STEP, state.bootstrap.attempted()).await;
    }
}

/// What is written, in order: namespaces first, because what lives in them comes next; then what webhooks of an earlier run need,
/// because they may be asked about everything else.
fn steps(state: &State, port: u16, advertise: IpAddr) -> [Vec<Item>; 3] {
    let ranges = cidr::placed(state);
    let mut first: Vec<Item> =
        namespaces().map(|placed| Item::new(Hook::SystemNamespaces, placed, Want::Present)).collect();
    first.push(Item::new(Hook::ServiceCidr, ranges.clone(), Want::CidrPresent));

    let role = |object: Value| Item::new(Hook::Roles, (rbac_collection(&object), object), Want::Role);
    let mut second = Vec::new();
    if state.admission.webhook_tokens.is_some() {
        second.push(Item::new(Hook::ClusterAuthentication, account::account(), Want::Present));
        second.extend(bootstrap::webhook_tokens().into_iter().map(role));
    }

    let mut third: Vec<Item> = bootstrap::objects().into_iter().map(role).collect();
    third.extend(priority_classes().map(|class| Item::new(Hook::PriorityClasses, class, Want::Present)));
    third.push(Item::new(Hook::ServiceCidr, ranges, Want::CidrReady));
    let service = service::objects(state, port, advertise).into_iter();
    third.extend(
        service.map(|placed| Item::new(Hook::KubernetesService, placed, Want::Fields(service::RECONCILED))),
    );
    [first, second, third]
}

/// The priority classes that are always there.
fn priority_classes() -> impl Iterator<Item = ObjectAt> {
    let classes = [
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
    ];
    classes.into_iter().map(|(name, value, description)| {
        let mut class = object("scheduling.k8s.io/v1", "PriorityClass", "", name);
        class.set_at(&["value"], value);
        class.set_at(&["description"], description);
        class.set_at(&["preemptionPolicy"], "PreemptLowerPriority");
        ("/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(), class)
    })
}

/// The namespaces that are always there.
fn namespaces() -> impl Iterator<Item = ObjectAt> {
    NAMESPACES.iter().map(|name| {
        let mut namespace = object("v1", "Namespace", "", name);
        namespace.set_at(&["metadata", "labels", "kubernetes.io/metadata.name"], *name);
        ("/api/v1/namespaces".to_owned(), namespace)
    })
}

/// What comes back when it is deleted: the namespaces, the ranges of services, and the service by which pods reach the server.
pub(crate) fn restore_deleted(state: &State, port: u16, advertise: IpAddr) -> RestoreDeleted {
    let objects = namespaces().chain([cidr::placed(state)]).chain(service::objects(state, port, advertise));
    let objects = objects.collect();
    RestoreDeleted::watch(&state.storage.store, &state.storage.unreadable, objects, |_, _| {})
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

/// One object of bootstrap.
struct Item {
    hook: Hook,
    collection: String,
    object: Value,
    want: Want,
}

/// What is wanted of an object.
#[derive(Clone, Copy)]
enum Want {
    /// That it is there.
    Present,
    /// That it is there, and that these of its fields are as given.
    Fields(&'static [&'static [&'static str]]),
    /// That it is a role or a binding with at least what is given.
    Role,
    /// That the ServiceCIDR is there, if it is served.
    CidrPresent,
    /// That the status of the ServiceCIDR says that it is ready.
    CidrReady,
}

impl Item {
    fn new(hook: Hook, (collection, object): ObjectAt, want: Want) -> Self {
        Item { hook, collection, object, want }
    }

    fn path(&self) -> String {
        let part = if matches!(self.want, Want::CidrReady) { "/status" } else { "" };
        format!("{}/{}{part}", self.collection, api::meta::name(&self.object))
    }

    async fn write(&self, client: &Client) -> Result<(), Status> {
        let Item { collection, object, .. } = self;
        let path = format!("{collection}/{}", api::meta::name(object));
        let present = |stored: Option<&Value>| match stored {
            Some(_) => ReconcileAction::Keep,
            None => ReconcileAction::Create(object.clone()),
        };
        match self.want {
            Want::Present => act(client, collection, &path, present).await,
            Want::Fields(fields) => {
                act(client, collection, &path, |stored: Option<&Value>| brought(object, stored, fields)).await
            }
            Want::Role => {
                act(client, collection, &path, |stored: Option<&Value>| reconcile::reconcile(object, stored))
                    .await
            }
            Want::CidrPresent => match act(client, collection, &path, present).await {
                Err(status) if status.code() != 404 => Err(status),
                _ => Ok(()),
            },
            Want::CidrReady => cidr::mark_ready(client, &path, object).await,
        }
    }

    /// Tries until the object is as wanted, or the server stops.
    async fn write_until_done(self, client: Client, state: Arc<State>) {
        let path = self.path();
        let mut pause = PAUSE;
        let mut stop = state.stopping();
        loop {
            match self.write(&client).await {
                Ok(()) => {
                    if pause > PAUSE {
                        info!(object = path, "bootstrap wrote an object that had been refused");
                    }
                    return state.bootstrap.done(&path);
                }
                Err(status) => {
                    warn!(
                        object = path,
                        error = status.message(),
                        retry_seconds = pause.as_secs_f32(),
                        "bootstrap could not write an object; the server is not ready without it and tries again"
                    );
                    state.bootstrap.refused(&path, &status);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }
}

/// How often somebody else may have been faster, or the machine too slow.
const ATTEMPTS: usize = 10;

/// Fields that an update cannot change.
const IMMUTABLE: &[&[&str]] = &[&["addressType"]];

/// What brings an object up to another in some of its fields.
fn brought(object: &Value, stored: Option<&Value>, fields: &[&[&str]]) -> ReconcileAction {
    let Some(stored) = stored else { return ReconcileAction::Create(object.clone()) };
    let differs = |field: &&&[&str]| object.at(field).is_some_and(|value| stored.at(field) != Some(value));
    if IMMUTABLE.iter().any(|field| differs(&field)) {
        return ReconcileAction::Recreate(object.clone());
    }
    let mut updated = stored.clone();
    for field in fields.iter().filter(differs) {
        updated.set_at(field, object.at(field).cloned().unwrap_or_default());
    }
    if updated == *stored { ReconcileAction::Keep } else { ReconcileAction::Update(updated) }
}

/// Does what has to be done about what is stored; should another server on the same store be faster, about what that one wrote.
async fn act(
    client: &Client,
    collection: &str,
    path: &str,
    action: impl Fn(Option<&Value>) -> ReconcileAction,
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
    action: impl Fn(Option<&Value>) -> ReconcileAction,
) -> Result<(), Status> {
    let stored = match client.get(path).await {
        Ok(stored) => Some(stored),
        Err(status) if status.code() == 404 => None,
        // What cannot be read may well be there.
        Err(status) => return Err(status),
    };
    match action(stored.as_ref()) {
        ReconcileAction::Keep => {}
        ReconcileAction::Create(object) => drop(client.create(collection, &object).await?),
        ReconcileAction::Update(object) => drop(client.update(path, &object).await?),
        ReconcileAction::Recreate(object) => {
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

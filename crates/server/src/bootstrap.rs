//! Writes the objects every cluster starts with, as `system:apiserver` through the request pipeline.
//!
//! The server starts without them: a policy or a webhook may deny any of these objects, or not respond. A separate task writes
//! each object and retries with increasing delays until it succeeds. Missing objects and the reasons are logged and shown on
//! `/readyz` ([`Progress`]). Authorization fails closed: a role that is not written grants nothing.

mod cidr;
mod progress;
mod service;

use std::sync::Arc;
use std::time::Duration;

use api::{Status, namespaces};
use authn::InternalIdentity;
use authz::rbac::bootstrap;
use authz::rbac::reconcile::{self, ReconcileAction};
use runtime::RetryPause;
use tracing::{info, warn};
use value::{Map, Value};

use crate::admission::webhooks::account;
use crate::client::LoopbackClient;
use crate::restore_deleted::{ObjectAt, RestoreDeleted};
use crate::state::State;

pub(crate) use cidr::default_service_cidr;
pub(crate) use progress::{PostStartHook, Progress};

const NAMESPACES: &[&str] =
    &[namespaces::DEFAULT, namespaces::SYSTEM, namespaces::PUBLIC, namespaces::NODE_LEASE];

/// A step begins when every object of the step before was attempted once, or after this time.
const STEP: Duration = Duration::from_secs(2);

/// The pause after a failed write.
pub(crate) const RETRY: RetryPause = RetryPause::new(Duration::from_millis(500), Duration::from_secs(15));

/// Starts to write the bootstrap objects; returns when the tasks of the last step were started and given time for one attempt.
///
/// The parameter `_watches` proves that the objects that are recreated when they are deleted are watched before they are written, so that
/// no deletion is missed.
pub(crate) async fn run(state: &Arc<State>, port: u16, _watches: &RestoreDeleted) {
    let client = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    for step in steps(state, port) {
        // The writes of a step run in parallel and share a commit.
        for item in &step {
            state.bootstrap.begin(item.hook, &item.path());
        }
        for item in step {
            tokio::spawn(item.write_until_done(client.clone(), Arc::clone(state)));
        }
        let _ = tokio::time::timeout(STEP, state.bootstrap.attempted()).await;
    }
}

/// The objects to write, in order: first namespaces, because later objects live in them; then the objects that webhooks from an
/// earlier run depend on, because these webhooks may be called for everything else.
fn steps(state: &State, port: u16) -> [Vec<BootstrapItem>; 3] {
    let ranges = default_service_cidr(state);
    let mut first: Vec<BootstrapItem> = namespaces()
        .map(|namespace| {
            BootstrapItem::new(PostStartHook::SystemNamespaces, namespace, DesiredState::Present)
        })
        .collect();
    first.push(BootstrapItem::new(PostStartHook::ServiceCidr, ranges.clone(), DesiredState::CidrPresent));

    let role = |object: Value| {
        BootstrapItem::new(PostStartHook::Roles, (rbac_collection(&object), object), DesiredState::Role)
    };
    let mut second = Vec::new();
    if state.admission.webhook_tokens.is_some() {
        second.push(BootstrapItem::new(
            PostStartHook::ClusterAuthentication,
            account::account(),
            DesiredState::Present,
        ));
        second.extend(bootstrap::webhook_tokens().into_iter().map(role));
    }

    let mut third: Vec<BootstrapItem> =
        bootstrap::objects(state.apis.features).into_iter().map(role).collect();
    third.extend(
        priority_classes()
            .map(|class| BootstrapItem::new(PostStartHook::PriorityClasses, class, DesiredState::Present)),
    );
    third.push(BootstrapItem::new(PostStartHook::ServiceCidr, ranges, DesiredState::CidrReady));
    third.extend(
        service::kubernetes_service(state, port).map(|service| {
            BootstrapItem::new(PostStartHook::KubernetesService, service, DesiredState::Present)
        }),
    );
    [first, second, third]
}

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

fn namespaces() -> impl Iterator<Item = ObjectAt> {
    NAMESPACES.iter().map(|name| {
        let mut namespace = object("v1", "Namespace", "", name);
        namespace.set_at(&["metadata", "labels", api::labels::NAMESPACE_NAME], *name);
        ("/api/v1/namespaces".to_owned(), namespace)
    })
}

/// Starts to watch the objects that are recreated when they are deleted: the namespaces, the ServiceCIDR and the `kubernetes` Service.
pub(crate) fn restore_deleted(state: &State, port: u16) -> RestoreDeleted {
    let objects =
        namespaces().chain([default_service_cidr(state)]).chain(service::kubernetes_service(state, port));
    let objects = objects.collect();
    RestoreDeleted::watch(&state.storage.store, &state.storage.unreadable, objects, |_, _, _| {})
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

/// One bootstrap object and the state it should have.
struct BootstrapItem {
    hook: PostStartHook,
    collection: String,
    object: Value,
    desired_state: DesiredState,
}

/// The condition under which an object counts as written.
#[derive(Clone, Copy)]
enum DesiredState {
    /// The object exists, with any content.
    Present,
    /// The role or binding exists and grants at least the given rules and subjects.
    Role,
    /// The ServiceCIDR exists, unless its resource is not served.
    CidrPresent,
    /// The status of the ServiceCIDR has the condition `Ready`.
    CidrReady,
}

impl BootstrapItem {
    fn new(hook: PostStartHook, (collection, object): ObjectAt, desired_state: DesiredState) -> Self {
        BootstrapItem { hook, collection, object, desired_state }
    }

    fn path(&self) -> String {
        let part = if matches!(self.desired_state, DesiredState::CidrReady) { "/status" } else { "" };
        format!("{}/{}{part}", self.collection, api::meta::name(&self.object))
    }

    async fn write(&self, client: &LoopbackClient) -> Result<(), Status> {
        let BootstrapItem { collection, object, .. } = self;
        let path = format!("{collection}/{}", api::meta::name(object));
        let present = |stored: Option<&Value>| match stored {
            Some(_) => ReconcileAction::Keep,
            None => ReconcileAction::Create(object.clone()),
        };
        match self.desired_state {
            DesiredState::Present => act(client, collection, &path, present).await,
            DesiredState::Role => {
                act(client, collection, &path, |stored: Option<&Value>| reconcile::reconcile(object, stored))
                    .await
            }
            DesiredState::CidrPresent => match act(client, collection, &path, present).await {
                Err(status) if status.code() != 404 => Err(status),
                _ => Ok(()),
            },
            DesiredState::CidrReady => cidr::mark_ready(client, &path, object).await,
        }
    }

    /// Retries until the object is as wanted or the server stops.
    async fn write_until_done(self, client: LoopbackClient, state: Arc<State>) {
        let path = self.path();
        let (mut pause, mut refused) = (RETRY, false);
        let mut stop = state.stopping();
        loop {
            match self.write(&client).await {
                Ok(()) => {
                    if refused {
                        info!(object = path, "wrote a bootstrap object that was refused before");
                    }
                    return state.bootstrap.done(&path);
                }
                Err(status) => {
                    warn!(
                        object = path,
                        error = status.message(),
                        retry_seconds = pause.next().as_secs_f32(),
                        "cannot write a bootstrap object; the server is not ready until a retry succeeds"
                    );
                    state.bootstrap.refused(&path, &status);
                }
            }
            refused = true;
            if !pause.wait(&mut stop).await {
                return;
            }
        }
    }
}

/// Attempts per write while it conflicts with another writer (409) or times out (504).
const ATTEMPTS: usize = 10;

/// Reads the stored object and applies `action` to it, again if another server on the same store changes it concurrently.
async fn act(
    client: &LoopbackClient,
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
    client: &LoopbackClient,
    collection: &str,
    path: &str,
    action: impl Fn(Option<&Value>) -> ReconcileAction,
) -> Result<(), Status> {
    let stored = client.get_if_exists(path).await?;
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

/// The collection path of a role or role binding.
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

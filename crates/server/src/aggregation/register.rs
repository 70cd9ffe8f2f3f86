//! Registers the groups this server serves itself as local APIServices.
//!
//! Those of built-in groups are reconciled at startup and left alone afterwards; those of custom resources follow their CRDs. An APIService
//! without the automanaged label is never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::InternalIdentity;
use documents::discovery::{self, Registration};
use tokio::task::JoinSet;
use tracing::warn;
use value::{Str, Value};

use super::service::{AUTOMANAGED, ApiService, AutoManaged};
use super::{ApiServices, PATH};
use crate::bootstrap::PostStartHook;
use crate::client::LoopbackClient;
use crate::state::State;

/// Delay before failed writes are retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The write that reconciles one APIService.
#[derive(Debug, PartialEq)]
pub(super) enum ApiServiceAction {
    Keep,
    Create,
    Update,
    Delete,
}

/// Decides how to reconcile one APIService. `synced`: it was reconciled at least once since startup; `at_start`: it existed
/// when the server started.
pub(super) fn reconcile_action(
    desired: Option<(&Registration, AutoManaged)>,
    stored: Option<&ApiService>,
    synced: bool,
    at_start: bool,
) -> ApiServiceAction {
    if synced && desired.is_some_and(|(_, managed)| managed == AutoManaged::OnStart) {
        return ApiServiceAction::Keep;
    }
    let Some(stored) = stored else {
        return if desired.is_some() { ApiServiceAction::Create } else { ApiServiceAction::Keep };
    };
    match (stored.managed, desired) {
        (AutoManaged::No, _) => ApiServiceAction::Keep,
        (AutoManaged::OnStart, _) if !at_start || synced => ApiServiceAction::Keep,
        (_, None) => ApiServiceAction::Delete,
        (_, Some((registration, _))) => {
            let is_local = stored.remote.is_none() && !stored.ignores_service;
            let same = stored.registration == *registration && is_local;
            if same { ApiServiceAction::Keep } else { ApiServiceAction::Update }
        }
    }
}

/// The APIServices this server wants: one for each served group and version.
fn desired(state: &State) -> BTreeMap<Str, (Registration, AutoManaged)> {
    let built_in = discovery::built_in(state.apis.catalog.served()).into_iter();
    let mut desired: BTreeMap<Str, (Registration, AutoManaged)> =
        built_in.map(|found| (found.name().into(), (found, AutoManaged::OnStart))).collect();
    for crd in state.apis.catalog.custom().crds() {
        for version in crd.versions.iter().filter(|version| version.served) {
            let registration = discovery::of_custom_version(&crd.group, &version.name);
            // A CRD may add resources to a built-in group; its APIService stays the built-in one.
            desired.entry(registration.name().into()).or_insert((registration, AutoManaged::Always));
        }
    }
    desired
}

/// Reconciles local APIServices, and remembers which ones are done.
pub(crate) struct Registrar {
    state: Arc<State>,
    client: LoopbackClient,
    synced: BTreeSet<Str>,
    at_start: BTreeSet<Str>,
}

impl Registrar {
    pub(crate) fn new(state: &Arc<State>) -> Self {
        state.bootstrap.begin(PostStartHook::ApiServices, PATH);
        let services = state.apis.aggregation.registry.services.load();
        Registrar {
            client: LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer),
            synced: BTreeSet::new(),
            at_start: services.all.keys().cloned().collect(),
            state: Arc::clone(state),
        }
    }

    /// Reconciles every APIService once. The writes run in parallel and share a commit. Returns whether all succeeded.
    async fn sync(&mut self) -> bool {
        let desired = desired(&self.state);
        let services: Arc<ApiServices> = self.state.apis.aggregation.registry.services.load_full();
        let mut writes: JoinSet<(Str, Result<(), Status>)> = JoinSet::new();
        let names: BTreeSet<&Str> = desired.keys().chain(services.all.keys()).collect();
        for name in names {
            let stored = services.all.get(name);
            let registered = desired.get(name);
            let now = registered.map(|(registration, managed)| (registration, *managed));
            let action = reconcile_action(
                now,
                stored.map(|s| &**s),
                self.synced.contains(name),
                self.at_start.contains(name),
            );
            if action == ApiServiceAction::Keep {
                self.synced.insert(name.clone());
                continue;
            }
            let (client, name) = (self.client.clone(), name.clone());
            let object = registered.map(|(registration, managed)| object(registration, *managed));
            let uid = stored.map(|stored| stored.uid.clone()).unwrap_or_default();
            writes.spawn(async move {
                let done = write(&client, &name, action, object, &uid).await;
                (name, done)
            });
        }
        self.synced.retain(|name| desired.contains_key(name) || services.all.contains_key(name));
        let mut complete = true;
        let mut refused = None;
        while let Some(done) = writes.join_next().await {
            match done {
                Ok((name, Ok(()))) => {
                    self.synced.insert(name);
                }
                Ok((name, Err(status))) => {
                    warn!(api_service = %name, error = %status, "cannot write a local APIService; retrying. A policy or webhook may deny the write");
                    complete = false;
                    refused.get_or_insert((name, status));
                }
                Err(_) => complete = false,
            }
        }
        let progress = &self.state.bootstrap;
        match refused {
            None if complete => progress.done(PATH),
            None => progress.refused(PATH, &Status::internal("not all APIServices were written; retrying")),
            Some((name, status)) => {
                let why = format!("{name}: {}", status.message());
                progress.refused(PATH, &status.with_message(why));
            }
        }
        complete
    }
}

async fn write(
    client: &LoopbackClient,
    name: &str,
    action: ApiServiceAction,
    object: Option<Value>,
    uid: &str,
) -> Result<(), Status> {
    let path = format!("{PATH}/{name}");
    let done = match (action, object) {
        (ApiServiceAction::Create, Some(object)) => client.create(PATH, &object).await,
        (ApiServiceAction::Update, Some(object)) => match client.get(&path).await {
            Ok(mut stored) => {
                stored.set_at(&["spec"], object.get("spec").cloned().unwrap_or_default());
                client.update(&path, &stored).await
            }
            Err(status) => Err(status),
        },
        (ApiServiceAction::Delete, _) => {
            let mut options = Value::map([("kind", "DeleteOptions"), ("apiVersion", "v1")]);
            options.set_at(&["preconditions", "uid"], uid);
            client.delete(&path, &options).await
        }
        _ => return Ok(()),
    };
    match done {
        // 404 and 409 mean that it changed concurrently; the informer's next update reconciles it again.
        Err(status) if !matches!(status.code(), 404 | 409) => Err(status),
        _ => Ok(()),
    }
}

/// The manifest of a local APIService.
fn object(registration: &Registration, managed: AutoManaged) -> Value {
    let mut object = Value::map([("apiVersion", "apiregistration.k8s.io/v1"), ("kind", "APIService")]);
    meta::set(&mut object, "name", registration.name());
    object.set_at(&["metadata", "labels", AUTOMANAGED], managed.label());
    object.set_at(&["spec", "group"], registration.group.clone());
    object.set_at(&["spec", "version"], registration.version.clone());
    object.set_at(&["spec", "groupPriorityMinimum"], registration.group_priority);
    object.set_at(&["spec", "versionPriority"], registration.version_priority);
    object
}

/// Reconciles local APIServices until the server stops, and retries failed writes: a policy that denies them keeps groups out
/// of discovery, but does not keep the server from starting.
pub(crate) async fn run(mut registrar: Registrar) {
    let state = Arc::clone(&registrar.state);
    let (mut services, mut crds) =
        (state.apis.aggregation.registry.changed.subscribe(), state.apis.crds.changes());
    let mut stop = state.stopping();
    loop {
        let complete = registrar.sync().await;
        let again = async {
            if complete {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RETRY_DELAY).await;
        };
        tokio::select! {
            changed = services.changed() => if changed.is_err() { return },
            changed = crds.changed() => if changed.is_err() { return },
            () = again => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

//! What this server serves itself → local APIServices.
//!
//! Those of the table are registered when the server starts and left alone afterwards, so that an administrator can hand a
//! group to another server; those of CRDs follow the CRDs. An APIService without the label that says it is
//! managed is nobody's business here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::InternalIdentity;
use documents::discovery::{self, Registration};
use tokio::task::JoinSet;
use tracing::warn;
use value::{Str, Value};

use super::service::{AUTOMANAGED, ApiService, Managed};
use super::{PATH, Services};
use crate::bootstrap::Hook;
use crate::client::Client;
use crate::state::State;

/// How long what could not be written waits.
const AGAIN: Duration = Duration::from_secs(1);

/// What becomes of one APIService.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Keep,
    Create,
    Update,
    Delete,
}

/// What becomes of an APIService of which the server wants `wanted`. `synced`: it was as wanted once since the start;
/// `at_start`: it was there when the server started.
pub(super) fn step(
    wanted: Option<(&Registration, Managed)>,
    stored: Option<&ApiService>,
    synced: bool,
    at_start: bool,
) -> Step {
    if synced && wanted.is_some_and(|(_, managed)| managed == Managed::OnStart) {
        return Step::Keep;
    }
    let Some(stored) = stored else {
        return if wanted.is_some() { Step::Create } else { Step::Keep };
    };
    match (stored.managed, wanted) {
        (Managed::No, _) => Step::Keep,
        (Managed::OnStart, _) if !at_start || synced => Step::Keep,
        (_, None) => Step::Delete,
        (_, Some((registration, _))) => {
            let same = stored.registration == *registration && stored.remote.is_none();
            if same { Step::Keep } else { Step::Update }
        }
    }
}

/// What the server wants to be registered.
fn wanted(state: &State) -> BTreeMap<Str, (Registration, Managed)> {
    let built_in = discovery::built_in(state.catalog.served()).into_iter();
    let mut wanted: BTreeMap<Str, (Registration, Managed)> =
        built_in.map(|found| (found.name().into(), (found, Managed::OnStart))).collect();
    for crd in state.catalog.custom().crds() {
        for version in crd.versions.iter().filter(|version| version.served) {
            let registration = discovery::of_custom_version(&crd.group, &version.name);
            // What is built in stays so, whoever else adds to it.
            wanted.entry(registration.name().into()).or_insert((registration, Managed::Always));
        }
    }
    wanted
}

/// What has been brought to what it should be.
pub(crate) struct Registrar {
    state: Arc<State>,
    client: Client,
    synced: BTreeSet<Str>,
    at_start: BTreeSet<Str>,
}

impl Registrar {
    pub(crate) fn new(state: &Arc<State>) -> Self {
        state.bootstrap.begin(Hook::ApiServices, PATH);
        let services = state.aggregation.registry.services.load();
        Registrar {
            client: Client::new(Arc::clone(state), InternalIdentity::ApiServer),
            synced: BTreeSet::new(),
            at_start: services.all.keys().cloned().collect(),
            state: Arc::clone(state),
        }
    }

    /// One look at everything; all writes go at once and share a commit. Whether all could be done.
    async fn sync(&mut self) -> bool {
        let wanted = wanted(&self.state);
        let services: Arc<Services> = self.state.aggregation.registry.services.load_full();
        let mut writes: JoinSet<(Str, Result<(), Status>)> = JoinSet::new();
        let names: BTreeSet<&Str> = wanted.keys().chain(services.all.keys()).collect();
        for name in names {
            let stored = services.all.get(name);
            let asked = wanted.get(name);
            let now = asked.map(|(registration, managed)| (registration, *managed));
            let step =
                step(now, stored.map(|s| &**s), self.synced.contains(name), self.at_start.contains(name));
            if step == Step::Keep {
                self.synced.insert(name.clone());
                continue;
            }
            let (client, name) = (self.client.clone(), name.clone());
            let object = asked.map(|(registration, managed)| object(registration, *managed));
            let uid = stored.map(|stored| stored.uid.clone()).unwrap_or_default();
            writes.spawn(async move {
                let done = write(&client, &name, step, object, &uid).await;
                (name, done)
            });
        }
        self.synced.retain(|name| wanted.contains_key(name) || services.all.contains_key(name));
        let mut complete = true;
        let mut refused = None;
        while let Some(done) = writes.join_next().await {
            match done {
                Ok((name, Ok(()))) => {
                    self.synced.insert(name);
                }
                Ok((name, Err(status))) => {
                    warn!(api_service = %name, error = %status, "an APIService could not be registered yet");
                    complete = false;
                    refused.get_or_insert((name, status));
                }
                Err(_) => complete = false,
            }
        }
        let progress = &self.state.bootstrap;
        match refused {
            None if complete => progress.done(PATH),
            None => progress.refused(PATH, &Status::internal("the write ended early")),
            Some((name, status)) => {
                let why = format!("{name}: {}", status.message());
                progress.refused(PATH, &status.with_message(why));
            }
        }
        complete
    }
}

async fn write(
    client: &Client,
    name: &str,
    step: Step,
    object: Option<Value>,
    uid: &str,
) -> Result<(), Status> {
    let path = format!("{PATH}/{name}");
    let done = match (step, object) {
        (Step::Create, Some(object)) => client.create(PATH, &object).await,
        (Step::Update, Some(object)) => match client.get(&path).await {
            Ok(mut stored) => {
                stored.set_at(&["spec"], object.get("spec").cloned().unwrap_or_default());
                client.update(&path, &stored).await
            }
            Err(status) => Err(status),
        },
        (Step::Delete, _) => {
            let mut options = Value::map([("kind", "DeleteOptions"), ("apiVersion", "v1")]);
            options.set_at(&["preconditions", "uid"], uid);
            client.delete(&path, &options).await
        }
        _ => return Ok(()),
    };
    match done {
        // Changed meanwhile: that comes around again.
        Err(status) if !matches!(status.code(), 404 | 409) => Err(status),
        _ => Ok(()),
    }
}

/// A local APIService.
fn object(registration: &Registration, managed: Managed) -> Value {
    let mut object = Value::map([("apiVersion", "apiregistration.k8s.io/v1"), ("kind", "APIService")]);
    meta::set(&mut object, "name", registration.name());
    object.set_at(&["metadata", "labels", AUTOMANAGED], managed.label());
    object.set_at(&["spec", "group"], registration.group.clone());
    object.set_at(&["spec", "version"], registration.version.clone());
    object.set_at(&["spec", "groupPriorityMinimum"], registration.group_priority);
    object.set_at(&["spec", "versionPriority"], registration.version_priority);
    object
}

/// Registers what is served, and keeps it so until the server stops. What cannot be written is tried again: a policy that forbids
/// it keeps groups out of discovery, not the server from starting.
pub(crate) async fn run(mut registrar: Registrar) {
    let state = Arc::clone(&registrar.state);
    let (mut services, mut crds) = (state.aggregation.registry.changed.subscribe(), state.crds.changes());
    let mut stop = state.stopping();
    loop {
        let complete = registrar.sync().await;
        let again = async {
            if complete {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        tokio::select! {
            changed = services.changed() => if changed.is_err() { return },
            changed = crds.changed() => if changed.is_err() { return },
            () = again => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

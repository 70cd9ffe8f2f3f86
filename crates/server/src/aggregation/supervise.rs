//! One set of tasks per registered server: whether it can be reached, and what it serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::{Store, Watch, WatchError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use value::Str;

use super::{ApiService, Remote, availability, documents, openapi};
use crate::state::State;

/// Where it is told which servers there are.
const PLACES: [&str; 2] = ["/registry/core/services/", "/registry/discovery.k8s.io/endpointslices/"];

/// The tasks of one APIService.
struct Tasks {
    /// What they know.
    remote: Remote,
    /// Tells that something about the service has changed.
    moved: Arc<Notify>,
    /// Tells that what it serves may have changed.
    refresh: [Arc<Notify>; 2],
    running: [JoinHandle<()>; 3],
}

impl Tasks {
    fn start(state: &Arc<State>, service: &ApiService, remote: &Remote) -> Self {
        let (moved, refresh): (Arc<Notify>, [Arc<Notify>; 2]) = Default::default();
        let [discovery, openapi] = &refresh;
        let name = || service.name.clone();
        let running = [
            tokio::spawn(availability::keep(Arc::clone(state), name(), Arc::clone(&moved))),
            tokio::spawn(documents::keep(Arc::clone(state), name(), Arc::clone(discovery))),
            tokio::spawn(openapi::keep(Arc::clone(state), name(), Arc::clone(openapi))),
        ];
        Tasks { remote: remote.clone(), moved, refresh, running }
    }

    /// What is known has changed.
    fn hear(&mut self, remote: &Remote) {
        let moved = !Arc::ptr_eq(&self.remote.transport, &remote.transport);
        if moved {
            self.moved.notify_one();
        }
        if moved || self.remote.available != remote.available {
            self.refresh.iter().for_each(|each| each.notify_one());
        }
        self.remote = remote.clone();
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
    }
}

/// Runs until the server stops.
pub(super) async fn run(state: Arc<State>) {
    let registry = Arc::clone(&state.aggregation.registry);
    let mut changes = registry.changed.subscribe();
    let mut stop = state.stopping();
    let [mut services, mut slices] = PLACES.map(|scope| Place::follow(&state.store, scope));
    let mut tasks: BTreeMap<Str, Tasks> = BTreeMap::new();
    let mut known: BTreeMap<Str, Arc<ApiService>> = BTreeMap::new();
    loop {
        changes.mark_unchanged();
        let now = registry.services.load_full();
        for name in known.keys().filter(|name| !now.all.contains_key(*name)) {
            registry.metrics.forget(name);
        }
        tasks.retain(|name, _| now.all.get(name).is_some_and(|service| service.remote.is_some()));
        if registry.documents.retain(|name| tasks.contains_key(name)) {
            state.openapi.forget_custom();
        }
        for (name, service) in &now.all {
            if known.get(name).is_some_and(|known| Arc::ptr_eq(known, service)) {
                continue;
            }
            match (&service.remote, tasks.get_mut(name)) {
                (Some(remote), Some(tasks)) => tasks.hear(remote),
                (Some(remote), None) => {
                    tasks.insert(name.clone(), Tasks::start(&state, service, remote));
                }
                (None, _) => {
                    registry.metrics.is(name, true);
                    if !service.says_local {
                        tokio::spawn(availability::local(Arc::clone(&state), name.clone()));
                    }
                }
            }
        }
        known.clone_from(&now.all);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            namespace = services.next() => wake(&tasks, namespace),
            namespace = slices.next() => wake(&tasks, namespace),
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Something about the services of a namespace, or of any, has changed.
fn wake(tasks: &BTreeMap<Str, Tasks>, namespace: Option<Str>) {
    let concerned =
        |tasks: &&Tasks| namespace.as_ref().is_none_or(|changed| tasks.remote.namespace == *changed);
    for tasks in tasks.values().filter(concerned) {
        tasks.moved.notify_one();
    }
}

/// Objects that say where servers are. Only where they change is of interest, so they are not read.
struct Place {
    store: Store,
    watch: Watch,
}

impl Place {
    fn follow(store: &Store, scope: &str) -> Self {
        let (_, watch) = store.list_and_watch(scope);
        Place { store: store.clone(), watch }
    }

    /// The namespace in which something has changed; none if too much has.
    async fn next(&mut self) -> Option<Str> {
        match self.watch.next().await {
            Ok(event) => {
                let below = event.entry.key.strip_prefix(self.watch.scope()).unwrap_or_default();
                Some(below.split_once('/').map_or(below, |(namespace, _)| namespace).into())
            }
            Err(WatchError::Closed) => std::future::pending().await,
            Err(_) => {
                let scope = self.watch.scope().to_owned();
                *self = Place::follow(&self.store, &scope);
                None
            }
        }
    }
}

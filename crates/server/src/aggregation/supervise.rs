//! Runs the background tasks of every aggregated API server: availability checks, discovery and OpenAPI fetching.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::encode;
use catalog::keys;
use storage::{ListWatch, ListWatchUpdate, StoreEvent, StoredEntry};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use value::Str;

use super::{ApiService, Remote, availability, documents, openapi};
use crate::state::State;

/// Resources that determine the endpoints of aggregated API servers.
const ENDPOINT_PREFIXES: [&str; 2] = [keys::SERVICES, keys::ENDPOINT_SLICES];

/// The background tasks of one remote APIService. Dropping it aborts them.
struct Tasks {
    /// The state the tasks were last notified about.
    remote: Remote,
    /// Triggers an availability check: the Service, its endpoints or the transport changed.
    moved: Arc<Notify>,
    /// Trigger a refetch of the discovery document and of the OpenAPI documents.
    refresh: [Arc<Notify>; 2],
    running: [JoinHandle<()>; 3],
}

impl Tasks {
    fn start(state: &Arc<State>, service: &ApiService, remote: &Remote) -> Self {
        let (moved, refresh): (Arc<Notify>, [Arc<Notify>; 2]) = Default::default();
        let [discovery, openapi] = &refresh;
        let name = || service.name.clone();
        let running = [
            tokio::spawn(availability::monitor(Arc::clone(state), name(), Arc::clone(&moved))),
            tokio::spawn(documents::refresh_discovery(Arc::clone(state), name(), Arc::clone(discovery))),
            tokio::spawn(openapi::refresh_openapi(Arc::clone(state), name(), Arc::clone(openapi))),
        ];
        Tasks { remote: remote.clone(), moved, refresh, running }
    }

    /// Notifies the tasks that a changed transport or availability concerns, and remembers `remote`.
    fn follow(&mut self, remote: &Remote) {
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

/// Starts and stops tasks as APIServices change, until the server stops.
pub(super) async fn run(state: Arc<State>) {
    let registry = Arc::clone(&state.apis.aggregation.registry);
    let mut changes = registry.changed.subscribe();
    let mut stop = state.stopping();
    let [mut services, mut slices] =
        ENDPOINT_PREFIXES.map(|prefix| ListWatch::start(&state.storage.store, prefix).1);
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
            state.apis.openapi.forget_custom();
        }
        for (name, service) in &now.all {
            if known.get(name).is_some_and(|known| Arc::ptr_eq(known, service)) {
                continue;
            }
            match (&service.remote, tasks.get_mut(name)) {
                (Some(remote), Some(tasks)) => tasks.follow(remote),
                (Some(remote), None) => {
                    tasks.insert(name.clone(), Tasks::start(&state, service, remote));
                }
                (None, _) if service.ignores_service => {
                    tokio::spawn(availability::ignored(Arc::clone(&state), name.clone()));
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
            changed = next(&mut services) => wake(&tasks, changed.as_deref(), name_of),
            changed = next(&mut slices) => wake(&tasks, changed.as_deref(), service_of),
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Wakes the availability checks of the Service an event concerns, or all of them if there is no event (the watch was
/// relisted). `service` extracts the name of the Service from an entry.
fn wake(tasks: &BTreeMap<Str, Tasks>, changed: Option<&StoreEvent>, service: fn(&StoredEntry) -> Str) {
    let Some(changed) = changed else {
        return tasks.values().for_each(|tasks| tasks.moved.notify_one());
    };
    let namespace = keys::namespace(&changed.entry.key);
    let mut near = tasks.values().filter(|tasks| tasks.remote.namespace == namespace).peekable();
    if near.peek().is_none() {
        return;
    }
    let entries = [Some(&changed.entry), changed.previous.as_ref()];
    let about: Vec<Str> = entries.into_iter().flatten().map(|entry| service(entry)).collect();
    near.filter(|tasks| about.contains(&tasks.remote.service)).for_each(|tasks| tasks.moved.notify_one());
}

fn name_of(entry: &StoredEntry) -> Str {
    keys::name(&entry.key).into()
}

/// The Service that an EndpointSlice belongs to, from its label.
fn service_of(entry: &StoredEntry) -> Str {
    let slice = encode::tree(entry).unwrap_or_default();
    slice.str_at(&["metadata", "labels", api::labels::SERVICE_NAME]).unwrap_or_default().into()
}

/// The next event; `None` after a relist, when individual events were lost. Never returns once the store is closed.
async fn next(events: &mut ListWatch) -> Option<Arc<StoreEvent>> {
    match events.next().await {
        Some(ListWatchUpdate::Event(event)) => Some(event),
        Some(ListWatchUpdate::Relisted(_)) => None,
        None => std::future::pending().await,
    }
}

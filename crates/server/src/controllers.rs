//! The API access of the built-in controllers: they read from the store's memory and write through the request pipeline, each with
//! its own identity.

mod skim;
mod store_watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::field::quote;
use api::selector::FactsRef;
use api::{GroupVersion, Status, names};
use authn::InternalIdentity;
use authz::rbac::aggregation;
use catalog::encode;
use catalog::keys;
use catalog::{Catalog, Sent};
use controllers::{
    AggregatedKinds, Api, ClusterReader, ControllerOptions, FailedDiscovery, ObjectChange, ObserveClaims,
    PatchBody, Recount, ResourceKind, StoredBy, TypedObjectRef, WatchSource,
};
use documents::discovery::RemoteVersion;
use http::Method;
use kinds::table::Verb;
use runtime::truncate_remote::truncate_remote;
use storage::StoredEntry;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use value::{Map, Str, Value};

use crate::aggregation::forward::encode_path;
use crate::client::LoopbackClient;
use crate::state::State;
use store_watch::{ChangeReader, StoreWatch, WatchFilter};

/// Starts the controllers of kube-controller-manager. They end when `stop` becomes true; the future completes when every controller
/// has finished its current work. Dropping it aborts them.
pub(crate) fn start(
    state: &Arc<State>,
    root_ca: Option<String>,
    bootstrap_tokens: bool,
    stop: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    let quotas = Arc::clone(&state.admission.quotas);
    let recount = Recount(Arc::new(move |namespace: Str, name: Str| {
        let quotas = Arc::clone(&quotas);
        Box::pin(async move { quotas.recount(&namespace, &name).await })
    }));
    // Usage needs no recount unless the ResourceQuota admission plugin enforces it.
    let recount = state.admission.chain.plugins().any(|plugin| plugin == "ResourceQuota").then_some(recount);
    let options = ControllerOptions {
        recount,
        admin_access: state.apis.admin_access,
        observe_claims: Some(ObserveClaims(state.metrics.claims.clone())),
        bootstrap_tokens,
        ..ControllerOptions::new(root_ca, aggregate)
    };
    controllers::start(access(state), options, stop)
}

/// Starts the built-in scheduler, which runs until `stop` is true.
pub(crate) fn start_scheduler(state: &Arc<State>, stop: watch::Receiver<bool>) -> JoinHandle<()> {
    controllers::start_scheduler(access(state), state.apis.admin_access, stop)
}

/// The expiry of events, until the server drains.
pub(crate) fn start_event_ttl(state: &Arc<State>, ttl: Duration) -> JoinHandle<()> {
    controllers::start_event_ttl(access(state), ttl, state.draining())
}

/// Builds the API access of a controller from its name.
fn access(state: &Arc<State>) -> impl Fn(&'static str) -> InProcess + use<> {
    let kinds = Arc::new(StoredKinds::of(&state.apis.catalog));
    let state = Arc::clone(state);
    move |name| InProcess {
        state: Arc::clone(&state),
        client: LoopbackClient::new(
            Arc::clone(&state),
            match name {
                controllers::SCHEDULER => InternalIdentity::Scheduler,
                _ => InternalIdentity::ServiceAccount { namespace: api::namespaces::SYSTEM, name },
            },
        ),
        kinds: Arc::clone(&kinds),
    }
}

/// The rules of an aggregated ClusterRole, combined as the RBAC authorizer defines it.
fn aggregate(role: &Value, roles: &[&Value]) -> Option<Vec<Value>> {
    let rules = aggregation::rules(role, roles)?;
    Some(rules.iter().map(authz::rbac::PolicyRule::to_value).collect())
}

/// The built-in kinds that are stored and served. Kinds of CRDs are looked up on demand.
struct StoredKinds {
    all: Vec<Arc<ResourceKind>>,
    /// By the prefix of their storage keys.
    by_prefix: HashMap<String, Arc<ResourceKind>>,
}

impl StoredKinds {
    fn of(catalog: &Catalog) -> Self {
        let mut kinds = StoredKinds { all: Vec::new(), by_prefix: HashMap::new() };
        for served in catalog.stored_in_preferred_version().iter().filter(|served| served.row().is_some()) {
            let kind = Arc::new(kind(served));
            kinds.by_prefix.insert(served.scope(""), Arc::clone(&kind));
            kinds.all.push(kind);
        }
        kinds
    }

    /// The object a storage key belongs to. Its kind follows from the key's prefix alone.
    fn object_ref(&self, catalog: &Catalog, key: &str) -> Option<TypedObjectRef> {
        let (prefix, rest) = key.split_at_checked(keys::prefix_end(key)?)?;
        let kind = match self.by_prefix.get(prefix) {
            Some(kind) => Arc::clone(kind),
            None => {
                let (group, plural) = keys::custom_resource(prefix)?;
                Arc::new(kind(&*catalog.custom_resource(group, plural)?))
            }
        };
        let (namespace, name) = if kind.namespaced { rest.split_once('/')? } else { ("", rest) };
        Some(kind.object_ref(namespace, name))
    }
}

fn kind(served: &catalog::ServedResource) -> ResourceKind {
    let has = |verb| served.verbs.contains(&verb);
    ResourceKind {
        group: served.gvk.group.clone(),
        version: served.gvk.version.clone(),
        kind: served.gvk.kind.clone(),
        plural: served.resource.resource.clone(),
        namespaced: served.namespaced,
        deletable: has(Verb::Delete),
        deletes_collections: has(Verb::DeleteCollection),
        stored_by: StoredBy::ThisServer,
    }
}

/// The API access of one controller.
struct InProcess {
    state: Arc<State>,
    client: LoopbackClient,
    kinds: Arc<StoredKinds>,
}

impl InProcess {
    fn served(&self, kind: &ResourceKind) -> Option<Arc<catalog::ServedResource>> {
        self.state.apis.catalog.find(&kind.group, &kind.version, &kind.plural)
    }

    /// The client that reaches the server storing the objects of a kind.
    fn client_for(&self, kind: &ResourceKind) -> LoopbackClient {
        match kind.stored_by {
            StoredBy::ThisServer => self.client.clone(),
            StoredBy::AggregatedServer => self.client.elsewhere(),
        }
    }

    fn entry(&self, object_ref: &TypedObjectRef) -> Option<Arc<StoredEntry>> {
        self.state
            .storage
            .store
            .get(&self.served(&object_ref.kind)?.key(&object_ref.namespace, &object_ref.name))
    }

    fn scope(&self, kind: &ResourceKind, namespace: &str) -> Option<String> {
        self.served(kind).map(|served| served.scope(namespace))
    }

    /// Decodes the objects of a kind, in the heavy lane if they are large together.
    fn objects(&self, kind: &ResourceKind, entries: Vec<Arc<StoredEntry>>) -> Result<Vec<Value>, Status> {
        let served = self.served(kind);
        self.in_lane(entries, move |entries| {
            entries.iter().map(|entry| object(served.as_deref(), entry)).collect::<Result<_, _>>()
        })?
    }

    /// Reads entries, in the heavy lane if they are large together. Fails if the server stops.
    fn in_lane<T: Send + 'static>(
        &self,
        entries: Vec<Arc<StoredEntry>>,
        read: impl FnOnce(&[Arc<StoredEntry>]) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let size = entries.iter().map(|entry| entry.body.len()).sum();
        let done = self.state.serving.heavy.run_blocking(size, move || read(&entries));
        done.ok_or_else(|| Status::internal("the server is stopping"))
    }
}

/// Decodes an object in the version of its resource. Custom resources are not converted; controllers read only their metadata.
fn object(served: Option<&catalog::ServedResource>, entry: &StoredEntry) -> Result<Value, Status> {
    match served {
        Some(served) => served.shapes().show_unconverted(entry).map(Sent::into_value),
        None => encode::tree(entry),
    }
}

impl ClusterReader for InProcess {
    fn kind(&self, api_version: &str, name: &str) -> Option<Arc<ResourceKind>> {
        let (group, version) = GroupVersion::split(api_version);
        let found = self.state.apis.catalog.find_kind(group, version, name)?;
        // A built-in kind that is not served must not resolve to a custom resource of the same group, version and kind.
        let is_known = kinds::table::find_kind(group, version, name).is_some();
        (!is_known || found.row().is_some()).then(|| Arc::new(kind(&found)))
    }

    fn kinds(&self) -> Vec<Arc<ResourceKind>> {
        let served = self.state.apis.catalog.stored_in_preferred_version();
        let custom =
            served.iter().filter(|served| served.row().is_none()).map(|served| Arc::new(kind(served)));
        self.kinds.all.iter().cloned().chain(custom).collect()
    }

    fn aggregated_kinds(&self) -> AggregatedKinds {
        elsewhere(self.state.apis.aggregation.remote_versions())
    }

    fn get(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        let Some(entry) = self.entry(object_ref) else { return Ok(None) };
        Ok(self.objects(&object_ref.kind, vec![entry])?.pop())
    }

    fn metadata(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        let Some(entry) = self.entry(object_ref) else { return Ok(None) };
        self.in_lane(vec![entry], |entries| entries.first().map(|entry| skim::metadata(entry)).transpose())?
    }

    fn list(&self, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status> {
        let Some(scope) = self.scope(kind, namespace) else { return Ok(Vec::new()) };
        let page = self.state.storage.store.snapshot(&scope);
        self.objects(kind, page.entries.iter().cloned().collect())
    }

    fn list_by_field(&self, kind: &ResourceKind, field: &str, value: &str) -> Result<Vec<Value>, Status> {
        let Some(scope) = self.scope(kind, "") else { return Ok(Vec::new()) };
        let page = self.state.storage.store.snapshot(&scope);
        let matches = |entry: &Arc<StoredEntry>| FactsRef::new(&entry.facts).field(field) == value;
        self.objects(kind, page.entries.iter().filter(|entry| matches(entry)).cloned().collect())
    }

    fn names(&self, kind: &ResourceKind, namespace: &str) -> Vec<Str> {
        let Some(scope) = self.scope(kind, namespace) else { return Vec::new() };
        let page = self.state.storage.store.snapshot(&scope);
        page.entries.iter().map(|entry| keys::name(&entry.key).into()).collect()
    }

    fn count(&self, kind: &ResourceKind, namespace: &str) -> usize {
        self.scope(kind, namespace).map_or(0, |scope| self.state.storage.store.count(&scope))
    }

    fn now(&self) -> i64 {
        self.state.now()
    }

    fn fresh_uid(&self) -> String {
        runtime::random::uid().to_string()
    }
}

impl Api for InProcess {
    type Watch = StoreWatch;

    fn watch(&self, what: &WatchSource) -> (Vec<ObjectChange>, StoreWatch) {
        let (scope, filter) = match what {
            WatchSource::Kind(kind) => (self.scope(kind, ""), WatchFilter::All),
            WatchSource::Named(kind, name) => (self.scope(kind, ""), WatchFilter::Named(name.clone())),
            WatchSource::Owners => (None, WatchFilter::Owners),
        };
        let (page, events) = self.state.storage.store.list_and_watch(scope.as_deref().unwrap_or(keys::ROOT));
        let (kinds, state) = (Arc::clone(&self.kinds), Arc::clone(&self.state));
        let changes = Arc::new(ChangeReader { filter, kinds, state });
        let entries = page.entries.iter().filter(|entry| !changes.rejects(&entry.key)).cloned().collect();
        let reader = Arc::clone(&changes);
        let read = move |entries: &[Arc<StoredEntry>]| {
            entries.iter().filter_map(|entry| reader.change(entry, None, false)).collect()
        };
        // Without a lane the server stops, and the watch ends.
        let initial = self.in_lane(entries, read).unwrap_or_default();
        (initial, StoreWatch { events, changes })
    }

    async fn create(&self, kind: &ResourceKind, namespace: &str, object: &Value) -> Result<Value, Status> {
        self.client.create(&collection(kind, namespace), object).await
    }

    async fn update(
        &self,
        object_ref: &TypedObjectRef,
        subresource: &str,
        object: &Value,
    ) -> Result<Value, Status> {
        self.client.update(&path(object_ref, subresource), object).await
    }

    async fn patch(
        &self,
        object_ref: &TypedObjectRef,
        subresource: &str,
        patch: &PatchBody,
    ) -> Result<Value, Status> {
        let path = path(object_ref, subresource);
        match patch {
            PatchBody::Merge(patch) => self.client.merge_patch(&path, patch).await,
            PatchBody::Strategic(patch) => {
                let kind = "application/strategic-merge-patch+json";
                self.client.request(Method::PATCH, &path, kind, Some(patch)).await
            }
            PatchBody::Apply(configuration, manager) => {
                let target = format!("{path}?fieldManager={manager}&force=true");
                let kind = "application/apply-patch+yaml";
                self.client.request(Method::PATCH, &target, kind, Some(configuration)).await
            }
        }
    }

    async fn list_aggregated(&self, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status> {
        items(self.client.elsewhere().get(&collection(kind, namespace)).await?)
    }

    async fn delete(&self, object_ref: &TypedObjectRef, options: &Value) -> Result<(), Status> {
        is_segment(&object_ref.name).map_err(Status::internal)?;
        self.client_for(&object_ref.kind)
            .delete(&path(object_ref, ""), &delete_options(options))
            .await
            .map(drop)
    }

    async fn delete_collection(
        &self,
        kind: &ResourceKind,
        namespace: &str,
        options: &Value,
    ) -> Result<(), Status> {
        self.client_for(kind).delete(&collection(kind, namespace), &delete_options(options)).await.map(drop)
    }
}

/// The namespaced resources of aggregated API servers that can be deleted, from discovery. Versions with stale or invalid
/// discovery are reported as unknown.
fn elsewhere(mut versions: Vec<RemoteVersion>) -> AggregatedKinds {
    versions.sort_by_key(|version| std::cmp::Reverse(version.registration.version_priority));
    let mut found = AggregatedKinds::default();
    let mut listed: HashSet<(Str, Str)> = HashSet::new();
    for RemoteVersion { registration, entry } in versions {
        let version = format!("{}/{}", registration.group, registration.version);
        if entry.str_at(&["freshness"]) != Some("Current") {
            let why = format!("stale GroupVersion discovery: {version}");
            found.unknown.push(FailedDiscovery { version, why });
            continue;
        }
        for resource in entry.list_at(&["resources"]) {
            let text = |path: &[&str]| Str::from(resource.str_at(path).unwrap_or_default());
            let has = |verb: &str| resource.list_at(&["verbs"]).iter().any(|own| own.as_str() == Some(verb));
            let kind = ResourceKind {
                group: registration.group.clone(),
                version: registration.version.clone(),
                kind: text(&["responseKind", "kind"]),
                plural: text(&["resource"]),
                namespaced: text(&["scope"]) == "Namespaced",
                deletable: has("delete"),
                deletes_collections: has("deletecollection"),
                stored_by: StoredBy::AggregatedServer,
            };
            let name = (kind.group.clone(), kind.plural.clone());
            // It may be listed already in a version of higher priority.
            if !kind.namespaced || !kind.deletable || listed.contains(&name) {
                continue;
            }
            // A resource name that is not a single path segment would address something else. Its objects cannot be enumerated safely.
            if let Err(why) = is_segment(&kind.plural) {
                found.unknown.push(FailedDiscovery { version: version.clone(), why });
                break;
            }
            listed.insert(name);
            found.kinds.push(Arc::new(kind));
        }
    }
    found
}

/// Checks that a name is a single path segment. Aggregated API servers may return any name.
fn is_segment(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("name is required".to_owned());
    }
    match names::is_path_segment_name(name).as_slice() {
        [] => Ok(()),
        wrong => {
            Err(format!("invalid resource name {}: [{}]", quote(&truncate_remote(name)), wrong.join(" ")))
        }
    }
}

/// The objects of a list response. Anything but a list is an error, and so is an empty page with a continue token: neither proves
/// that there are no objects.
fn items(mut list: Value) -> Result<Vec<Value>, Status> {
    let is_list = list.str_at(&["kind"]).is_some_and(|kind| kind.ends_with("List"));
    let goes_on = list.str_at(&["metadata", "continue"]).is_some_and(|token| !token.is_empty());
    let items = match list.remove_at(&["items"]) {
        Some(Value::List(items)) => items,
        None | Some(Value::Null) if is_list => Vec::new(),
        _ => return Err(Status::internal("the response to a list request is not a list")),
    };
    if items.is_empty() && goes_on {
        return Err(Status::internal("a list response has an empty page, but a continue token for more"));
    }
    Ok(items)
}

fn delete_options(options: &Value) -> Value {
    let mut map: Map = options.as_map().cloned().unwrap_or_default();
    map.insert("apiVersion", "v1");
    map.insert("kind", "DeleteOptions");
    Value::Map(map)
}

/// The path of a collection. `namespace` is ignored for cluster-scoped kinds.
fn collection(kind: &ResourceKind, namespace: &str) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let ResourceKind { version, plural, .. } = kind;
    encode_path(&if kind.namespaced {
        format!("{root}/{version}/namespaces/{namespace}/{plural}")
    } else {
        format!("{root}/{version}/{plural}")
    })
}

/// The path of an object, or of its subresource unless that is empty.
fn path(object_ref: &TypedObjectRef, subresource: &str) -> String {
    let mut path =
        format!("{}/{}", collection(&object_ref.kind, &object_ref.namespace), encode_path(&object_ref.name));
    if !subresource.is_empty() {
        path.push('/');
        path.push_str(subresource);
    }
    path
}

#[cfg(test)]
mod tests;

//! The [`ClusterView`] of admission: objects from the store, resources from the catalog.

mod converted_objects;

use std::sync::Arc;
use std::time::Duration;

use admission::{AdmissionFuture, ClusterView, ParamError, RestMapping, UndecodedObject};
use api::{GroupResource, GroupVersionKind, Status, meta};
use authn::User;
use catalog::encode;
use catalog::keys;
use catalog::unreadable::Concern;
use catalog::{Sent, ServedResource, Working};
use schema::Link;
use storage::{EntryIdentity, StoredEntry};
use tokio::time::Instant;
use value::{ByteLru, Str, Value, steps};

use crate::state::State;

pub(crate) use converted_objects::ConvertedObjectCache;

/// How long to wait for an object that a controller is about to create, and how often to look for it.
const APPEARS_WITHIN: Duration = Duration::from_millis(1500);
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Decoding so many stored bytes counts as one access to a tree.
const BYTES_PER_ACCESS: usize = 4;

/// Decodes an object for admission, and counts its bytes as work of the request.
fn decoded(entry: &StoredEntry) -> Result<Arc<Value>, Status> {
    steps::count(entry.body.len() / BYTES_PER_ACCESS);
    encode::tree(entry).map(Arc::new)
}

/// Whether the objects of a built-in resource are too many to be worth caching.
fn is_uncached(group: &str, resource: &str) -> bool {
    matches!((group, resource), ("", "pods" | "events" | "secrets"))
}

/// A cache of decoded objects by storage key: most requests look up the same few namespaces, service accounts,
/// classes and limits.
pub(crate) struct DecodedObjectCache {
    objects: ByteLru<Arc<str>, (EntryIdentity, Arc<Value>)>,
}

impl Default for DecodedObjectCache {
    fn default() -> Self {
        DecodedObjectCache { objects: ByteLru::sharded(Self::MAX_BYTES, Self::SHARDS) }
    }
}

impl DecodedObjectCache {
    /// Size limit in stored bytes.
    const MAX_BYTES: usize = 32 * 1024 * 1024;
    /// Each write looks up its namespace. A shard has room for the largest objects.
    const SHARDS: usize = 8;

    fn get(&self, entry: &Arc<StoredEntry>) -> Result<Arc<Value>, Status> {
        if let Some((of, object)) = self.objects.get(&entry.key)
            && of.is(entry)
        {
            return Ok(object);
        }
        let object = decoded(entry)?;
        let cached = (EntryIdentity::of(entry), Arc::clone(&object));
        self.objects.insert(Arc::clone(&entry.key), cached, entry.body.len());
        Ok(object)
    }
}

impl State {
    /// Records that admission could not decode an object. The request is refused after the current stage of admission, whatever the
    /// stage decides: see [`State::admission_is_informed`].
    fn unread(&self, entry: &StoredEntry, why: &Status, resource: (&str, &str), namespace: &str) {
        let concern = match (resource, namespace) {
            (("", "namespaces"), _) => Concern::AdmissionIn(keys::name(&entry.key).into()),
            (_, "") => Concern::Admission,
            (_, namespace) => Concern::AdmissionIn(namespace.into()),
        };
        self.storage.unreadable.note(entry, why, Some(concern));
    }

    fn read(&self, key: &str, resource: (&str, &str), namespace: &str) -> Option<Arc<Value>> {
        let entry = self.storage.store.get(key)?;
        let unread = |why: Status| self.unread(&entry, &why, resource, namespace);
        self.admission.decoded_objects.get(&entry).map_err(unread).ok()
    }

    fn readable<'e>(
        &self,
        entries: impl Iterator<Item = (&'e Arc<StoredEntry>, Result<Arc<Value>, Status>)>,
        resource: (&str, &str),
        namespace: &str,
    ) -> Vec<Arc<Value>> {
        let read = entries.filter_map(|(entry, read)| {
            read.map_err(|why| self.unread(entry, &why, resource, namespace)).ok()
        });
        read.collect()
    }

    /// Records which of the undecodable objects found at start are of resources that admission always needs. Others are recorded when
    /// admission looks them up.
    pub(crate) fn classify_unreadable(&self) {
        for (key, why) in self.storage.unreadable.errors_by_key() {
            for resource in ["namespaces", "resourcequotas", "limitranges", "serviceaccounts"] {
                let kind = self.apis.catalog.find(&"".into(), &"v1".into(), &resource.into());
                let kind = kind.filter(|kind| key.starts_with(&kind.scope("")));
                if let Some((kind, entry)) = kind.zip(self.storage.store.get(&key)) {
                    self.unread(&entry, &why, ("", resource), kind.namespace_of(&key));
                }
            }
        }
    }

    /// Errors if admission could not decode an object that it needs for requests in `namespace` (empty: cluster-scoped). Call it after
    /// a stage of admission, because only the stage knows which objects it looks up.
    pub(crate) fn admission_is_informed(&self, namespace: &str) -> Result<(), Status> {
        self.storage.unreadable.check_admission(namespace)
    }

    /// A stored object as clients of `kind` read it, cached while neither the entry nor the kind changes.
    async fn show(
        &self,
        kind: &Arc<ServedResource>,
        entry: &Arc<StoredEntry>,
    ) -> Result<Arc<Value>, ParamError> {
        let stored = self.admission.decoded_objects.get(entry).map_err(|why| {
            self.storage.unreadable.note(entry, &why, Some(Concern::Parameter));
            ParamError::Unreadable(why)
        })?;
        let is_custom = kind.as_custom().is_some();
        if is_custom && !kind.must_convert(entry) {
            return Ok(stored);
        }
        if let Some(shown) = self.admission.converted_objects.get(kind, entry) {
            return Ok(shown);
        }
        let shown = if is_custom {
            self.converter(kind).load(entry).await.map_err(|status| status.message().to_owned())?.into_value()
        } else {
            let shapes = kind.shapes();
            let working = shapes.load_built_in(entry).map_err(ParamError::Unreadable)?;
            let mut shown = shapes.to_sent(working);
            shapes.fill_sent(&mut shown);
            shown.into_value()
        };
        let shown = Arc::new(shown);
        self.admission.converted_objects.put(kind, entry, &shown);
        Ok(shown)
    }

    /// Errors if a stored CRD of the group cannot be decoded, because then the custom resources of the group are not all known.
    fn check_crds(&self, group: &str) -> Result<(), Status> {
        let custom = self.apis.catalog.custom();
        let Some(name) = custom.unreadable(group) else { return Ok(()) };
        self.storage.unreadable.check_named(&Concern::CustomResourceDefinition, name)?;
        // The CRD was just rewritten, and the catalog does not have it yet.
        Err(Status::internal(format!("the stored CustomResourceDefinition {name} cannot be read")))
    }

    /// The resource of the version `shown`, in which policies and webhooks get an object of the storage version `stored`. The version
    /// need not be served. If a built-in version is not served, a CRD may have one of the same name.
    fn kind_to_show(
        &self,
        stored: &GroupVersionKind,
        shown: &GroupVersionKind,
    ) -> Option<Arc<ServedResource>> {
        let built_in = self.apis.catalog.built_in_kind(shown).filter(|kind| kind.stored == *stored);
        built_in
            .or_else(|| self.apis.catalog.find_kind_in_any_version(&shown.group, &shown.version, &shown.kind))
    }

    fn kind_of(&self, rest_mapping: &RestMapping) -> Option<Arc<ServedResource>> {
        self.apis.catalog.find(
            &rest_mapping.resource.group,
            &rest_mapping.kind.version,
            &rest_mapping.resource.resource,
        )
    }
}

pub(crate) fn rest_mapping(kind: &ServedResource) -> RestMapping {
    RestMapping { resource: kind.resource.clone(), kind: kind.gvk.clone(), namespaced: kind.namespaced }
}

impl ClusterView for State {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let scope = keys::in_namespace(keys::built_in(group, resource)?, namespace);
        self.read(&format!("{scope}{name}"), (group, resource), namespace)
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let Some(prefix) = keys::built_in(group, resource) else { return Vec::new() };
        let snapshot = self.storage.store.snapshot(&keys::in_namespace(prefix, namespace));
        if is_uncached(group, resource) {
            let entries = snapshot.entries.iter().map(|entry| (entry, decoded(entry)));
            return self.readable(entries, (group, resource), namespace);
        }
        let entries = snapshot.entries.iter().map(|entry| (entry, self.admission.decoded_objects.get(entry)));
        self.readable(entries, (group, resource), namespace)
    }

    fn list_of(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<Arc<Value>> {
        let Some(kind) = self.kind_of(rest_mapping) else { return Vec::new() };
        if let Some(row) = kind.row() {
            return self.list(row.group, row.plural, namespace);
        }
        let snapshot = self.storage.store.snapshot(&kind.scope(namespace));
        let entries = snapshot.entries.iter().map(|entry| (entry, self.admission.decoded_objects.get(entry)));
        let GroupResource { group, resource } = &rest_mapping.resource;
        self.readable(entries, (group, resource), namespace)
    }

    fn list_undecoded(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<UndecodedObject<'_>> {
        let Some(kind) = self.kind_of(rest_mapping) else { return Vec::new() };
        let snapshot = self.storage.store.snapshot(&kind.scope(namespace));
        let is_cached = kind.row().is_none_or(|row| !is_uncached(row.group, row.plural));
        let undecoded = |entry: &Arc<StoredEntry>| {
            let (entry, resource) = (Arc::clone(entry), rest_mapping.resource.clone());
            let namespace = Str::from(namespace);
            let state = (Arc::clone(&entry.key), entry.revision);
            UndecodedObject::new(entry.body.len(), Some(state), move || {
                let read =
                    if is_cached { self.admission.decoded_objects.get(&entry) } else { decoded(&entry) };
                let GroupResource { group, resource } = &resource;
                read.map_err(|why| self.unread(&entry, &why, (group, resource), &namespace)).ok()
            })
        };
        snapshot.entries.iter().map(undecoded).collect()
    }

    fn prepare_for(&self, stored_bytes: usize) -> AdmissionFuture<'_, ()> {
        Box::pin(heavy_lane::enter_lane(stored_bytes))
    }

    fn names_of(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<Str> {
        let Some(kind) = self.kind_of(rest_mapping) else { return Vec::new() };
        let snapshot = self.storage.store.snapshot(&kind.scope(namespace));
        let name = |entry: &Arc<StoredEntry>| keys::name(&entry.key).into();
        snapshot.entries.iter().map(name).collect()
    }

    fn read_as<'a>(
        &'a self,
        rest_mapping: &'a RestMapping,
        namespace: &'a str,
        name: &'a str,
    ) -> AdmissionFuture<'a, Result<Option<Arc<Value>>, ParamError>> {
        Box::pin(async move {
            let Some(kind) = self.kind_of(rest_mapping) else { return Ok(None) };
            let Some(entry) = self.storage.store.get(&kind.key(namespace, name)) else { return Ok(None) };
            self.show(&kind, &entry).await.map(Some)
        })
    }

    fn is_custom(&self, resource: &GroupResource, version: &str) -> bool {
        let found =
            self.apis.catalog.find_in_any_version(&resource.group, &version.into(), &resource.resource);
        found.is_some_and(|kind| kind.row().is_none())
    }

    fn wait_for_object<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> AdmissionFuture<'a, Option<Arc<Value>>> {
        Box::pin(async move {
            let deadline = Instant::now() + APPEARS_WITHIN;
            loop {
                let found = self.object(group, resource, namespace, name);
                if found.is_some() || Instant::now() >= deadline || *self.stop.borrow() {
                    return found;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    }

    fn rest_mapping(&self, kind: &GroupVersionKind) -> Option<RestMapping> {
        self.apis.catalog.find_kind(&kind.group, &kind.version, &kind.kind).map(|kind| rest_mapping(&kind))
    }

    fn serves_built_in(&self, kind: &GroupVersionKind) -> bool {
        let found = self.apis.catalog.find_kind(&kind.group, &kind.version, &kind.kind);
        found.is_some_and(|found| found.as_custom().is_none())
    }

    fn param_rest_mapping(&self, kind: &GroupVersionKind) -> Result<Option<RestMapping>, Status> {
        let found = self.apis.catalog.find_kind(&kind.group, &kind.version, &kind.kind);
        if found.as_ref().is_none_or(|found| found.as_custom().is_some()) {
            self.check_crds(&kind.group)?;
        }
        Ok(found.map(|kind| rest_mapping(&kind)))
    }

    fn rest_mappings_named(&self, group: &str, version: &str, name: &str) -> Vec<RestMapping> {
        self.apis.catalog.named(group, version, name).iter().map(|kind| rest_mapping(kind)).collect()
    }

    fn equivalents(&self, resource: &GroupResource, version: &str) -> Vec<RestMapping> {
        let asked =
            self.apis.catalog.find_in_any_version(&resource.group, &version.into(), &resource.resource);
        let Some(asked) = asked else { return Vec::new() };
        let others = self.apis.catalog.equivalents(&asked);
        let others = others.iter().filter(|other| other.gvk != asked.gvk).map(|other| rest_mapping(other));
        std::iter::once(rest_mapping(&asked)).chain(others).collect()
    }

    fn convert<'a>(
        &'a self,
        object: &'a Value,
        kind: &'a GroupVersionKind,
    ) -> AdmissionFuture<'a, Result<Value, String>> {
        let target = self.kind_to_show(&meta::gvk(object), kind);
        if let Some(target) = target.as_ref().filter(|target| target.as_custom().is_some()) {
            let target = Arc::clone(target);
            return Box::pin(async move {
                let Some(object) = target.shapes().in_named_version(object.clone()) else {
                    return Err(format!("{} is not a custom resource", target.gvk));
                };
                let shown = self.converter(&target).convert_from(object).await;
                shown.map(Sent::into_value).map_err(|status| status.message().to_owned())
            });
        }
        let shapes = target.as_ref().map(|target| target.shapes());
        let working = shapes.and_then(|shapes| Some((shapes, shapes.in_stored_version(object)?)));
        let converted = if let Some((shapes, working)) = working {
            let mut shown = shapes.to_sent(working);
            shapes.fill_sent(&mut shown);
            Ok(shown.into_value())
        } else if meta::gvk(object) == *kind {
            // An object that is posted to a subresource has only one version.
            let mut shown = object.clone();
            if let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) {
                schema::decode::fill(&mut shown, schema);
            }
            Ok(shown)
        } else {
            Err(format!("{} cannot be converted to {kind}", meta::gvk(object)))
        };
        Box::pin(std::future::ready(converted))
    }

    fn to_stored<'a>(
        &'a self,
        mut object: Value,
        kind: &'a GroupVersionKind,
        stored_kind: &'a GroupVersionKind,
        strict: bool,
    ) -> AdmissionFuture<'a, Result<Value, String>> {
        let target = self.kind_to_show(stored_kind, kind);
        if let Some(custom) = target.as_ref().and_then(|target| target.as_custom()) {
            let compiled = custom.version.compiled();
            let adopted = compiled.coerce(&mut object, strict).and_then(|unknown| {
                if !unknown.is_empty() {
                    let unknown = schema::decode::strict_errors(&unknown, &[]);
                    return Err(format!("strict decoding error: {}", unknown.join(", ")));
                }
                compiled.default(&mut object).map_err(|error| error.to_string())?;
                Ok(object)
            });
            return Box::pin(std::future::ready(adopted));
        }
        let schema = match &target {
            Some(target) => Some(target.schema()),
            None => schema::of(&kind.group, &kind.version, &kind.kind),
        };
        let adopted = match schema {
            None => Err(format!("{kind} is not known")),
            Some(schema) => {
                let outcome = schema::decode::normalize(&mut object, schema);
                let unknown = schema::decode::strict_errors(&outcome.unknown, &[]);
                match outcome.type_error(&[]) {
                    Some(error) => Err(error),
                    None if strict && !unknown.is_empty() => {
                        Err(format!("strict decoding error: {}", unknown.join(", ")))
                    }
                    None => match target {
                        Some(target) => {
                            let working = target.shapes().to_working(Sent::decoded(object));
                            working.map(Working::into_value).map_err(|status| status.message().to_owned())
                        }
                        None => Ok(object),
                    },
                }
            }
        };
        Box::pin(std::future::ready(adopted))
    }

    fn is_past(&self, deadline: std::time::Instant) -> bool {
        std::time::Instant::now() >= deadline
    }

    fn schema(&self, kind: &GroupVersionKind, stored_kind: Option<&GroupVersionKind>) -> Option<Link> {
        let found = self.kind_to_show(stored_kind.unwrap_or(kind), kind);
        if let Some(custom) = found.as_ref().and_then(|found| found.as_custom()) {
            return Some(Link::Shared(Arc::clone(custom.version.compiled().schema())));
        }
        schema::of(&kind.group, &kind.version, &kind.kind).map(Link::Node)
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a authz::AuthorizationAttributes,
    ) -> AdmissionFuture<'a, authz::AuthorizerDecision> {
        let chain = self.authorization.chain.load_full();
        Box::pin(async move { chain.decide(user, attributes).await })
    }
}

#[cfg(test)]
mod tests;

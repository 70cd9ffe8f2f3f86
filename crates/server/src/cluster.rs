//! The [`ClusterView`] of admission: objects from the store, resources from the catalog.

mod converted_objects;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use admission::{BoxFuture, ClusterView, ParamError, RestMapping};
use api::{GroupResource, GroupVersionKind, Status, meta};
use authn::User;
use catalog::encode;
use catalog::keys;
use catalog::unreadable::Concern;
use catalog::{Sent, ServedResource, Working};
use schema::Link;
use storage::StoredEntry;
use tokio::time::Instant;
use value::{Str, Value};

use crate::state::State;

pub(crate) use converted_objects::ConvertedObjectCache;

/// How long to wait for an object that a controller is about to create, and how often to look for it.
const APPEARS_WITHIN: Duration = Duration::from_millis(1500);
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A cache of decoded objects by storage key and revision: most requests look up the same few namespaces, service accounts, classes and
/// limits.
#[derive(Default)]
pub(crate) struct DecodedObjectCache {
    cached: RwLock<CachedObjects>,
}

#[derive(Default)]
struct CachedObjects {
    objects: HashMap<Arc<str>, (u64, Arc<Value>)>,
    bytes: usize,
}

impl DecodedObjectCache {
    /// Size limit in stored bytes. When it is exceeded, the whole cache is cleared.
    const MAX_BYTES: usize = 32 * 1024 * 1024;

    fn get(&self, entry: &StoredEntry) -> Result<Arc<Value>, Status> {
        let cached = self.cached.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((revision, object)) = cached.objects.get(&entry.key)
            && *revision == entry.revision
        {
            return Ok(Arc::clone(object));
        }
        drop(cached);
        let object = Arc::new(encode::tree(entry)?);
        let mut cached = self.cached.write().unwrap_or_else(PoisonError::into_inner);
        if cached.bytes > Self::MAX_BYTES {
            *cached = CachedObjects::default();
        }
        cached.bytes += entry.body.len();
        cached.objects.insert(Arc::clone(&entry.key), (entry.revision, Arc::clone(&object)));
        Ok(object)
    }
}

impl State {
    /// Records that admission could not decode an object. The request is refused after the current stage of admission, whatever the
    /// stage decides: see [`State::admission_is_informed`].
    fn unread(&self, entry: &StoredEntry, why: &Status, resource: (&str, &str), namespace: &str) {
        let concern = match (resource, namespace) {
            (("", "namespaces"), _) => {
                Concern::AdmissionIn(entry.key.rsplit('/').next().unwrap_or_default().into())
            }
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
    async fn show(&self, kind: &Arc<ServedResource>, entry: &StoredEntry) -> Result<Arc<Value>, ParamError> {
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
            // A built-in resource is stored in the form that `Working` stands for.
            let mut shown = kind.to_sent(Working::of_built_in((*stored).clone()));
            kind.fill_sent(&mut shown);
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
        // These are too many to be worth caching.
        if matches!((group, resource), ("", "pods" | "events" | "secrets")) {
            let read = |entry: &Arc<StoredEntry>| encode::tree(entry).map(Arc::new);
            let entries = snapshot.entries.iter().map(|entry| (entry, read(entry)));
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

    fn names_of(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<Str> {
        let Some(kind) = self.kind_of(rest_mapping) else { return Vec::new() };
        let snapshot = self.storage.store.snapshot(&kind.scope(namespace));
        let name = |entry: &Arc<StoredEntry>| entry.key.rsplit('/').next().unwrap_or_default().into();
        snapshot.entries.iter().map(name).collect()
    }

    fn read_as<'a>(
        &'a self,
        rest_mapping: &'a RestMapping,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, ParamError>> {
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
    ) -> BoxFuture<'a, Option<Arc<Value>>> {
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
    ) -> BoxFuture<'a, Result<Value, String>> {
        let target = self.kind_to_show(&meta::gvk(object), kind);
        if let Some(target) = target.as_ref().filter(|target| target.as_custom().is_some()) {
            let target = Arc::clone(target);
            return Box::pin(async move {
                let shown = self.converter(&target).convert_from(object.clone()).await;
                shown.map(Sent::into_value).map_err(|status| status.message().to_owned())
            });
        }
        let converted = match target {
            Some(target) if meta::gvk(object) == target.stored => {
                // Admission works on objects in the form that `Working` stands for.
                let mut shown = target.to_sent(Working::of_built_in(object.clone()));
                target.fill_sent(&mut shown);
                Ok(shown.into_value())
            }
            // An object that is posted to a subresource has only one version.
            _ if meta::gvk(object) == *kind => {
                let mut shown = object.clone();
                if let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) {
                    schema::decode::fill(&mut shown, schema);
                }
                Ok(shown)
            }
            _ => Err(format!("{} cannot be converted to {kind}", meta::gvk(object))),
        };
        Box::pin(std::future::ready(converted))
    }

    fn to_stored<'a>(
        &'a self,
        mut object: Value,
        kind: &'a GroupVersionKind,
        stored_kind: &'a GroupVersionKind,
        strict: bool,
    ) -> BoxFuture<'a, Result<Value, String>> {
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
                let outcome = schema::decode::normalise(&mut object, schema);
                let unknown = schema::decode::strict_errors(&outcome.unknown, &[]);
                match outcome.type_error(&[]) {
                    Some(error) => Err(error),
                    None if strict && !unknown.is_empty() => {
                        Err(format!("strict decoding error: {}", unknown.join(", ")))
                    }
                    None => match target {
                        Some(target) => {
                            let working = target.to_working(Sent::new(object));
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
    ) -> BoxFuture<'a, authz::AuthorizerDecision> {
        let chain = self.authorization.chain.load_full();
        Box::pin(async move { chain.decide(user, attributes).await })
    }
}

#[cfg(test)]
mod tests;

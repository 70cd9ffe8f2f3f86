//! A fake [`ClusterView`] with given objects and the built-in kinds, shared by unit tests, spec pages and benchmarks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use admission::{AdmissionFuture, ClusterView, RestMapping, UndecodedObject};
use api::{GroupResource, GroupVersionKind, meta};
use authn::User;
use kinds::table::Resource;
use value::{Str, Value};

/// Objects in memory, an authorizer function, and a clock: deadlines have passed after `patience` readings of it.
pub(crate) struct FakeCluster {
    /// By group, resource, namespace and name.
    pub(crate) objects: BTreeMap<(Str, Str, Str, Str), Arc<Value>>,
    /// The objects that [`ClusterView::wait_for_object`] finds in addition.
    pub(crate) soon: Option<Box<FakeCluster>>,
    pub(crate) may: fn(&User, &authz::AuthorizationAttributes) -> bool,
    pub(crate) patience: usize,
    pub(crate) clock_reads: AtomicUsize,
    /// How often an object of [`ClusterView::list_undecoded`] was read.
    pub(crate) decoded: AtomicUsize,
}

impl Default for FakeCluster {
    /// No objects, no permissions, and deadlines that never pass.
    fn default() -> Self {
        FakeCluster {
            objects: BTreeMap::new(),
            soon: None,
            may: |_, _| false,
            patience: usize::MAX,
            clock_reads: AtomicUsize::new(0),
            decoded: AtomicUsize::new(0),
        }
    }
}

impl Extend<Value> for FakeCluster {
    /// Stores objects; an object with the name of an earlier one replaces it.
    fn extend<T: IntoIterator<Item = Value>>(&mut self, objects: T) {
        for object in objects {
            let kind = meta::gvk(&object);
            let plural = || Str::from(format!("{}s", kind.kind.to_lowercase()));
            let resource = row_of(&kind).map_or_else(plural, |row| row.plural.into());
            let (namespace, name) = (meta::namespace(&object), meta::name(&object));
            let key = (kind.group.clone(), resource, namespace.into(), name.into());
            self.objects.insert(key, Arc::new(object));
        }
    }
}

impl FromIterator<Value> for FakeCluster {
    fn from_iter<T: IntoIterator<Item = Value>>(objects: T) -> Self {
        let mut fake_cluster = FakeCluster::default();
        fake_cluster.extend(objects);
        fake_cluster
    }
}

fn row_of(kind: &GroupVersionKind) -> Option<&'static Resource> {
    kinds::table::all().find(|row| row.group == kind.group && row.kind == kind.kind)
}

impl ClusterView for FakeCluster {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&(group.into(), resource.into(), namespace.into(), name.into())).cloned()
    }

    fn wait_for_object<'a>(
        &'a self,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> AdmissionFuture<'a, Option<Arc<Value>>> {
        let soon = || self.soon.as_ref()?.object(group, resource, namespace, name);
        Box::pin(std::future::ready(self.object(group, resource, namespace, name).or_else(soon)))
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let here = |(g, r, n, _): &(Str, Str, Str, Str)| {
            g == group && r == resource && (namespace.is_empty() || n == namespace)
        };
        self.objects.iter().filter(|(key, _)| here(key)).map(|(_, object)| Arc::clone(object)).collect()
    }

    fn list_undecoded(&self, rest_mapping: &RestMapping, namespace: &str) -> Vec<UndecodedObject<'_>> {
        let GroupResource { group, resource } = &rest_mapping.resource;
        let undecoded = |object: Arc<Value>| {
            let name = meta::name(&object);
            let key = format!("{group}/{resource}/{}/{name}", meta::namespace(&object));
            let revision = meta::resource_version(&object).parse().unwrap_or(0);
            UndecodedObject::new(object.size_up_to(usize::MAX), Some((key.into(), revision)), move || {
                self.decoded.fetch_add(1, Ordering::Relaxed);
                Some(Arc::clone(&object))
            })
        };
        self.list_of(rest_mapping, namespace).into_iter().map(undecoded).collect()
    }

    fn rest_mapping(&self, kind: &GroupVersionKind) -> Option<RestMapping> {
        let row = row_of(kind)?;
        row.version(&kind.version)?;
        Some(RestMapping {
            resource: GroupResource::new(row.group, row.plural),
            kind: kind.clone(),
            namespaced: row.is_namespaced(),
        })
    }

    fn rest_mappings_named(&self, group: &str, version: &str, name: &str) -> Vec<RestMapping> {
        kinds::table::all()
            .filter(|row| group.is_empty() || row.group == group)
            .filter(|row| row.plural == name || row.singular == name)
            .filter_map(|row| self.rest_mapping(&GroupVersionKind::new(row.group, version, row.kind)))
            .collect()
    }

    /// Only autoscalers have an equivalent version.
    fn equivalents(&self, resource: &GroupResource, version: &str) -> Vec<RestMapping> {
        let mut rows = kinds::table::all();
        let row = rows.find(|row| row.group == resource.group && row.plural == resource.resource);
        let Some(row) = row else { return Vec::new() };
        let mut versions = if resource.group == "autoscaling" { vec!["v1", "v2"] } else { vec![version] };
        versions.sort_by_key(|rest_mapping| *rest_mapping != version);
        let rest_mapping = |version: &str| RestMapping {
            resource: resource.clone(),
            kind: GroupVersionKind::new(resource.group.clone(), version, row.kind),
            namespaced: row.is_namespaced(),
        };
        versions.into_iter().map(rest_mapping).collect()
    }

    fn convert<'a>(
        &'a self,
        object: &'a Value,
        kind: &'a GroupVersionKind,
    ) -> AdmissionFuture<'a, Result<Value, String>> {
        let mut shown = object.clone();
        shown.set_at(&["apiVersion"], kind.api_version());
        shown.set_at(&["kind"], kind.kind.clone());
        Box::pin(std::future::ready(Ok(shown)))
    }

    fn to_stored<'a>(
        &'a self,
        mut object: Value,
        kind: &'a GroupVersionKind,
        _stored_kind: &'a GroupVersionKind,
        strict: bool,
    ) -> AdmissionFuture<'a, Result<Value, String>> {
        let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) else {
            return Box::pin(std::future::ready(Err(format!("no kind {kind:?}"))));
        };
        let outcome = schema::decode::normalize(&mut object, schema);
        let unknown = schema::decode::strict_errors(&outcome.unknown, &[]);
        Box::pin(std::future::ready(match outcome.type_error(&[]) {
            Some(error) => Err(error),
            None if strict && !unknown.is_empty() => {
                Err(format!("strict decoding error: {}", unknown.join(", ")))
            }
            None => Ok(object),
        }))
    }

    fn schema(
        &self,
        kind: &GroupVersionKind,
        _stored_kind: Option<&GroupVersionKind>,
    ) -> Option<schema::Link> {
        schema::of(&kind.group, &kind.version, &kind.kind).map(schema::Link::Node)
    }

    fn is_past(&self, _: Instant) -> bool {
        self.clock_reads.fetch_add(1, Ordering::Relaxed) >= self.patience
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a authz::AuthorizationAttributes,
    ) -> AdmissionFuture<'a, authz::AuthorizerDecision> {
        Box::pin(std::future::ready(if (self.may)(user, attributes) {
            authz::AuthorizerDecision::allow(authz::DecisionReason::Text("because".into()))
        } else {
            authz::AuthorizerDecision::no_opinion("")
        }))
    }
}

/// Polls a future in a loop until it is ready. It must not wait for external events.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
    }
}

//! A [`ClusterReader`] over a list of objects, for tests of decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::{Status, groups, meta};
use value::{Str, Value, json};

use crate::api::{AggregatedKinds, ClusterReader, ResourceKind, StoredBy, TypedObjectRef};

/// A deletable kind that this server stores.
pub(crate) fn kind(
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
    namespaced: bool,
) -> Arc<ResourceKind> {
    Arc::new(ResourceKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced,
        deletable: true,
        deletes_collections: true,
        stored_by: StoredBy::ThisServer,
    })
}

pub(crate) fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

/// The kinds and objects of the fake cluster.
#[derive(Debug)]
pub(crate) struct FakeReader {
    pub(crate) kinds: Vec<Arc<ResourceKind>>,
    pub(crate) objects: Vec<Value>,
    /// How often objects were listed with their content.
    pub(crate) lists: AtomicUsize,
}

impl FakeReader {
    pub(crate) fn new(objects: &[&str]) -> Self {
        let kinds = vec![
            kind("", "v1", "ConfigMap", "configmaps", true),
            kind("", "v1", "Namespace", "namespaces", false),
            kind("", "v1", "Node", "nodes", false),
            kind("", "v1", "Pod", "pods", true),
            kind("apps", "v1", "ReplicaSet", "replicasets", true),
            kind(groups::RBAC, "v1", "ClusterRole", "clusterroles", false),
        ];
        let objects = objects.iter().map(|text| parse(text)).collect();
        FakeReader { kinds, objects, lists: AtomicUsize::new(0) }
    }

    fn objects_in(&self, kind: &ResourceKind, namespace: &str) -> impl Iterator<Item = &Value> {
        let of_kind = self.objects.iter().filter(move |object| *self.object_ref(object).kind == *kind);
        of_kind.filter(move |object| namespace.is_empty() || meta::namespace(object) == namespace)
    }

    pub(crate) fn object_ref(&self, object: &Value) -> TypedObjectRef {
        let gvk = meta::gvk(object);
        let kind = self.kind(&gvk.api_version(), &gvk.kind).unwrap();
        kind.object_ref(meta::namespace(object), meta::name(object))
    }
}

impl ClusterReader for FakeReader {
    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceKind>> {
        self.kinds.iter().find(|k| k.kind == kind && k.api_version() == api_version).cloned()
    }

    fn kinds(&self) -> Vec<Arc<ResourceKind>> {
        self.kinds.clone()
    }

    fn aggregated_kinds(&self) -> AggregatedKinds {
        AggregatedKinds::default()
    }

    fn get(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        Ok(self.objects.iter().find(|object| self.object_ref(object) == *object_ref).cloned())
    }

    fn metadata(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        self.get(object_ref)
    }

    fn list(&self, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        Ok(self.objects_in(kind, namespace).cloned().collect())
    }

    fn list_by_field(&self, kind: &ResourceKind, field: &str, value: &str) -> Result<Vec<Value>, Status> {
        let path: Vec<&str> = field.split('.').collect();
        let listed = self.list(kind, "")?.into_iter();
        Ok(listed.filter(|object| object.str_at(&path).unwrap_or_default() == value).collect())
    }

    fn names(&self, kind: &ResourceKind, namespace: &str) -> Vec<Str> {
        self.objects_in(kind, namespace).map(|object| meta::name(object).into()).collect()
    }

    fn count(&self, kind: &ResourceKind, namespace: &str) -> usize {
        self.objects_in(kind, namespace).count()
    }

    fn fresh_uid(&self) -> String {
        "00000000-0000-4000-8000-000000000000".to_owned()
    }

    fn now(&self) -> i64 {
        0
    }
}

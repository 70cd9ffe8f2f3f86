//! [`AdmittedNamespace`]: the namespace that a new object was admitted into, and whether it still accepts the object.
//!
//! INVARIANT: while the plugin NamespaceLifecycle is enabled, no object is created in a namespace that is deleted or terminating, however
//! long policies and webhooks took to admit it. The store compares the revision of the namespace in the transaction of the create
//! ([`Fence`]). Only where it cannot (kine, or a namespace in another cluster of `--etcd-servers-overrides`), a deletion in the moment of
//! the write remains unnoticed.

use std::sync::Arc;

use admission::plugins::NamespaceLifecycle;
use api::{GroupResource, Status, meta};
use catalog::{encode, keys};
use storage::{Fence, Store, StoredEntry};
use value::{Str, Value};

use super::WriteContext;
use crate::call::Call;
use crate::consistent_reads;

#[derive(Debug)]
pub(super) struct AdmittedNamespace {
    key: Arc<str>,
    namespace: Str,
    /// The namespace before validating admission, which has refused the object if it was terminating. `None` if memory did not have it.
    seen: Option<Arc<StoredEntry>>,
    /// The resource and name of the new object.
    resource: GroupResource,
    name: Str,
}

impl AdmittedNamespace {
    /// The namespace of an object that is being created, before validating admission; `None` if it may be created in any.
    pub(super) fn of_new(context: &WriteContext<'_>, call: &Call, object: &Value) -> Option<Self> {
        let state = context.state;
        let is_checked = context.kind.namespaced && !context.dry_run && state.admission.checks_namespaces;
        if !is_checked {
            return None;
        }
        let namespace = &call.info.namespace;
        let key: Arc<str> = keys::cluster_scoped(keys::built_in("", "namespaces")?, namespace).into();
        Some(AdmittedNamespace {
            namespace: namespace.clone(),
            seen: state.storage.store.get(&key),
            key,
            resource: context.kind.resource.clone(),
            name: meta::name(object).into(),
        })
    }

    /// The fence that refuses the write of `key` if the namespace changes before it is stored. Fails like the plugin NamespaceLifecycle if
    /// the namespace is deleted or terminating, and like for a deleted one if another has its name now. Memory is enough, unless the store
    /// has refused the fence before.
    pub(super) async fn fence(&self, store: &Store, key: &str, was_refused: bool) -> Result<Fence, Status> {
        let is_compared = std::ptr::eq(store.of(key), store.of(&self.key));
        let now = if was_refused || !is_compared {
            consistent_reads::entry(store, &self.key).await?
        } else {
            store.get(&self.key)
        };
        let missing = || NamespaceLifecycle::missing(&self.namespace);
        let (seen, now) = self.seen.as_ref().zip(now).ok_or_else(missing)?;
        if !Arc::ptr_eq(seen, &now) {
            let namespace = encode::tree(&now)?;
            if meta::uid(&namespace) != meta::uid(&encode::tree(seen)?) {
                return Err(missing());
            }
            if NamespaceLifecycle::is_terminating(&namespace) {
                return Err(NamespaceLifecycle::terminating(&self.resource, &self.name, &self.namespace));
            }
        }
        Ok(Fence { key: Arc::clone(&self.key), revision: now.revision })
    }
}

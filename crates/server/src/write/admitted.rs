//! Proofs that a write has passed admission. Only the stage that a proof represents can construct it, so a write that skips a stage does
//! not compile. A proof also says what was admitted: the storage key of an object, or the pod of a binding or eviction. The store refuses
//! to write anything else with it.
//!
//! | write | proof | made by |
//! |---|---|---|
//! | create, update, status, scale | [`Admitted`] | [`WriteContext::admit_create`], [`WriteContext::admit_update`] |
//! | delete, finalizers | [`AdmittedDelete`] | [`WriteContext::admit_delete`], [`Admitted::into_delete`] |
//! | binding, eviction | [`AdmittedPost`] | [`Posted::validate_for_pod`](super::Posted::validate_for_pod) |
//!
//! The fields are private. These are the types:
//!
//! ```
//! use server::write::{Admitted, AdmittedDelete, AdmittedPost, MarkProof, Mutated};
//! fn marks<'a>(delete: &'a AdmittedDelete, post: &'a AdmittedPost) -> [MarkProof<'a>; 2] {
//!     [MarkProof::Delete(delete), MarkProof::Post(post)]
//! }
//! ```
//!
//! An admitted object cannot be constructed outside of admission:
//!
//! ```compile_fail,E0451
//! use server::write::Admitted;
//! fn forged(other: Admitted) -> Admitted {
//!     Admitted { ..other }
//! }
//! ```
//!
//! A deletion cannot be constructed without admission:
//!
//! ```compile_fail,E0451
//! use server::write::AdmittedDelete;
//! let _ = AdmittedDelete { key: "/registry/pods/default/web".into(), revision: 1 };
//! ```
//!
//! Neither can a binding or an eviction:
//!
//! ```compile_fail,E0451
//! use server::write::AdmittedPost;
//! let _ = AdmittedPost { namespace: "default".into(), pod: "web".into(), is_eviction: true, dry_run: false };
//! ```
//!
//! The store does not accept an object that was only mutated:
//!
//! ```
//! use server::write::{Admitted, StoreError, WriteContext, WriteOutcome};
//! async fn store(context: WriteContext<'_>, call: &server::call::Call, admitted: Admitted) -> Result<WriteOutcome, StoreError> {
//!     context.store(call, admitted, None).await
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use server::write::{Mutated, StoreError, WriteContext, WriteOutcome};
//! async fn store(context: WriteContext<'_>, call: &server::call::Call, mutated: Mutated) -> Result<WriteOutcome, StoreError> {
//!     context.store(call, mutated, None).await
//! }
//! ```
//!
//! Data of the servers that is no object of the API is written without admission, but only at its own keys:
//!
//! ```
//! use catalog::keys::ServerKey;
//! async fn put(store: &storage::Store, record: storage::Record) {
//!     let key = ServerKey::node_ports();
//!     let _ = server::write::put_server_data(store, &key, storage::Expect::Any, record, None).await;
//! }
//! ```
//!
//! ```compile_fail,E0308
//! async fn put(store: &storage::Store, record: storage::Record) {
//!     let key = "/registry/pods/default/web";
//!     let _ = server::write::put_server_data(store, key, storage::Expect::Any, record, None).await;
//! }
//! ```
//!
//! ```compile_fail,E0603
//! let key = catalog::keys::ServerKey("/registry/pods/default/web".into());
//! ```
//!
//! ```compile_fail,E0624
//! let key = catalog::keys::ServerKey::new("/registry/pods/default/web");
//! ```

#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::meta;
use catalog::{ServedResource, StoredObject, Working};
use storage::{Expect, StoredEntry};
use value::Str;

#[cfg(doc)]
use super::WriteContext;
use super::WriteOutcome;
use super::admitted_namespace::AdmittedNamespace;
use crate::addresses::AddressClaims;

/// An object after mutating admission, not yet validated.
#[derive(Debug)]
pub struct Mutated {
    pub(super) object: Working,
}

/// An object that passed mutating admission, validation and validating admission.
#[derive(Debug)]
pub struct Admitted {
    /// The storage key that the object was admitted for.
    pub(super) key: Arc<str>,
    pub(super) object: Working,
    /// The form of `object` to store, if it was already converted for validating admission. A conversion webhook may answer differently the
    /// next time, and policies have seen this.
    pub(super) stored: Option<StoredObject>,
    pub(super) expect: Expect,
    /// Addresses and ports allocated to a Service; released on drop unless the object is stored.
    pub(super) address_claims: Option<AddressClaims>,
    /// The namespace of a new object, which must still accept it when it is stored.
    pub(super) namespace: Option<AdmittedNamespace>,
}

impl Admitted {
    pub fn name(&self) -> &str {
        meta::name(&self.object)
    }

    pub fn object(&self) -> &Working {
        &self.object
    }

    /// Converts an update that removes the last finalizer into a deletion. Also returns the object for the response.
    pub fn into_delete(self) -> (AdmittedDelete, Working) {
        // The update was admitted for one revision; revision 0 never matches and makes the deletion a conflict.
        let revision = match self.expect {
            Expect::Revision(revision) => revision,
            Expect::Absent | Expect::Any => 0,
        };
        (AdmittedDelete { key: self.key, revision }, self.object)
    }
}

/// An admitted deletion of an object at one revision.
#[derive(Debug)]
pub struct AdmittedDelete {
    key: Arc<str>,
    revision: u64,
}

impl AdmittedDelete {
    pub(super) fn of(old: &StoredEntry) -> Self {
        AdmittedDelete { key: Arc::clone(&old.key), revision: old.revision }
    }

    /// Reports whether the deletion was admitted for this object at this revision.
    pub fn is_for(&self, entry: &StoredEntry) -> bool {
        self.key == entry.key && self.revision == entry.revision
    }
}

/// Proof that a binding or an eviction of one pod passed both admission stages.
#[derive(Debug)]
pub struct AdmittedPost {
    pub(super) namespace: Str,
    pub(super) pod: Str,
    pub(super) is_eviction: bool,
    /// Admitted as a dry run, which must not write.
    pub(super) dry_run: bool,
}

impl AdmittedPost {
    /// Reports whether the request may cause a write of the object at `key`: the pod itself, or for an eviction a PodDisruptionBudget in
    /// its namespace.
    pub(super) fn permits(&self, kind: &ServedResource, key: &str, dry_run: bool) -> bool {
        let is_object = if kind.is_built_in("", "Pod") {
            key == kind.key(&self.namespace, &self.pod)
        } else {
            let is_budget = kind.is_built_in("policy", "PodDisruptionBudget");
            self.is_eviction && is_budget && kind.namespace_of(key) == self.namespace
        };
        is_object && (dry_run || !self.dry_run)
    }
}

/// The admitted request that allows the server to set fields itself: a deletion timestamp, a node name, a condition, a used disruption.
#[derive(Clone, Copy, Debug)]
pub enum MarkProof<'a> {
    /// A deletion of the marked object.
    Delete(&'a AdmittedDelete),
    /// A binding or an eviction.
    Post(&'a AdmittedPost),
}

/// Result of a successful [`WriteContext::store_mark`].
#[derive(Debug)]
pub struct Marked {
    pub outcome: WriteOutcome,
    /// Revision of the object before the mark.
    pub(super) over: u64,
}

impl Marked {
    /// Transfers an admitted deletion to the marked object, which differs only in the mark. `None` if the mark was written over another
    /// revision than the one whose deletion was admitted.
    pub fn carry(&self, admitted: AdmittedDelete) -> Option<AdmittedDelete> {
        match &self.outcome {
            _ if admitted.revision != self.over => None,
            WriteOutcome::Entry(entry) if entry.key == admitted.key => Some(AdmittedDelete::of(entry)),
            WriteOutcome::Entry(_) => None,
            WriteOutcome::DryRun(_) => Some(admitted),
        }
    }
}

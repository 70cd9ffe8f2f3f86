//! Proofs that a write has passed admission. Each can be made only by the stage that it stands for, so a write that skips a stage does not
//! compile.
//!
//! | write | proof | made by |
//! |---|---|---|
//! | create, update, status, scale | [`Admitted`] | [`Subject::admit_create`], [`Subject::admit_update`] |
//! | delete, finalizers | [`AdmittedDelete`] | [`Subject::admit_delete`], [`Admitted::into_delete`] |
//! | binding, eviction | [`AdmittedPost`] | [`Posted::validate`](super::Posted::validate) |
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
//! A deletion is not admitted by saying so:
//!
//! ```compile_fail,E0451
//! use server::write::AdmittedDelete;
//! let _ = AdmittedDelete { key: "/registry/pods/default/web".into(), revision: 1 };
//! ```
//!
//! Nor is a binding or an eviction:
//!
//! ```compile_fail,E0451
//! use server::write::AdmittedPost;
//! let _ = AdmittedPost { _admitted: () };
//! ```
//!
//! The store takes no object that was only mutated:
//!
//! ```
//! use server::write::{Admitted, StoreError, Subject, WriteOutcome};
//! async fn store(subject: Subject<'_>, call: &server::call::Call, admitted: Admitted) -> Result<WriteOutcome, StoreError> {
//!     subject.store(call, admitted, None).await
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use server::write::{Mutated, StoreError, Subject, WriteOutcome};
//! async fn store(subject: Subject<'_>, call: &server::call::Call, mutated: Mutated) -> Result<WriteOutcome, StoreError> {
//!     subject.store(call, mutated, None).await
//! }
//! ```

use std::sync::Arc;

use api::meta;
use storage::{Entry, Expect};

#[cfg(doc)]
use super::Subject;
use super::WriteOutcome;
use crate::addresses::Held;
use crate::catalog::Working;

/// An object after the mutating stage.
#[derive(Debug)]
pub struct Mutated {
    pub(super) object: Working,
}

/// An object that passed the mutating stage, validation and the validating stage.
#[derive(Debug)]
pub struct Admitted {
    pub(super) object: Working,
    pub(super) expect: Expect,
    /// The addresses and ports that a service was given, until it is stored.
    pub(super) held: Option<Held>,
}

impl Admitted {
    /// The object's name.
    pub fn name(&self) -> &str {
        meta::name(&self.object)
    }

    /// The object.
    pub fn object(&self) -> &Working {
        &self.object
    }

    /// An update that takes the last finalizer off deletes the object: the deletion, and the object that the client is shown.
    pub fn into_delete(self, old: &Entry) -> (AdmittedDelete, Working) {
        // The update was admitted for one revision; another one is a conflict.
        let revision = match self.expect {
            Expect::Revision(revision) => revision,
            Expect::Absent | Expect::Any => 0,
        };
        (AdmittedDelete { key: Arc::clone(&old.key), revision }, self.object)
    }
}

/// The deletion of an object, as it is at one revision, that passed both stages.
#[derive(Debug)]
pub struct AdmittedDelete {
    key: Arc<str>,
    revision: u64,
}

impl AdmittedDelete {
    pub(super) fn of(old: &Entry) -> Self {
        AdmittedDelete { key: Arc::clone(&old.key), revision: old.revision }
    }

    /// Whether it is about this object at this revision.
    pub fn is_for(&self, entry: &Entry) -> bool {
        self.key == entry.key && self.revision == entry.revision
    }
}

/// An object that was posted to a subresource and passed both stages.
#[derive(Debug)]
pub struct AdmittedPost {
    pub(super) _admitted: (),
}

/// The request by which the server may write a mark of its own: a deletion timestamp, a node name, a condition, a spent disruption.
#[derive(Clone, Copy, Debug)]
pub enum MarkProof<'a> {
    /// A deletion of the object that is marked.
    Delete(&'a AdmittedDelete),
    /// A binding or an eviction.
    Post(&'a AdmittedPost),
}

/// A mark that was written.
#[derive(Debug)]
pub struct Marked {
    /// The object with the mark.
    pub outcome: WriteOutcome,
    /// The revision without the mark.
    pub(super) over: u64,
}

impl Marked {
    /// The admitted deletion of the object, which is the same object but for the mark. `None` if the mark was written over another revision
    /// than the one whose deletion was admitted.
    pub fn carry(&self, admitted: AdmittedDelete) -> Option<AdmittedDelete> {
        match &self.outcome {
            _ if admitted.revision != self.over => None,
            WriteOutcome::Entry(entry) if entry.key == admitted.key => Some(AdmittedDelete::of(entry)),
            WriteOutcome::Entry(_) => None,
            WriteOutcome::DryRun(_) => Some(admitted),
        }
    }
}

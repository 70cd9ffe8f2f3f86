//! What passes the stages of admission and is never stored: reviews, bindings, evictions, connections.

use admission::{AdmissionNotes, Attributes, Operation, VersionedObject};
use api::Status;
use value::{Str, Value};

use super::AdmittedPost;
use crate::call::Call;
use crate::catalog::ServedResource;
use crate::state::State;

/// What is posted below an object or answered and forgotten: the mutating and the validating stage, with nothing stored.
pub struct Posted<'a> {
    /// The server.
    pub state: &'a State,
    /// The kind in the path.
    pub kind: &'a ServedResource,
    /// The subresource, if it is one.
    pub subresource: &'static str,
    /// The kind of what is posted.
    pub posted: api::GroupVersionKind,
    /// The name it is about.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// The options, as admission sees them.
    pub options: &'a Value,
    /// Nothing is stored.
    pub dry_run: bool,
}

impl Posted<'_> {
    fn attributes<'c>(&'c self, call: &'c Call) -> Attributes<'c> {
        Attributes {
            user: call.user(),
            operation: self.operation,
            kind: self.posted.clone(),
            stored_kind: self.posted.clone(),
            resource: self.kind.resource.clone(),
            version: self.kind.gvk.version.clone(),
            subresource: Str::new_static(self.subresource),
            namespace: call.info.namespace.clone(),
            name: self.name.into(),
            old_object: VersionedObject::absent(),
            options: self.options,
            dry_run: self.dry_run,
            now: call.now,
            deadline: call.deadline,
            snapshot: call.admission_snapshot.clone(),
        }
    }

    /// The mutating stage: the object may come back changed.
    pub async fn mutate(&self, call: &mut Call, mut object: Value) -> Result<Value, Status> {
        let mut notes = AdmissionNotes::default();
        let chain = &self.state.admission.chain;
        let outcome = chain.mutate(&self.attributes(call), Some(&mut object), self.state, &mut notes).await;
        call.note(notes);
        self.state.admission_is_informed(&call.info.namespace)?;
        outcome.map(|()| object)
    }

    /// The validating stage.
    pub async fn validate(&self, call: &mut Call, object: &Value) -> Result<AdmittedPost, Status> {
        let mut notes = AdmissionNotes::default();
        let chain = &self.state.admission.chain;
        let outcome = chain.validate(&self.attributes(call), Some(object), self.state, &mut notes).await;
        call.note(notes);
        self.state.admission_is_informed(&call.info.namespace)?;
        outcome.map(|()| AdmittedPost { _admitted: () })
    }

    /// Both stages.
    pub async fn admit(&self, call: &mut Call, object: Value) -> Result<Value, Status> {
        let object = self.mutate(call, object).await?;
        self.validate(call, &object).await?;
        Ok(object)
    }
}

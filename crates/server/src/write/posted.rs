//! Admission of objects that are never stored: reviews, bindings, evictions and connect options.

use admission::{AdmissionAttributes, AdmissionNotes, Operation, VersionedObject};
use api::Status;
use catalog::ServedResource;
use requests::options::WriteOptions;
use value::Value;

use super::AdmittedPost;
use super::mutate::{AdmissionSubject, concluded};
use crate::call::Call;
use crate::state::State;

/// Context to admit an object that is posted to a subresource or to a virtual resource. The object itself is not stored.
pub struct Posted<'a> {
    pub state: &'a State,
    /// The resource in the request path.
    pub kind: &'a ServedResource,
    /// Empty for a virtual resource such as a review.
    pub subresource: &'static str,
    /// Kind of the posted object.
    pub posted: api::GroupVersionKind,
    /// Name in the admission attributes.
    pub name: &'a str,
    pub operation: Operation,
    /// The options in the shape that admission sees.
    pub options: Value,
    pub dry_run: bool,
}

impl<'a> Posted<'a> {
    /// The context of a `create` of an object of the kind `posted`.
    pub fn create(
        state: &'a State,
        kind: &'a ServedResource,
        subresource: &'static str,
        posted: api::GroupVersionKind,
        name: &'a str,
        options: &WriteOptions,
    ) -> Self {
        Posted {
            state,
            kind,
            subresource,
            posted,
            name,
            operation: Operation::Create,
            options: options.to_value("CreateOptions"),
            dry_run: options.dry_run,
        }
    }
}

impl Posted<'_> {
    fn attributes<'c>(&'c self, call: &'c Call) -> AdmissionAttributes<'c> {
        let subject = AdmissionSubject {
            resource: self.kind,
            subresource: self.subresource,
            kind: self.posted.clone(),
            stored_kind: self.posted.clone(),
            name: self.name,
            old_object: VersionedObject::absent(),
        };
        subject.attributes(call, self.operation, &self.options, self.dry_run)
    }

    /// Runs mutating admission and returns the object, possibly changed.
    pub async fn mutate(&self, call: &mut Call, mut object: Value) -> Result<Value, Status> {
        let mut notes = AdmissionNotes::default();
        let chain = &self.state.admission.chain;
        let outcome = chain.mutate(&self.attributes(call), Some(&mut object), self.state, &mut notes).await;
        concluded(self.state, call, notes, outcome).map(|()| object)
    }

    /// Runs validating admission on the mutated object.
    pub async fn validate(&self, call: &mut Call, object: &Value) -> Result<(), Status> {
        let mut notes = AdmissionNotes::default();
        let chain = &self.state.admission.chain;
        let outcome = chain.validate(&self.attributes(call), Some(object), self.state, &mut notes).await;
        concluded(self.state, call, notes, outcome)
    }

    /// Runs validating admission on a binding or an eviction of the pod with the name in the admission attributes. The proof permits the
    /// writes that the request causes.
    pub async fn validate_for_pod(&self, call: &mut Call, object: &Value) -> Result<AdmittedPost, Status> {
        self.validate(call, object).await?;
        Ok(AdmittedPost {
            namespace: call.info.namespace.clone(),
            pod: self.name.into(),
            is_eviction: self.subresource == "eviction",
            dry_run: self.dry_run,
        })
    }

    /// Runs both admission stages.
    pub async fn admit(&self, call: &mut Call, object: Value) -> Result<Value, Status> {
        let object = self.mutate(call, object).await?;
        self.validate(call, &object).await?;
        Ok(object)
    }
}

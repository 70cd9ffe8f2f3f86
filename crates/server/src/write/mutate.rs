//! The mutate stage: managed fields, mutating admission and the check for privilege escalation.

use admission::{AdmissionAttributes, AdmissionNotes, Operation, VersionedObject};
use api::{GroupVersionKind, Status, meta};
use authz::rbac::escalation::GrantingUser;
use catalog::{ServedResource, Subresource, Working};
use heavy_lane::LARGE;
use kinds::strategy;
use value::{Str, Value};

use super::metadata::dedup_owners;
use super::{Mutated, WriteContext};
use crate::call::Call;
use crate::decode::{Draft, DraftObject};
use crate::ownership::{self, FieldTracking};
use crate::state::State;

/// Comparing one RBAC rule entry costs about as much as processing this many bytes of an object; see
/// [`Effort::enter_lane`](heavy_lane::Effort::enter_lane).
const BYTES_OF_ENTRY: usize = 32;

/// The object that admission is asked about.
pub(super) struct AdmissionSubject<'s, 'o> {
    /// The resource in the request path.
    pub(super) resource: &'s ServedResource,
    pub(super) subresource: &'static str,
    /// The kind in the version of the request.
    pub(super) kind: GroupVersionKind,
    /// The kind that admission receives.
    pub(super) stored_kind: GroupVersionKind,
    pub(super) name: &'s str,
    pub(super) old_object: VersionedObject<'o>,
}

impl<'o> AdmissionSubject<'_, 'o> {
    /// The attributes of an operation of this call.
    pub(super) fn attributes(
        self,
        call: &'o Call,
        operation: Operation,
        options: &'o Value,
        dry_run: bool,
    ) -> AdmissionAttributes<'o> {
        AdmissionAttributes {
            user: call.user(),
            operation,
            kind: self.kind,
            stored_kind: self.stored_kind,
            resource: self.resource.resource.clone(),
            version: self.resource.gvk.version.clone(),
            subresource: Str::new_static(self.subresource),
            namespace: call.info.namespace.clone(),
            name: self.name.into(),
            old_object: self.old_object,
            options,
            dry_run,
            now: call.now,
            deadline: call.deadline,
            budget: call.effort.remaining_budget(),
            snapshot: call.admission_snapshot.clone(),
        }
    }
}

impl WriteContext<'_> {
    fn attributes<'c>(
        &'c self,
        call: &'c Call,
        operation: Operation,
        name: &str,
        old: Option<&'c Value>,
    ) -> AdmissionAttributes<'c> {
        let subject = AdmissionSubject {
            resource: self.kind,
            subresource: self.subresource.name(),
            kind: self.kind.admission_kind(self.subresource),
            stored_kind: self.stored_admission_kind(),
            name,
            old_object: VersionedObject::new(old),
        };
        subject.attributes(call, operation, self.options, self.dry_run)
    }

    /// The kind of the objects that admission receives: `Scale` for the `scale` subresource, otherwise the working kind.
    fn stored_admission_kind(&self) -> api::GroupVersionKind {
        match self.subresource {
            Subresource::Scale => self.kind.admission_kind(self.subresource),
            _ => self.kind.working().clone(),
        }
    }

    /// Runs the mutating admission plugins.
    pub(super) async fn run_mutating(
        &self,
        call: &mut Call,
        operation: Operation,
        name: &str,
        object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let is_new = operation == Operation::Create;
        // The object of a create was charged when it was decoded; that of an apply was not.
        if call.info.verb != "create" {
            call.charge_objects(object.as_deref().into_iter().chain(old))?;
        }
        let mut notes = AdmissionNotes::default();
        if let Some(object) = &object
            && (is_new || self.subresource == Subresource::EphemeralContainers)
        {
            if is_new {
                self.state.catch_up_for_admission(self.kind, &call.info.namespace, object).await?;
            }
            let size = self.state.size_for_admission(self.kind, &call.info.namespace, object);
            call.effort.enter_lane(size).await;
        }
        let attributes = self.attributes(call, operation, name, old);
        let outcome = self.state.admission.chain.mutate(&attributes, object, self.state, &mut notes).await;
        concluded(self.state, call, notes, outcome)
    }

    /// Runs the validating admission plugins.
    pub(super) async fn run_validating(
        &self,
        call: &mut Call,
        operation: Operation,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        // Mutating admission may have enlarged the object.
        call.charge_objects(object.into_iter().chain(old))?;
        let mut notes = AdmissionNotes::default();
        let attributes = self.attributes(call, operation, name, old);
        let outcome = self.state.admission.chain.validate(&attributes, object, self.state, &mut notes).await;
        concluded(self.state, call, notes, outcome)
    }

    /// Tracks managed fields, runs mutating admission and checks for privilege escalation. Without `old` the operation is a create. The
    /// draft must be a `Scale` for the `scale` subresource and an object otherwise.
    pub async fn mutate(
        &self,
        call: &mut Call,
        draft: Draft,
        old: Option<&Working>,
    ) -> Result<Mutated, Status> {
        call.effort.check()?;
        self.enter_lane(call, draft.object()).await;
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let name = if old.is_some() { call.info.name.clone() } else { meta::name(draft.object()).into() };
        let mut object = match draft {
            Draft::Scale(mut scale) => {
                let old = old.ok_or_else(|| Status::not_found(&self.kind.resource, &name))?;
                dedup_owners(call, &mut scale, false);
                let shown = ownership::scale_of(self.kind, old)?;
                if let FieldTracking::Updates(manager) = self.tracking {
                    ownership::track_scale(self.kind, &shown, &mut scale, manager, call.now);
                }
                self.run_mutating(call, operation, &name, Some(&mut scale), Some(&shown)).await?;
                let mut object = self.kind.shapes().apply_scale(&scale, old)?;
                ownership::from_scale(self.kind, old, &scale, &mut object)?;
                object
            }
            Draft::Object(DraftObject { mut object, empty }) => {
                dedup_owners(call, &mut object, false);
                strategy::stamp(self.kind.strategy(), &mut object, &self.state.strategy_context(call));
                if let FieldTracking::Updates(manager) = self.tracking {
                    let written =
                        ownership::TrackedUpdate { old, empty: &empty, manager, effort: &call.effort };
                    ownership::track(self.state, self.kind, self.subresource, written, &mut object, call.now)
                        .await?;
                }
                let managed = ownership::managed_fields(&object);
                self.run_mutating(call, operation, &name, Some(&mut object), old.map(|old| &**old)).await?;
                if let Some(warning) = ownership::restore_invalid_managed_fields(&mut object, managed) {
                    call.warn(warning);
                }
                object
            }
        };
        // Admission may have enlarged the object.
        call.enter_lane(object.size_up_to(LARGE + 1)).await;
        dedup_owners(call, &mut object, true);
        self.check_escalation(call, &object, old.map(|old| &**old)).await?;
        Ok(Mutated { object })
    }

    /// Moves the request to the heavy lane for a custom resource that becomes large with defaults, or whose CRD has rules that compile
    /// regular expressions from the object, even if the request body is small.
    async fn enter_lane(&self, call: &Call, object: &Value) {
        let Some(custom) = self.kind.as_custom() else { return };
        let (compiled, context) = (custom.version.compiled(), self.state.validation_context(call.now));
        let is_work = compiled.compiles_data(context.bounds());
        call.effort.enter_lane(if is_work { usize::MAX } else { compiled.size_with_defaults(object) }).await;
    }

    /// Refuses roles and bindings that grant permissions the caller does not have: see [`authz::rbac::escalation`].
    async fn check_escalation(&self, call: &Call, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        // A custom resource grants no permissions, even if its group and kind have the names of RBAC's.
        let row = self.kind.row().filter(|row| row.group == api::groups::RBAC);
        let Some(row) = row else { return Ok(()) };
        self.state.authorization.roles.catch_up(&self.state.storage.store).await?;
        let chain = self.state.authorization.chain_for(call.caller());
        let user = GrantingUser {
            chain: &chain,
            index: &self.state.authorization.rbac,
            user: call.user(),
            namespace: &call.info.namespace,
            requested_name: &call.info.name,
        };
        // A small binding may refer to a large role.
        call.effort.enter_lane(user.entries(new).saturating_mul(BYTES_OF_ENTRY)).await;
        match row.plural {
            "roles" | "clusterroles" => user.check_role(old, new).await,
            _ => user.check_binding(old, new).await,
        }
    }
}

/// Records the notes of an admission phase and returns its outcome. Fails if objects that admission depends on cannot be read.
pub(super) fn concluded(
    state: &State,
    call: &mut Call,
    notes: AdmissionNotes,
    outcome: Result<(), Status>,
) -> Result<(), Status> {
    call.note(notes);
    state.admission_is_informed(&call.info.namespace)?;
    outcome
}

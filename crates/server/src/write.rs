//! The write path: mutate, prepare, validate, admit, store.
//!
//! `Draft` → [`Mutated`] → [`Admitted`] → [`WriteOutcome`]: only the previous stage can construct each type, so a write that skips a stage
//! does not compile. Deletions, bindings and evictions have proof types of their own ([`admitted`]). This is the only file that commits to
//! the store (a tidy check enforces that), both for client requests and for writes of this process.

use std::sync::Arc;

use admission::{AdmissionAttributes, AdmissionNotes, Operation, VersionedObject};
use api::{FieldError, FieldErrors, GroupResource, Status, meta};
use authz::rbac::escalation;
use crd::ValidationFindings;
use kinds::strategy;
use storage::{Change, CommitError, Expect, Record, Store, StoredEntry, Write, WritePriority};
use value::{Budget, Path, Str, Value, json};

pub mod admitted;
mod metadata;
mod posted;

pub use admitted::{Admitted, AdmittedDelete, AdmittedPost, MarkProof, Marked, Mutated};
pub use metadata::place;
pub(crate) use metadata::remove_server_metadata;
pub use posted::Posted;

use metadata::{copy_meta, dedup_owners};

use crate::addresses::Held;
use crate::admission::param_access;
use crate::call::Call;
use crate::catalog::{ServedResource, Subresource, Working};
use crate::decode::{Decoded, Draft};
use crate::device_access;
use crate::encode;
use crate::ownership::{self, Writer};
use crate::signer_access;
use crate::state::State;
use crate::unreadable::Concern;

/// Context of one write, shared by all stages.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    pub state: &'a State,
    pub kind: &'a ServedResource,
    pub subresource: Subresource,
    /// The write options in the shape that admission sees.
    pub options: &'a Value,
    pub dry_run: bool,
    /// Decides whether the write is recorded in `metadata.managedFields`.
    pub writer: Writer<'a>,
}

/// Result of a successful write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The stored entry; the old one if the update changed nothing.
    Entry(Arc<StoredEntry>),
    /// The object that would be stored, for a dry run.
    DryRun(Working),
}

/// Comparing one RBAC rule entry costs about as much as processing this many bytes of an object; see
/// [`Effort::enter_lane`](crate::heavy::Effort::enter_lane).
pub const BYTES_OF_ENTRY: usize = 32;

#[derive(Debug)]
pub enum StoreError {
    /// Another write changed or created the object first.
    Conflict,
    Refused(Status),
}

impl Subject<'_> {
    fn attributes<'c>(
        &'c self,
        call: &'c Call,
        operation: Operation,
        name: &str,
        old: Option<&'c Value>,
    ) -> AdmissionAttributes<'c> {
        AdmissionAttributes {
            user: call.user(),
            operation,
            kind: self.kind.admission_kind(self.subresource),
            stored_kind: self.stored_admission_kind(),
            resource: self.kind.resource.clone(),
            version: self.kind.gvk.version.clone(),
            subresource: Str::new_static(self.subresource.name()),
            namespace: call.info.namespace.clone(),
            name: name.into(),
            old_object: VersionedObject::new(old),
            options: self.options,
            dry_run: self.dry_run,
            now: call.now,
            deadline: call.deadline,
            snapshot: call.admission_snapshot.clone(),
        }
    }

    /// The kind of the objects that admission receives: `Scale` for the `scale` subresource, otherwise the working kind.
    fn stored_admission_kind(&self) -> api::GroupVersionKind {
        match self.subresource {
            Subresource::Scale => self.kind.admission_kind(self.subresource),
            _ => self.kind.working().clone(),
        }
    }

    /// Runs the mutating admission plugins. Fails if objects that admission depends on cannot be read.
    async fn run_mutating(
        &self,
        call: &mut Call,
        operation: Operation,
        name: &str,
        object: Option<&mut Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let mut notes = AdmissionNotes::default();
        let attributes = self.attributes(call, operation, name, old);
        let outcome = self.state.admission.chain.mutate(&attributes, object, self.state, &mut notes).await;
        call.note(notes);
        self.state.admission_is_informed(&call.info.namespace)?;
        outcome
    }

    /// Runs the validating admission plugins. Fails if objects that admission depends on cannot be read.
    async fn run_validating(
        &self,
        call: &mut Call,
        operation: Operation,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let mut notes = AdmissionNotes::default();
        let attributes = self.attributes(call, operation, name, old);
        let outcome = self.state.admission.chain.validate(&attributes, object, self.state, &mut notes).await;
        call.note(notes);
        self.state.admission_is_informed(&call.info.namespace)?;
        outcome
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
                if let Writer::Updates(manager) = self.writer {
                    ownership::track_scale(self.kind, &shown, &mut scale, manager, call.now);
                }
                self.run_mutating(call, operation, &name, Some(&mut scale), Some(&shown)).await?;
                let mut object = self.kind.apply_scale(&scale, old)?;
                ownership::from_scale(self.kind, old, &scale, &mut object)?;
                object
            }
            Draft::Object(Decoded { mut object, empty }) => {
                dedup_owners(call, &mut object, false);
                strategy::stamp(self.kind.strategy(), &mut object, &self.state.strategy_context(call));
                if let Writer::Updates(manager) = self.writer {
                    let written = ownership::Written { old, empty: &empty, manager };
                    ownership::track(self.state, self.kind, self.subresource, written, &mut object, call.now)
                        .await;
                }
                let managed = ownership::managed_fields(&object);
                self.run_mutating(call, operation, &name, Some(&mut object), old.map(|old| &**old)).await?;
                if let Some(warning) = ownership::mend(&mut object, managed) {
                    call.warn(warning);
                }
                object
            }
        };
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
        let row = self.kind.row().filter(|row| row.group == authz::rbac::GROUP);
        let Some(row) = row else { return Ok(()) };
        let chain = self.state.authorization.chain_for(call.caller());
        let (user, index, namespace) =
            (call.user(), &*self.state.authorization.rbac, call.info.namespace.as_str());
        // A small binding may refer to a large role.
        let entries = escalation::entries(index, user, namespace, new);
        call.effort.enter_lane(entries.saturating_mul(BYTES_OF_ENTRY)).await;
        match row.plural {
            "roles" | "clusterroles" => {
                escalation::check_role(&chain, index, user, namespace, old, new).await
            }
            _ => escalation::check_binding(&chain, index, user, namespace, old, new).await,
        }
    }

    /// Sets the server-owned metadata of a new object, allocates service addresses, validates the object and runs validating admission.
    pub async fn admit_create(&self, call: &mut Call, mutated: Mutated) -> Result<Admitted, Status> {
        let Mutated { mut object } = mutated;
        // The caller was authorized for the request's namespace only, so mutation must not move the object to another one.
        place(&mut object, if self.kind.namespaced { &call.info.namespace } else { "" })?;
        remove_server_metadata(&mut object);
        meta::set(&mut object, "uid", crate::random::uid());
        meta::set(&mut object, "creationTimestamp", api::time::Timestamp::from_seconds(call.now).time());
        let base = meta::text(&object, "generateName").to_owned();
        if meta::name(&object).is_empty() && !base.is_empty() {
            let base: String = base.chars().take(crate::random::MAX_BASE).collect();
            meta::set(&mut object, "name", format!("{base}{}", crate::random::suffix()));
        }
        let held = self.allocate(&mut object, None)?;
        self.kind.prepare_create(&mut object, &self.state.strategy_context(call));
        device_access::drop_admin(self.state, self.kind, &mut object, None);
        let mut context = self.state.validation_context(call.now);
        context.version = call.info.version.clone();
        let validate = |budget: &Budget| {
            context.budget = budget.clone();
            self.kind.validate_create(&object, &context)
        };
        let ValidationFindings { mut errors, warnings } = call.effort.spend(validate).await;
        call.effort.check()?;
        if errors.is_empty() {
            errors = api::validation::meta::create(
                &object,
                self.kind.namespaced,
                api::validation::meta::path_segment,
            );
        }
        let name = meta::name(&object).to_owned();
        if errors.is_empty() {
            errors.extend(self.check_params(call, &object, None).await);
        }
        let mut all = device_access::check_admin(self.state, call, self.kind, &object, None);
        if !all.is_empty() && !self.dry_run {
            self.state.metrics.admin_access(&self.kind.stored.kind, false);
        }
        all.extend(errors);
        refuse_invalid(self, &object, &name, &all)?;
        for warning in warnings {
            call.warn(warning);
        }
        strategy::canonicalize(self.kind.strategy(), &mut object);
        self.run_validating(call, Operation::Create, &name, Some(&object), None).await?;
        // kube-apiserver makes this check in its storage layer, which skips it for dry runs and for updates that create.
        if call.info.verb == "create" && !self.dry_run && !meta::resource_version(&object).is_empty() {
            return Err(Status::plain("resourceVersion should not be set on objects to be created"));
        }
        Ok(Admitted { object, expect: Expect::Absent, held })
    }

    /// Turns a mutated object into the successor of `old`: copies server-owned metadata, validates the object and runs validating
    /// admission.
    pub async fn admit_update(
        &self,
        call: &mut Call,
        mutated: Mutated,
        old: &StoredEntry,
        old_object: &Working,
    ) -> Result<Admitted, Status> {
        let Mutated { mut object } = mutated;
        let name = call.info.name.clone();
        // Strategies and validation compare the new object with the stored one, so remove from both the fields that are written even when
        // empty.
        let mut before = old_object.clone();
        self.kind.normalise(&mut before);
        let before = &before;
        self.kind.normalise(&mut object);
        self.check_revision(&mut object, old, &name)?;
        let held = self.allocate(&mut object, Some(old_object))?;
        copy_meta(&mut object, old_object, "generation");
        let context = self.state.strategy_context(call);
        self.kind.prepare_update(self.subresource, &mut object, before, &context);
        device_access::drop_admin(self.state, self.kind, &mut object, Some(before));
        if meta::uid(&object).is_empty() {
            copy_meta(&mut object, old_object, "uid");
        }
        copy_meta(&mut object, old_object, "creationTimestamp");
        if meta::is_deleting(old_object) {
            copy_meta(&mut object, old_object, "deletionTimestamp");
        }
        if object.at(&["metadata", "deletionGracePeriodSeconds"]).is_none() {
            copy_meta(&mut object, old_object, "deletionGracePeriodSeconds");
        }
        let mut context = self.state.validation_context(call.now);
        context.version = call.info.version.clone();
        let mut errors = api::validation::meta::update_any(&object, before, self.kind.namespaced);
        if self.subresource == Subresource::Status {
            errors.extend(device_access::check_admin(self.state, call, self.kind, &object, Some(before)));
            errors.extend(device_access::check_status(self.state, call, self.kind, &object, before).await);
        }
        let validate = |budget: &Budget| {
            context.budget = budget.clone();
            self.kind.validate_update(self.subresource, &object, before, &context)
        };
        let found = call.effort.spend(validate).await;
        call.effort.check()?;
        errors.extend(found.errors);
        if errors.is_empty() && self.subresource == Subresource::None {
            errors.extend(self.check_params(call, &object, Some(before)).await);
        }
        if errors.is_empty() && self.subresource == Subresource::Status {
            errors.extend(signer_access::check_status(self.state, call, self.kind, &object, before).await);
        }
        refuse_invalid(self, &object, &name, &errors)?;
        for warning in found.warnings {
            call.warn(warning);
        }
        strategy::canonicalize(self.kind.strategy(), &mut object);
        ownership::drop_times(&mut object, before);
        if self.subresource == Subresource::Scale {
            let (new, old) = (
                self.kind.view(Subresource::Scale, &object)?,
                self.kind.view(Subresource::Scale, old_object)?,
            );
            self.run_validating(call, Operation::Update, &name, Some(&new), Some(&old)).await?;
        } else {
            self.run_validating(call, Operation::Update, &name, Some(&object), Some(before)).await?;
        }
        Ok(Admitted { object, expect: Expect::Revision(old.revision), held })
    }

    /// Requires that a client that writes an admission policy or a binding can read its parameter objects.
    async fn check_params(&self, call: &Call, new: &Value, old: Option<&Value>) -> Option<FieldError> {
        if *call.caller().via() == authn::AuthenticationMethod::Internal {
            return None;
        }
        param_access::check(self.state, call.user(), &self.kind.built_in_kind(), new, old).await
    }

    /// Requires the stored `resourceVersion` in an update, or none where the kind allows unconditional updates.
    fn check_revision(&self, object: &mut Value, old: &StoredEntry, name: &str) -> Result<(), Status> {
        let sent = meta::resource_version(object);
        let sent_revision = match sent {
            "" => 0,
            text => text.parse::<u64>().map_err(|_| {
                let quoted = api::field::quote(text);
                Status::plain(format!("strconv.ParseUint: parsing {quoted}: invalid syntax"))
            })?,
        };
        if sent_revision == 0 {
            if !self.kind.allows_unconditional_update() {
                let kind = api::GroupKind::new(
                    self.kind.resource.group.clone(),
                    self.kind.resource.resource.clone(),
                );
                let path = Path::root().field("metadata").field("resourceVersion");
                let error = FieldError::invalid(&path, 0, "must be specified for an update");
                return Err(Status::invalid(&kind, name, &[error]));
            }
            meta::set(object, "resourceVersion", old.revision.to_string());
        } else if sent_revision != old.revision {
            return Err(Status::conflict(&self.kind.resource, name, OPTIMISTIC_LOCK));
        }
        Ok(())
    }

    /// Runs both admission stages for the deletion of `old`, the object in `entry`. `name` goes into the admission attributes.
    pub async fn admit_delete(
        &self,
        call: &mut Call,
        name: &str,
        entry: &StoredEntry,
        old: &Working,
    ) -> Result<AdmittedDelete, Status> {
        self.run_mutating(call, Operation::Delete, name, None, Some(old)).await?;
        self.run_validating(call, Operation::Delete, name, None, Some(old)).await?;
        Ok(AdmittedDelete::of(entry))
    }

    /// Stores an admitted object. `old` is the entry that it replaces: an update that changes nothing is not written.
    pub async fn store(
        &self,
        call: &Call,
        admitted: Admitted,
        old: Option<&Arc<StoredEntry>>,
    ) -> Result<WriteOutcome, StoreError> {
        let Admitted { mut object, expect, held } = admitted;
        if self.is_service() && object.str_at(&["spec", "type"]) == Some("ExternalName") {
            // The field is validated but not stored for this type.
            object.remove_at(&["spec", "internalTrafficPolicy"]);
        }
        self.kind.fill_working(&mut object);
        let name = meta::name(&object).to_owned();
        let mut record = self.record(&object).await?;
        let fits = record.as_ref().is_ok_and(|record| record.size() <= self.state.storage.store.max_record());
        if !fits && matches!(self.writer, Writer::Updates(_)) {
            // Drop managed fields rather than refuse an object that fits without them.
            ownership::forget(&mut object);
            record = self.record(&object).await?;
        }
        let record = record.map_err(refuse_depth)?;
        if let Some(old) = old
            && old.record() == record
        {
            return Ok(if self.dry_run {
                WriteOutcome::DryRun(self.reread(object).await?)
            } else {
                WriteOutcome::Entry(Arc::clone(old))
            });
        }
        let key = self.kind.key(&call.info.namespace, &name);
        if self.dry_run {
            if expect == Expect::Absent && self.state.storage.store.get(&key).is_some() {
                return Err(StoreError::Conflict);
            }
            return Ok(WriteOutcome::DryRun(self.reread(object).await?));
        }
        let priority = self.priority(call, &object, expect);
        let write = Write { key: key.into(), expect, change: Change::Put(record), priority };
        let entry = self
            .commit(call, write, &name, move || {
                if let Some(held) = held {
                    held.keep();
                }
            })
            .await?;
        // Count created objects, not updates of their status.
        if expect == Expect::Absent && device_access::asks_admin(self.kind, &object) {
            self.state.metrics.admin_access(&self.kind.stored.kind, true);
        }
        Ok(WriteOutcome::Entry(entry))
    }

    /// Encodes an object for the store. Fails if it nests deeper than [`json::MAX_DEPTH`], the limit of every reader: managed fields nest
    /// deeper than the object they describe, and admission, defaults and conversion may add levels to the request body.
    async fn record(&self, object: &Working) -> Result<Result<Record, TooDeep>, StoreError> {
        let converter = self.kind.converter(self.state);
        let stored = converter.to_storage(object).await.map_err(StoreError::Refused)?;
        if stored.depth() > json::MAX_DEPTH {
            return Ok(Err(TooDeep));
        }
        Ok(Ok(self.kind.record(&stored)))
    }

    /// The object that a dry run returns.
    async fn reread(&self, object: Working) -> Result<Working, StoreError> {
        self.kind.converter(self.state).reread(object).await.map_err(StoreError::Refused)
    }

    /// Allocates the cluster IPs and node ports of a Service; `None` for other kinds.
    fn allocate(&self, object: &mut Value, old: Option<&Value>) -> Result<Option<Held>, Status> {
        if !self.is_service() || !matches!(self.subresource, Subresource::None) {
            return Ok(None);
        }
        // An unreadable Service may own addresses, which must not be allocated twice.
        self.state.storage.unreadable.check(&Concern::Addresses)?;
        Ok(Some(self.state.storage.addresses.allocate(object, old, self.dry_run)?))
    }

    fn is_service(&self) -> bool {
        self.kind.is_built_in("", "Service")
    }

    /// Deletes the object at `old`; a dry run deletes nothing. The handler waits until the deletion is in force, at the revision of the
    /// returned entry ([`State::in_force`]), because one request may delete many objects.
    pub async fn delete(
        &self,
        call: &Call,
        admitted: AdmittedDelete,
        old: &Arc<StoredEntry>,
        name: &str,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        if !admitted.is_for(old) {
            return Err(StoreError::Conflict);
        }
        if self.dry_run {
            return Ok(Arc::clone(old));
        }
        let expect = Expect::Revision(old.revision);
        let service = if self.is_service() { encode::tree(old).ok() } else { None };
        let addresses = self.state.storage.addresses.clone();
        // A deletion does not need free space.
        let priority = WritePriority::Ordinary;
        let write = Write { key: Arc::clone(&old.key), expect, change: Change::Delete, priority };
        self.write(call, write, name, move || {
            if let Some(service) = service {
                addresses.release(&service);
            }
        })
        .await
    }

    /// Replaces the object at `old` by one that differs only in fields that the server sets. They are not validated; the request that
    /// caused them was admitted.
    pub async fn store_mark(
        &self,
        call: &Call,
        proof: MarkProof<'_>,
        old: &Arc<StoredEntry>,
        object: &Working,
        name: &str,
    ) -> Result<Marked, StoreError> {
        if matches!(proof, MarkProof::Delete(admitted) if !admitted.is_for(old)) {
            return Err(StoreError::Conflict);
        }
        let over = old.revision;
        if self.dry_run {
            return Ok(Marked { outcome: WriteOutcome::DryRun(object.clone()), over });
        }
        let record = match self.record(object).await? {
            Ok(record) => record,
            Err(TooDeep) => {
                let mut object = object.clone();
                ownership::forget(&mut object);
                self.record(&object).await?.map_err(refuse_depth)?
            }
        };
        let expect = Expect::Revision(old.revision);
        let priority = self.priority(call, object, expect);
        let write = Write { key: Arc::clone(&old.key), expect, change: Change::Put(record), priority };
        let outcome = WriteOutcome::Entry(self.commit(call, write, name, || {}).await?);
        Ok(Marked { outcome, over })
    }

    /// Priority of a write when the store is full. Writes of this process continue. So do client writes that free space or keep the cluster
    /// running: writes of deletions and evictions, updates of objects that are being deleted, and renewals of existing leases.
    fn priority(&self, call: &Call, object: &Value, expect: Expect) -> WritePriority {
        let is_lease = self.kind.is_built_in("coordination.k8s.io", "Lease");
        let ends = meta::is_deleting(object)
            || matches!(call.info.verb.as_str(), "delete" | "deletecollection")
            || call.info.subresource == "eviction";
        if *call.caller().via() == authn::AuthenticationMethod::Internal {
            WritePriority::System
        } else if expect != Expect::Absent && (ends || is_lease) {
            WritePriority::Essential
        } else {
            WritePriority::Ordinary
        }
    }

    /// Commits and waits until the write is in force.
    async fn commit(
        &self,
        call: &Call,
        write: Write,
        name: &str,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        let entry = self.write(call, write, name, then).await?;
        self.state.in_force(self.kind, entry.revision).await;
        Ok(entry)
    }

    /// Commits and then runs `then`, in a task of its own: if the client disconnects after the commit, `then` must still run.
    async fn write(
        &self,
        call: &Call,
        write: Write,
        name: &str,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<StoredEntry>, StoreError> {
        call.effort.begin_write(call.deadline).map_err(StoreError::Refused)?;
        let store = self.state.storage.store.clone();
        let committed = tokio::spawn(async move {
            let outcome = store.commit(write).await;
            if outcome.is_ok() {
                then();
            }
            outcome
        });
        match committed.await {
            Ok(Ok(committed)) => Ok(committed.entry),
            Ok(Err(CommitError::Conflict { .. })) => Err(StoreError::Conflict),
            Ok(Err(e)) => Err(StoreError::Refused(commit_status(&e, &self.kind.resource, name))),
            Err(_) => Err(StoreError::Refused(Status::internal("the store stopped"))),
        }
    }
}

/// Deletes a key from a store that no server uses and returns the former entry, if any. There is no admission: this is how an unreadable
/// object is removed. See [`crate::offline`].
pub(crate) async fn remove_offline(
    store: &Store,
    key: &str,
) -> Result<Option<Arc<StoredEntry>>, CommitError> {
    let Some(entry) = store.get(key) else { return Ok(None) };
    let (expect, change, priority) = (Expect::Any, Change::Delete, WritePriority::System);
    let write = Write { key: Arc::clone(&entry.key), expect, change, priority };
    store.commit(write).await.map(|_| Some(entry))
}

/// An object nests deeper than [`json::MAX_DEPTH`].
struct TooDeep;

fn refuse_depth(_: TooDeep) -> StoreError {
    StoreError::Refused(Status::bad_request("the object cannot be stored: exceeded max depth"))
}

/// kube-apiserver's message for a conflict of `resourceVersion`.
pub const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn commit_status(error: &CommitError, resource: &GroupResource, name: &str) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::conflict(resource, name, OPTIMISTIC_LOCK),
        CommitError::TooLarge { limit, .. } => Status::too_large(format!("limit is {limit}")),
        CommitError::Invalid(why) => Status::bad_request(why.clone()),
        // Begins with etcd's message, which clients and operators recognize, and adds the remedy.
        CommitError::OverQuota { live, quota } => Status::plain(format!(
            "etcdserver: mvcc: database space exceeded: the store holds {live} bytes of objects and its quota is {quota}; delete objects or raise --quota-backend-bytes"
        )),
        CommitError::Unavailable(_) | CommitError::Closed => {
            tracing::error!(error = %error, %resource, name, "a write could not be stored");
            Status::internal("the store cannot write; nothing was changed")
        }
    }
}

/// Upper limit of errors in one response, so that its size does not depend on the number of mistakes.
const MAX_ERRORS: usize = 500;

/// Upper limit of bytes of errors in one response; the first error is included whatever its length.
const MAX_TOLD: usize = 1 << 20;

/// Truncates errors to [`MAX_ERRORS`] and [`MAX_TOLD`].
fn told(errors: &FieldErrors) -> &[FieldError] {
    let mut bytes = 0;
    let fits = |error: &&FieldError| {
        let has_room = bytes <= MAX_TOLD;
        bytes += error.body().len();
        has_room
    };
    let count = errors.iter().take(MAX_ERRORS).take_while(fits).count();
    errors.get(..count).unwrap_or_default()
}

fn refuse_invalid(
    subject: &Subject<'_>,
    object: &Value,
    name: &str,
    errors: &FieldErrors,
) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let shown = told(errors);
    if subject.kind.row().is_none() {
        // Use the group and kind that the object names: they may be wrong, which is then one of the errors.
        return Err(Status::invalid_with_repeats(&meta::gvk(object).group_kind(), name, shown));
    }
    let kind = subject.kind.stored.group_kind();
    // CRD validation reports duplicate errors as often as kube-apiserver does.
    if kind.group == "apiextensions.k8s.io" {
        return Err(Status::invalid_with_repeats(&kind, name, shown));
    }
    Err(Status::invalid(&kind, name, shown))
}

//! The write path: mutate, prepare, validate, admit, store.
//!
//! `Draft` → [`Mutated`] → [`Admitted`] → [`WriteOutcome`]: each is made only by the stage before it, so nothing is stored that skipped one.
//! Deletions, bindings and evictions have proofs of their own ([`admitted`]). This is the only file that commits to the store (a tidy
//! check holds it to that), for requests of clients and of this process alike.

use std::sync::Arc;

use admission::{AdmissionNotes, Attributes, Operation, VersionedObject};
use api::{FieldError, FieldErrors, GroupResource, Status, meta};
use authz::rbac::escalation;
use crd::Found;
use kinds::strategy;
use storage::{Change, CommitError, Entry, Expect, Record, Store, Write, WritePriority};
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

/// What a write is about, the same for every stage.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The server.
    pub state: &'a State,
    /// The kind.
    pub kind: &'a ServedResource,
    /// Which face of the object the request goes through.
    pub subresource: Subresource,
    /// The options, as admission sees them.
    pub options: &'a Value,
    /// Nothing is stored.
    pub dry_run: bool,
    /// In whose name.
    pub writer: Writer<'a>,
}

/// What came of a write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// It is in the store.
    Entry(Arc<Entry>),
    /// A dry run: the object that would be stored.
    DryRun(Working),
}

/// An entry of a rule is as much work to compare as so many bytes of other objects.
pub const BYTES_OF_ENTRY: usize = 32;

/// Why a stored object is not the one that the write was made for.
#[derive(Debug)]
pub enum StoreError {
    /// Another write came first.
    Conflict,
    /// Anything else.
    Refused(Status),
}

impl Subject<'_> {
    fn attributes<'c>(
        &'c self,
        call: &'c Call,
        operation: Operation,
        name: &str,
        old: Option<&'c Value>,
    ) -> Attributes<'c> {
        Attributes {
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

    /// The kind in whose shape admission gets the object: through `scale` it is a `Scale`.
    fn stored_admission_kind(&self) -> api::GroupVersionKind {
        match self.subresource {
            Subresource::Scale => self.kind.admission_kind(self.subresource),
            _ => self.kind.working().clone(),
        }
    }

    /// The mutating stage of the chain.
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

    /// The validating stage of the chain.
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

    /// The mutating stage. The draft is of the shape that the subresource has.
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

    /// A small custom resource is much work, too, if defaults made it large or the rules of its CRD take regular expressions from
    /// it.
    async fn enter_lane(&self, call: &Call, object: &Value) {
        let Some(custom) = self.kind.as_custom() else { return };
        let (compiled, context) = (custom.version.compiled(), self.state.validation_context(call.now));
        let is_work = compiled.compiles_data(context.bounds());
        call.effort.enter_lane(if is_work { usize::MAX } else { compiled.size_with_defaults(object) }).await;
    }

    /// Nobody hands out rights that they do not have: see [`authz::rbac::escalation`].
    async fn check_escalation(&self, call: &Call, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        // A custom resource hands out nothing, whatever its group and kind are called.
        let row = self.kind.row().filter(|row| row.group == authz::rbac::GROUP);
        let Some(row) = row else { return Ok(()) };
        let chain = self.state.authorization.chain_for(call.caller());
        let (user, index, namespace) =
            (call.user(), &*self.state.authorization.rbac, call.info.namespace.as_str());
        // A small binding may be to a large role.
        let entries = escalation::entries(index, user, namespace, new);
        call.effort.enter_lane(entries.saturating_mul(BYTES_OF_ENTRY)).await;
        match row.plural {
            "roles" | "clusterroles" => {
                escalation::check_role(&chain, index, user, namespace, meta::name(new), old, new).await
            }
            _ => escalation::check_binding(&chain, index, user, namespace, old, new).await,
        }
    }

    /// Makes a mutated object a new one, validates it and runs the validating stage.
    pub async fn admit_create(&self, call: &mut Call, mutated: Mutated) -> Result<Admitted, Status> {
        let Mutated { mut object } = mutated;
        // Mutation may have moved it to where the caller was never asked about.
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
        let Found { mut errors, warnings } = call.effort.spend(validate).await;
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
        // Only what is stored has a revision to give. An update that creates is not asked.
        if call.info.verb == "create" && !self.dry_run && !meta::resource_version(&object).is_empty() {
            return Err(Status::plain("resourceVersion should not be set on objects to be created"));
        }
        Ok(Admitted { object, expect: Expect::Absent, held })
    }

    /// Makes a mutated object the successor of `old`, validates it and runs the validating stage.
    pub async fn admit_update(
        &self,
        call: &mut Call,
        mutated: Mutated,
        old: &Entry,
        old_object: &Working,
    ) -> Result<Admitted, Status> {
        let Mutated { mut object } = mutated;
        let name = call.info.name.clone();
        // Strategies and rules compare what was sent with what is stored, so both must be without the fields that are only
        // written out.
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

    /// Whoever writes a policy or a binding must be able to read its parameters.
    async fn check_params(&self, call: &Call, new: &Value, old: Option<&Value>) -> Option<FieldError> {
        if *call.caller().via() == authn::Via::Internal {
            return None;
        }
        param_access::check(self.state, call.user(), &self.kind.built_in_kind(), new, old).await
    }

    /// The revision in an update must be the one that is stored, or absent where the kind allows that.
    fn check_revision(&self, object: &mut Value, old: &Entry, name: &str) -> Result<(), Status> {
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

    /// Both stages of the deletion of `old`, which is the object of `entry`. `name` is what admission sees.
    pub async fn admit_delete(
        &self,
        call: &mut Call,
        name: &str,
        entry: &Entry,
        old: &Working,
    ) -> Result<AdmittedDelete, Status> {
        self.run_mutating(call, Operation::Delete, name, None, Some(old)).await?;
        self.run_validating(call, Operation::Delete, name, None, Some(old)).await?;
        Ok(AdmittedDelete::of(entry))
    }

    /// Stores what was admitted. `old` is the entry it replaces: an update that changes nothing is not written.
    pub async fn store(
        &self,
        call: &Call,
        admitted: Admitted,
        old: Option<&Arc<Entry>>,
    ) -> Result<WriteOutcome, StoreError> {
        let Admitted { mut object, expect, held } = admitted;
        if self.is_service() && object.str_at(&["spec", "type"]) == Some("ExternalName") {
            // It is judged, and nobody sees it afterwards.
            object.remove_at(&["spec", "internalTrafficPolicy"]);
        }
        self.kind.fill_working(&mut object);
        let name = meta::name(&object).to_owned();
        let mut record = self.record(&object).await?;
        let fits = record.as_ref().is_ok_and(|record| record.size() <= self.state.storage.store.max_record());
        if !fits && matches!(self.writer, Writer::Updates(_)) {
            // Who owns what may be forgotten rather than refuse an object that fits without it.
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
        // Objects are counted, not the writes of their status.
        if expect == Expect::Absent && device_access::asks_admin(self.kind, &object) {
            self.state.metrics.admin_access(&self.kind.stored.kind, true);
        }
        Ok(WriteOutcome::Entry(entry))
    }

    /// What is stored for an object as it was worked on, unless it nests deeper than anybody reads: managed fields nest deeper
    /// than what they are about, and admission, defaults and conversion may add to what was sent.
    async fn record(&self, object: &Working) -> Result<Result<Record, TooDeep>, StoreError> {
        let converter = self.kind.converter(self.state);
        let stored = converter.to_storage(object).await.map_err(StoreError::Refused)?;
        if stored.depth() > json::MAX_DEPTH {
            return Ok(Err(TooDeep));
        }
        Ok(Ok(self.kind.record(&stored)))
    }

    /// The object of a dry run.
    async fn reread(&self, object: Working) -> Result<Working, StoreError> {
        self.kind.converter(self.state).reread(object).await.map_err(StoreError::Refused)
    }

    /// Gives a service the addresses and ports it asks for.
    fn allocate(&self, object: &mut Value, old: Option<&Value>) -> Result<Option<Held>, Status> {
        if !self.is_service() || !matches!(self.subresource, Subresource::None) {
            return Ok(None);
        }
        // What a service that cannot be read has must not be handed out again.
        self.state.storage.unreadable.check(&Concern::Addresses)?;
        Ok(Some(self.state.storage.addresses.allocate(object, old, self.dry_run)?))
    }

    fn is_service(&self) -> bool {
        self.kind.is_built_in("", "Service")
    }

    /// Deletes the object at `old`. A dry run deletes nothing. The handler waits until the deletion is in force, at the revision of the entry
    /// that is returned ([`State::in_force`]): one request may delete many objects.
    pub async fn delete(
        &self,
        call: &Call,
        admitted: AdmittedDelete,
        old: &Arc<Entry>,
        name: &str,
    ) -> Result<Arc<Entry>, StoreError> {
        if !admitted.is_for(old) {
            return Err(StoreError::Conflict);
        }
        if self.dry_run {
            return Ok(Arc::clone(old));
        }
        let expect = Expect::Revision(old.revision);
        let service = if self.is_service() { encode::tree(old).ok() } else { None };
        let addresses = self.state.storage.addresses.clone();
        // A deletion needs no room.
        let priority = WritePriority::Ordinary;
        let write = Write { key: Arc::clone(&old.key), expect, change: Change::Delete, priority };
        self.write(call, write, name, move || {
            if let Some(service) = service {
                addresses.release(&service);
            }
        })
        .await
    }

    /// Replaces the object at `old` by one that differs only in marks of the server's own. They are not validated; the request that
    /// caused them was admitted.
    pub async fn store_mark(
        &self,
        call: &Call,
        proof: MarkProof<'_>,
        old: &Arc<Entry>,
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

    /// What a write may use when the store is full. The server's own writes go on, and so do those by which others free space
    /// or keep the cluster running: of objects that are being deleted, deletions and evictions, and of leases that are there.
    fn priority(&self, call: &Call, object: &Value, expect: Expect) -> WritePriority {
        let is_lease = self.kind.is_built_in("coordination.k8s.io", "Lease");
        let ends = meta::is_deleting(object)
            || matches!(call.info.verb.as_str(), "delete" | "deletecollection")
            || call.info.subresource == "eviction";
        if *call.caller().via() == authn::Via::Internal {
            WritePriority::System
        } else if expect != Expect::Absent && (ends || is_lease) {
            WritePriority::Essential
        } else {
            WritePriority::Ordinary
        }
    }

    /// Commits, and waits until what was written is in force.
    async fn commit(
        &self,
        call: &Call,
        write: Write,
        name: &str,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<Entry>, StoreError> {
        let entry = self.write(call, write, name, then).await?;
        self.state.in_force(self.kind, entry.revision).await;
        Ok(entry)
    }

    /// Commits, and does what follows from it, even if the client goes away meanwhile: the write may have happened, and then
    /// its consequences must, too.
    async fn write(
        &self,
        call: &Call,
        write: Write,
        name: &str,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Arc<Entry>, StoreError> {
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

/// Removes a key from a store that no server uses, whatever is stored there; what was there comes back, or nothing if nothing was.
/// Nobody is asked: this is how an object goes that cannot be read. See [`crate::offline`].
pub(crate) async fn remove_offline(store: &Store, key: &str) -> Result<Option<Arc<Entry>>, CommitError> {
    let Some(entry) = store.get(key) else { return Ok(None) };
    let (expect, change, priority) = (Expect::Any, Change::Delete, WritePriority::System);
    let write = Write { key: Arc::clone(&entry.key), expect, change, priority };
    store.commit(write).await.map(|_| Some(entry))
}

/// An object nests deeper than what the server reads.
struct TooDeep;

fn refuse_depth(_: TooDeep) -> StoreError {
    StoreError::Refused(Status::bad_request("the object cannot be stored: exceeded max depth"))
}

/// What an optimistic write that lost is told.
pub const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn commit_status(error: &CommitError, resource: &GroupResource, name: &str) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::conflict(resource, name, OPTIMISTIC_LOCK),
        CommitError::TooLarge { limit, .. } => Status::too_large(format!("limit is {limit}")),
        CommitError::Invalid(why) => Status::bad_request(why.clone()),
        // The words by which clients and operators know it from etcd, and what to do about it.
        CommitError::OverQuota { live, quota } => Status::plain(format!(
            "etcdserver: mvcc: database space exceeded: the store holds {live} bytes of objects and its quota is {quota}; delete objects or raise --quota-backend-bytes"
        )),
        CommitError::Unavailable(_) | CommitError::Closed => {
            tracing::error!(error = %error, %resource, name, "a write could not be stored");
            Status::internal("the store cannot write; nothing was changed")
        }
    }
}

/// More than anybody reads; an answer must not grow with what is wrong.
const MAX_ERRORS: usize = 500;

/// How many bytes of errors are told; the first is told whatever its length.
const MAX_TOLD: usize = 1 << 20;

/// The errors that are told, as far as anybody reads them.
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
        // What a custom resource says it is may be what is wrong with it.
        return Err(Status::invalid_with_repeats(&meta::gvk(object).group_kind(), name, shown));
    }
    let kind = subject.kind.stored.group_kind();
    // The rules for CRDs find each thing as often as Kubernetes does.
    if kind.group == "apiextensions.k8s.io" {
        return Err(Status::invalid_with_repeats(&kind, name, shown));
    }
    Err(Status::invalid(&kind, name, shown))
}

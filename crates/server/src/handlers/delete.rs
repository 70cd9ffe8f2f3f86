//! DELETE of an object or a collection: preconditions, grace periods, finalizers and propagation.

mod step;

use std::sync::Arc;

use api::{GroupResource, GroupVersionKind, Status, StatusDetails, meta};
use authn::AuthenticationMethod;
use storage::StoredEntry;
use value::Value;

use super::list::{self, SelectedPage};
use crate::call::{Call, HandlerResponse};
use crate::consistent_reads::BaseEntry;
use crate::decode;
use crate::ownership::FieldTracking;
use crate::state::State;
use crate::write::{
    AdmittedDelete, CONFLICT_ATTEMPTS, MarkProof, OPTIMISTIC_LOCK, StoreError, WriteContext, WriteOutcome,
};

use catalog::encode;
use catalog::keys;
use catalog::{ServedResource, Subresource, Working};
use requests::negotiate::{self, BodyMedia};
use requests::options::DeleteOptions;
use step::{DeletionStep, next_step};

pub async fn delete_object(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let options = options(call).await?;
    let name = call.info.name.to_string();
    warn_of_orphans(call, kind, &options);
    if options.unreadable {
        return Err(refuse_readable(state, call, kind, &name));
    }
    let (deleted, answer) =
        delete(state, call, kind, (&name, &name), &options, DeleteProgress::Nothing).await?;
    state.in_force(kind, call.deleted_at).await;
    let code = if !deleted && options.orphan_dependents == Some(false) { 202 } else { 200 };
    Ok(match answer {
        HandlerResponse::Entry(_, entry) => {
            return state.converter(kind).answer(Subresource::None, code, entry).await;
        }
        HandlerResponse::Object(_, object) => HandlerResponse::Object(code, object),
        raw => raw,
    })
}

/// Warns that deleting a Job keeps its pods by default.
fn warn_of_orphans(call: &mut Call, kind: &ServedResource, options: &DeleteOptions) {
    let is_job = kind.is_built_in("batch", "Job");
    if is_job && options.propagation_policy.is_none() && options.orphan_dependents.is_none() {
        call.warn(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
        );
    }
}

/// Refuses the option to delete an unreadable object: this server deletes such objects only offline, see [`catalog::unreadable`]. The
/// message is kube-apiserver's for a readable object.
fn refuse_readable(state: &State, call: &Call, kind: &ServedResource, name: &str) -> Status {
    let key = kind.key(&call.info.namespace, name);
    if state.storage.store.get(&key).is_none() {
        return Status::not_found(&kind.resource, name);
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: unsafe deletion is not allowed because the object is decodable from storage"
    );
    Status::conflict(&kind.resource, name, why)
}

/// Deletes all matching objects one by one and answers with their list. With `limit`, deletes and lists only one page.
pub async fn collection(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let page = list::select(state, call, kind).await?;
    let options = options(call).await?.for_collection()?;
    warn_of_orphans(call, kind, &options);
    let deleted = each(state, call, kind, &options, &page).await;
    // Wait once for all deletions: every wait makes another snapshot of the remaining objects.
    state.in_force(kind, call.deleted_at).await;
    deleted?;
    list::answer(state, call, kind, page).await
}

/// Deletes the objects of a page one by one and stops at the first error other than 404.
async fn each(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    options: &DeleteOptions,
    page: &SelectedPage,
) -> Result<(), Status> {
    call.enter_lane_for_all(&page.entries).await;
    for some in list::chunks(&page.entries) {
        // Convert the chunk in one call of the webhook.
        let converted = match kind.as_custom() {
            Some(_) => state.converter(kind).load_all(some).await?.into_iter().map(Some).collect(),
            None => vec![None; some.len()],
        };
        for (entry, object) in some.iter().zip(converted) {
            let name = keys::name(&entry.key).to_owned();
            let mut scoped = call.info.namespace.clone();
            if kind.namespaced && scoped.is_empty() {
                // Only internal requests may delete in all namespaces at once.
                if *call.caller().via() != AuthenticationMethod::Internal {
                    return Err(Status::bad_request("Namespace parameter required."));
                }
                scoped = kind.namespace_of(&entry.key).into();
            }
            let progress =
                object.map_or(DeleteProgress::Nothing, |object| DeleteProgress::Read(entry.revision, object));
            let previous = std::mem::replace(&mut call.info.namespace, scoped);
            let outcome = delete(state, call, kind, (&name, ""), options, progress).await;
            call.info.namespace = previous;
            // A dry run, and the deletion of an object that is being deleted, wait for nothing else.
            heavy_lane::yield_after(entry.body.len()).await;
            match outcome {
                Err(status) if status.code() != 404 => return Err(status),
                _ => {}
            }
        }
    }
    Ok(())
}

async fn options(call: &mut Call) -> Result<DeleteOptions, Status> {
    let body = call.read_body().await?;
    if body.is_empty() {
        return DeleteOptions::from_query(&call.query);
    }
    let media = negotiate::body_media(&call.headers)?;
    let tree =
        decode::tree(&body, media, Some(&GroupVersionKind::new("", "v1", "DeleteOptions"))).map_err(|e| {
            match media {
                BodyMedia::Protobuf => Status::bad_request(e),
                BodyMedia::Json | BodyMedia::Yaml => {
                    Status::bad_request(format!("couldn't get version/kind; {e}"))
                }
            }
        })?;
    if !matches!(tree.value, Value::Map(_) | Value::Null) {
        return Err(Status::bad_request(decode::no_object(&tree.value)));
    }
    let kind = tree.value.str_at(&["kind"]).unwrap_or("DeleteOptions");
    if kind != "DeleteOptions" {
        let version = tree.value.str_at(&["apiVersion"]).unwrap_or_default();
        return Err(Status::bad_request(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"",
            api::field::quote(kind),
            api::field::quote(version)
        )));
    }
    let mut value = tree.value;
    if let Some(schema) = schema::of("", "v1", "DeleteOptions") {
        let outcome = schema::decode::normalize(&mut value, schema);
        if let Some(error) = outcome.type_error(&tree.json) {
            return Err(Status::bad_request(error));
        }
    }
    let options = DeleteOptions::from_body(&value)?;
    if call.audit_record().wants_request() {
        // kube-apiserver records them in its internal version.
        value.set_at(&["kind"], "DeleteOptions");
        value.set_at(&["apiVersion"], "meta.k8s.io/__internal");
        call.audit_record().request_object(&value);
    }
    Ok(options)
}

/// State of an object that the caller of [`delete`] already knows.
pub enum DeleteProgress {
    /// The object is not loaded yet.
    Nothing,
    /// The object as loaded at this revision.
    Read(u64, Working),
    /// Its deletion has been admitted by [`admit`].
    Admitted(AdmittedDelete),
}

/// Runs admission for the deletion of `old`, the object in `entry`, before any write. `None` if there is no work to do because the object
/// is being deleted already.
pub async fn admit(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    entry: &StoredEntry,
    old: &Working,
    options: &DeleteOptions,
) -> Result<Option<AdmittedDelete>, Status> {
    if next_step(kind, old, options, call.now).is_none() {
        return Ok(None);
    }
    let options_value = options.to_value();
    let context = write_context(state, kind, options, &options_value);
    context.admit_delete(call, meta::name(old), entry, old).await.map(Some)
}

fn write_context<'a>(
    state: &'a State,
    kind: &'a ServedResource,
    options: &DeleteOptions,
    options_value: &'a Value,
) -> WriteContext<'a> {
    WriteContext {
        state,
        kind,
        subresource: Subresource::None,
        options: options_value,
        dry_run: options.dry_run,
        tracking: FieldTracking::Settled,
    }
}

/// Deletes an object or marks it for deletion; returns whether it is gone. `admitted_as` is the name in the admission attributes, which is
/// empty for deletions of a collection.
pub async fn delete(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    (name, admitted_as): (&str, &str),
    options: &DeleteOptions,
    mut progress: DeleteProgress,
) -> Result<(bool, HandlerResponse), Status> {
    let key = kind.key(&call.info.namespace, name);
    let options_value = options.to_value();
    let context = write_context(state, kind, options, &options_value);
    let mut base = BaseEntry::for_write(&state.storage.store, &key, options.dry_run).await?;
    for _ in 0..CONFLICT_ATTEMPTS {
        call.effort.begin_attempt(call.deadline)?;
        let attempted = match base.entry() {
            None => Err(StoreError::Refused(Status::not_found(&kind.resource, name))),
            Some(entry) => attempt(&context, call, (name, admitted_as), options, &mut progress, &entry).await,
        };
        match attempted {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {
                let entry = base.entry();
                if let Some(entry) = entry
                    && !base.has_changed().await?
                {
                    return Ok((false, HandlerResponse::Entry(200, entry)));
                }
            }
            Err(StoreError::Refused(status)) => {
                if !base.has_changed().await? {
                    return Err(status);
                }
            }
            Err(StoreError::Failed(status)) => return Err(status),
            Err(StoreError::Conflict) => base.reread(),
        }
    }
    Err(Status::conflict(&kind.resource, name, OPTIMISTIC_LOCK))
}

/// Deletes the object at `entry` or marks it for deletion; `None` if there is nothing to do, because it is marked already.
async fn attempt(
    context: &WriteContext<'_>,
    call: &mut Call,
    (name, admitted_as): (&str, &str),
    options: &DeleteOptions,
    progress: &mut DeleteProgress,
    entry: &Arc<StoredEntry>,
) -> Result<Option<(bool, HandlerResponse)>, StoreError> {
    let &WriteContext { state, kind, .. } = context;
    call.enter_lane(entry.body.len()).await;
    let (read, admitted) = match std::mem::replace(progress, DeleteProgress::Nothing) {
        DeleteProgress::Read(revision, object) if revision == entry.revision => (Some(object), None),
        DeleteProgress::Admitted(admitted) if admitted.is_for(entry) => (None, Some(admitted)),
        _ => (None, None),
    };
    let old = match read {
        Some(object) => object,
        None => state.converter(kind).load(entry).await.map_err(StoreError::Refused)?,
    };
    check_preconditions(kind, name, &old, options).map_err(StoreError::Refused)?;
    let Some(step) = next_step(kind, &old, options, call.now) else { return Ok(None) };
    let admitted = match admitted {
        Some(admitted) => admitted,
        None => context.admit_delete(call, admitted_as, entry, &old).await.map_err(StoreError::Refused)?,
    };
    let target = DeletionTarget { name, entry, old: &old };
    target.execute(context, call, step, admitted).await.map(Some)
}

/// An object at the revision for which its deletion was admitted.
#[derive(Clone, Copy)]
struct DeletionTarget<'a> {
    name: &'a str,
    entry: &'a Arc<StoredEntry>,
    old: &'a Working,
}

impl DeletionTarget<'_> {
    /// Executes a step of the deletion. Returns whether the object is gone, and the response.
    async fn execute(
        self,
        context: &WriteContext<'_>,
        call: &mut Call,
        step: DeletionStep,
        admitted: AdmittedDelete,
    ) -> Result<(bool, HandlerResponse), StoreError> {
        match step {
            DeletionStep::Remove => self.remove(context, call, admitted, self.entry).await,
            DeletionStep::MarkAndRemove(object) => {
                self.mark_and_remove(context, call, &object, admitted).await
            }
            DeletionStep::Mark(object) => {
                let proof = MarkProof::Delete(&admitted);
                let marked = context.store_mark(call, proof, self.entry, &object, self.name).await?;
                Ok((false, marked_response(context.kind, marked.outcome)))
            }
        }
    }

    /// Deletes the object at `entry`.
    async fn remove(
        self,
        context: &WriteContext<'_>,
        call: &mut Call,
        admitted: AdmittedDelete,
        entry: &Arc<StoredEntry>,
    ) -> Result<(bool, HandlerResponse), StoreError> {
        let last = context.delete(call, admitted, entry, self.name).await?;
        call.deleted_at = last.revision;
        Ok((true, deleted_response(context.kind, self.name, self.old, last)))
    }

    async fn mark_and_remove(
        self,
        context: &WriteContext<'_>,
        call: &mut Call,
        object: &Working,
        admitted: AdmittedDelete,
    ) -> Result<(bool, HandlerResponse), StoreError> {
        let proof = MarkProof::Delete(&admitted);
        let marked = context.store_mark(call, proof, self.entry, object, self.name).await?;
        let admitted = marked.carry(admitted);
        let entry = match marked.outcome {
            WriteOutcome::Entry(entry) => entry,
            dry_run @ WriteOutcome::DryRun(_) => return Ok((true, marked_response(context.kind, dry_run))),
        };
        let removed = match admitted {
            Some(admitted) => self.remove(context, call, admitted, &entry).await,
            None => Err(StoreError::Conflict),
        };
        match removed {
            // A client that saw the mark completed the deletion first. The object is gone, as requested, and this is its last state.
            Err(StoreError::Conflict) if is_gone(context.state, &self.entry.key, self.old) => {
                Ok((true, deleted_response(context.kind, self.name, self.old, entry)))
            }
            removed => removed,
        }
    }
}

fn marked_response(kind: &ServedResource, outcome: WriteOutcome) -> HandlerResponse {
    match outcome {
        WriteOutcome::Entry(entry) => HandlerResponse::Entry(200, entry),
        WriteOutcome::DryRun(object) => {
            HandlerResponse::Object(200, kind.shapes().to_sent(object).into_value())
        }
    }
}

/// Reports whether the object is gone; another object may have its name.
fn is_gone(state: &State, key: &str, old: &Value) -> bool {
    let there = state.storage.store.get(key).and_then(|entry| encode::tree(&entry).ok());
    there.is_none_or(|there| meta::uid(&there) != meta::uid(old))
}

fn deleted_response(
    kind: &ServedResource,
    name: &str,
    old: &Value,
    last: Arc<StoredEntry>,
) -> HandlerResponse {
    if kind.returns_deleted() {
        return HandlerResponse::Entry(200, last);
    }
    let status = Status::success(StatusDetails {
        name: name.to_owned(),
        group: kind.resource.group.clone(),
        kind: kind.resource.resource.clone(),
        uid: meta::uid(old).to_owned(),
        ..StatusDetails::default()
    });
    HandlerResponse::Object(200, status.to_value())
}

fn check_preconditions(
    kind: &ServedResource,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), Status> {
    let is_namespace = kind.is_built_in("", "Namespace");
    // kube-apiserver puts the kind here where other messages have the resource.
    let about = if is_namespace {
        kind.resource.clone()
    } else {
        GroupResource::new(kind.stored.group.clone(), kind.stored.kind.clone())
    };
    let (uid, version) = (meta::uid(old), meta::resource_version(old));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = if is_namespace {
            format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}")
        } else {
            format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            )
        };
        return Err(Status::conflict(&about, name, why));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = if is_namespace {
            format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
            )
        } else {
            format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            )
        };
        return Err(Status::conflict(&about, name, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

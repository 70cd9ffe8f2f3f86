//! DELETE of an object or a collection: preconditions, grace periods, finalizers and propagation.

use std::sync::Arc;

use api::time::Timestamp;
use api::{GroupResource, GroupVersionKind, Status, StatusDetails, meta};
use authn::AuthenticationMethod;
use crd::names;
use kinds::strategy::{self, Propagation};
use storage::StoredEntry;
use value::Value;

use super::list::{self, Page};
use crate::call::{Answer, Call};
use crate::catalog::{ServedResource, Subresource, Working};
use crate::decode;
use crate::encode;
use crate::negotiate::{self, BodyMedia};
use crate::options::DeleteOptions;
use crate::ownership::Writer;
use crate::state::State;
use crate::write::{AdmittedDelete, MarkProof, OPTIMISTIC_LOCK, StoreError, Subject, WriteOutcome};

/// Longest grace period in seconds: a century. Clients must be able to parse the deletion timestamp.
const MAX_GRACE: i64 = 100 * 365 * 24 * 3600;

/// Number of objects of a collection that are loaded together.
const CHUNK: usize = 500;

/// Maximum number of attempts when other writes conflict with the deletion.
const ATTEMPTS: usize = 16;

/// Finalizer of an owner while the garbage collector orphans its dependents.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// Finalizer of an owner while the garbage collector deletes its dependents first.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

pub async fn one(state: &State, call: &mut Call, kind: &ServedResource) -> Result<Answer, Status> {
    let options = options(call).await?;
    let name = call.info.name.to_string();
    warn_of_orphans(call, kind, &options);
    if options.unreadable {
        return Err(refuse_readable(state, call, kind, &name));
    }
    let (deleted, answer) = delete(state, call, kind, (&name, &name), &options, Known::Nothing).await?;
    state.in_force(kind, call.deleted_at).await;
    let code = if !deleted && options.orphan_dependents == Some(false) { 202 } else { 200 };
    Ok(match answer {
        Answer::Entry(_, entry) => return kind.converter(state).answer(Subresource::None, code, entry).await,
        Answer::Object(_, object) => Answer::Object(code, object),
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

/// Refuses the option to delete an unreadable object: this server deletes such objects only offline, see [`crate::unreadable`]. The message
/// is kube-apiserver's for a readable object.
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

/// Deletes all matching objects one by one and answers with their list. A limit applies to both.
pub async fn collection(state: &State, call: &mut Call, kind: &ServedResource) -> Result<Answer, Status> {
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
    page: &Page,
) -> Result<(), Status> {
    for some in page.entries.chunks(CHUNK) {
        if kind.as_custom().is_some() {
            call.enter_lane(some.iter().map(|entry| entry.body.len()).sum()).await;
        }
        // Convert the chunk in one call of the webhook.
        let converted = match kind.as_custom() {
            Some(_) => kind.converter(state).load_all(some).await?.into_iter().map(Some).collect(),
            None => vec![None; some.len()],
        };
        for (entry, object) in some.iter().zip(converted) {
            let name = entry.key.rsplit('/').next().unwrap_or_default().to_owned();
            let mut scoped = call.info.namespace.clone();
            if kind.namespaced && scoped.is_empty() {
                // Only internal requests may delete in all namespaces at once.
                if *call.caller().via() != AuthenticationMethod::Internal {
                    return Err(Status::bad_request("Namespace parameter required."));
                }
                scoped = kind.namespace_of(&entry.key).into();
            }
            let known = object.map_or(Known::Nothing, |object| Known::Read(entry.revision, object));
            let previous = std::mem::replace(&mut call.info.namespace, scoped);
            let outcome = delete(state, call, kind, (&name, ""), options, known).await;
            call.info.namespace = previous;
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
        let outcome = schema::decode::normalise(&mut value, schema);
        if let Some(error) = outcome.type_error(&tree.json) {
            return Err(Status::bad_request(error));
        }
    }
    let options = DeleteOptions::from_body(&value)?;
    if call.record().wants_request() {
        // kube-apiserver records them in its internal version.
        value.set_at(&["kind"], "DeleteOptions");
        value.set_at(&["apiVersion"], "meta.k8s.io/__internal");
        call.record().request_object(&value);
    }
    Ok(options)
}

/// State of an object that the caller of [`delete`] already knows.
pub enum Known {
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
    if matches!(next_step(kind, old, options, call.now), Step::Pending) {
        return Ok(None);
    }
    let options_value = options.to_value();
    let subject = subject(state, kind, options, &options_value);
    subject.admit_delete(call, meta::name(old), entry, old).await.map(Some)
}

fn subject<'a>(
    state: &'a State,
    kind: &'a ServedResource,
    options: &DeleteOptions,
    options_value: &'a Value,
) -> Subject<'a> {
    Subject {
        state,
        kind,
        subresource: Subresource::None,
        options: options_value,
        dry_run: options.dry_run,
        writer: Writer::Settled,
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
    mut known: Known,
) -> Result<(bool, Answer), Status> {
    let key = kind.key(&call.info.namespace, name);
    let options_value = options.to_value();
    let subject = subject(state, kind, options, &options_value);
    for _ in 0..ATTEMPTS {
        let Some(entry) = state.storage.store.get(&key) else {
            return Err(Status::not_found(&kind.resource, name));
        };
        call.enter_lane(entry.body.len()).await;
        let (read, admitted) = match std::mem::replace(&mut known, Known::Nothing) {
            Known::Read(revision, object) if revision == entry.revision => (Some(object), None),
            Known::Admitted(admitted) if admitted.is_for(&entry) => (None, Some(admitted)),
            _ => (None, None),
        };
        let old = match read {
            Some(object) => object,
            None => kind.converter(state).load(&entry).await?,
        };
        check_preconditions(kind, name, &old, options)?;
        let step = match next_step(kind, &old, options, call.now) {
            Step::Pending => return Ok((false, Answer::Entry(200, entry))),
            step => step,
        };
        let admitted = match admitted {
            Some(admitted) => admitted,
            None => subject.admit_delete(call, admitted_as, &entry, &old).await?,
        };
        let outcome = match step {
            Step::Pending => return Ok((false, Answer::Entry(200, entry))),
            Step::Gone => subject.delete(call, admitted, &entry, name).await.map(|last| {
                call.deleted_at = last.revision;
                (true, gone(kind, name, &old, last))
            }),
            Step::MarkedGone(object) => {
                let marked =
                    subject.store_mark(call, MarkProof::Delete(&admitted), &entry, &object, name).await;
                match marked.map(|marked| (marked.carry(admitted), marked.outcome)) {
                    Ok((_, WriteOutcome::DryRun(object))) => {
                        Ok((true, Answer::Object(200, kind.to_sent(object).into_value())))
                    }
                    Ok((admitted, WriteOutcome::Entry(marked))) => {
                        let deleted = match admitted {
                            Some(admitted) => subject.delete(call, admitted, &marked, name).await,
                            None => Err(StoreError::Conflict),
                        };
                        match deleted {
                            // A client that saw the mark completed the deletion first. The object is gone, as requested, and this is its
                            // last state.
                            Err(StoreError::Conflict) if is_gone(state, &key, &old) => {
                                Ok((true, gone(kind, name, &old, marked)))
                            }
                            deleted => deleted.map(|last| {
                                call.deleted_at = last.revision;
                                (true, gone(kind, name, &old, last))
                            }),
                        }
                    }
                    Err(error) => Err(error),
                }
            }
            Step::Marked(object) => {
                let marked =
                    subject.store_mark(call, MarkProof::Delete(&admitted), &entry, &object, name).await;
                marked.map(|marked| match marked.outcome {
                    WriteOutcome::Entry(entry) => (false, Answer::Entry(200, entry)),
                    WriteOutcome::DryRun(object) => {
                        (false, Answer::Object(200, kind.to_sent(object).into_value()))
                    }
                })
            }
        };
        match outcome {
            Ok(done) => return Ok(done),
            Err(StoreError::Refused(status)) => return Err(status),
            Err(StoreError::Conflict) => {}
        }
    }
    Err(Status::conflict(&kind.resource, name, OPTIMISTIC_LOCK))
}

/// Reports whether the object is gone; another object may have its name.
fn is_gone(state: &State, key: &str, old: &Value) -> bool {
    let there = state.storage.store.get(key).and_then(|entry| encode::tree(&entry).ok());
    there.is_none_or(|there| meta::uid(&there) != meta::uid(old))
}

fn gone(kind: &ServedResource, name: &str, old: &Value, last: Arc<StoredEntry>) -> Answer {
    if kind.returns_deleted() {
        return Answer::Entry(200, last);
    }
    let status = Status::success(StatusDetails {
        name: name.to_owned(),
        group: kind.resource.group.clone(),
        kind: kind.resource.resource.clone(),
        uid: meta::uid(old).to_owned(),
        ..StatusDetails::default()
    });
    Answer::Object(200, status.to_value())
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

/// The next step in the deletion of an object.
enum Step {
    /// Wait: the object is being deleted already.
    Pending,
    /// Delete the object at once.
    Gone,
    /// Mark the object with a grace period of zero, so that watches see it, and then delete it.
    MarkedGone(Working),
    /// Mark the object; it is deleted when its grace period and finalizers are done.
    Marked(Working),
}

fn next_step(kind: &ServedResource, old: &Working, options: &DeleteOptions, now: i64) -> Step {
    if kind.is_built_in("", "Namespace") {
        return namespace_step(old, options, now);
    }
    if kind.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") && !meta::is_deleting(old) {
        return crd_step(old, now);
    }
    let requested = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s.min(MAX_GRACE) });
    let deleting = meta::is_deleting(old);
    let current_grace = old.int_at(&["metadata", "deletionGracePeriodSeconds"]);
    let mut marked = old.clone();
    let mut graceful = false;
    let mut timed = false;
    let grace = strategy::check_graceful_delete(kind.strategy(), old, requested);
    if let Some(grace) = grace.map(|g| g.clamp(0, MAX_GRACE)) {
        if deleting {
            let current = current_grace.unwrap_or(0);
            if current != 0 {
                // A grace period can be shortened but not extended.
                match requested {
                    Some(wanted) if wanted < current => {
                        let begun = seconds(old).unwrap_or(now);
                        let mut at = begun.saturating_sub(current).saturating_add(wanted);
                        let mut period = wanted;
                        if at < now {
                            at = now;
                            period = i64::from(wanted != 0);
                        }
                        meta::set(&mut marked, "deletionTimestamp", stamp(at));
                        meta::set(&mut marked, "deletionGracePeriodSeconds", period);
                        graceful = period > 0;
                        timed = true;
                    }
                    _ => return Step::Pending,
                }
            }
        } else {
            meta::set(&mut marked, "deletionTimestamp", stamp(now + grace));
            meta::set(&mut marked, "deletionGracePeriodSeconds", grace);
            bump_generation(&mut marked);
            graceful = grace > 0;
            timed = true;
        }
    }
    set_propagation_finalizers(kind, &mut marked, options);
    let pending_finalizers = meta::finalizers(&marked).next().is_some();
    if graceful {
        return Step::Marked(marked);
    }
    if !pending_finalizers {
        return if timed { Step::MarkedGone(marked) } else { Step::Gone };
    }
    if !meta::is_deleting(&marked) {
        bump_generation(&mut marked);
    }
    let later = seconds(&marked).is_none_or(|at| at > now);
    if later {
        meta::set(&mut marked, "deletionTimestamp", stamp(now));
    }
    meta::set(&mut marked, "deletionGracePeriodSeconds", 0);
    if marked == *old { Step::Pending } else { Step::Marked(marked) }
}

/// Sets the phase `Terminating`; the namespace controller then deletes the content and removes the finalizers.
fn namespace_step(old: &Working, options: &DeleteOptions, now: i64) -> Step {
    if !meta::is_deleting(old) {
        let mut marked = old.clone();
        meta::set(&mut marked, "deletionTimestamp", stamp(now));
        marked.set_at(&["status", "phase"], "Terminating");
        let policy = options.propagation_policy.as_deref();
        let has = |f: &str| meta::finalizers(old).any(|o| o == f);
        let orphan = match (options.orphan_dependents, policy) {
            (Some(orphan), _) => orphan,
            (None, Some(policy)) => policy == "Orphan",
            (None, None) => has(ORPHAN_FINALIZER),
        };
        let foreground = match (options.orphan_dependents, policy) {
            (Some(_), _) => false,
            (None, Some(policy)) => policy == "Foreground",
            (None, None) => has(FOREGROUND_FINALIZER),
        };
        replace_finalizers(&mut marked, orphan, foreground);
        return Step::Marked(marked);
    }
    if !old.list_at(&["spec", "finalizers"]).is_empty() || meta::finalizers(old).next().is_some() {
        return Step::Pending;
    }
    Step::Gone
}

/// Adds the cleanup finalizer: a CRD stays until its objects are deleted, see [`crate::crd_controller`].
fn crd_step(old: &Working, now: i64) -> Step {
    let mut marked = old.clone();
    meta::set(&mut marked, "deletionTimestamp", stamp(now));
    let mut finalizers: Vec<Value> = meta::finalizers(old).map(Value::from).collect();
    if !meta::finalizers(old).any(|finalizer| finalizer == names::CLEANUP) {
        finalizers.push(names::CLEANUP.into());
    }
    meta::set(&mut marked, "finalizers", Value::List(finalizers));
    let mut status = marked.get("status").cloned().unwrap_or_default();
    let pending = (
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
    names::set(&mut status, "Terminating", pending, &stamp(now));
    marked.set_at(&["status"], status);
    Step::Marked(marked)
}

/// The deletion timestamp in seconds since the Unix epoch.
fn seconds(object: &Value) -> Option<i64> {
    Timestamp::parse(meta::text(object, "deletionTimestamp")).ok().map(|t| t.seconds)
}

fn stamp(seconds: i64) -> String {
    Timestamp::from_seconds(seconds).time()
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object.int_at(&["metadata", "generation"]).filter(|g| *g > 0) {
        meta::set(object, "generation", generation.saturating_add(1));
    }
}

/// Sets the garbage collector's finalizers from the options, or else the object's finalizers, or else the kind's default.
fn set_propagation_finalizers(kind: &ServedResource, object: &mut Value, options: &DeleteOptions) {
    let default = strategy::default_propagation(kind.strategy());
    let has = |f: &str| meta::finalizers(object).any(|o| o == f);
    let policy = options.propagation_policy.as_deref();
    let (orphan, foreground) = match (default, options.orphan_dependents, policy) {
        (Propagation::Unsupported, ..) => (false, false),
        (_, Some(orphan), _) => (orphan, false),
        (_, None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
        (default, None, None) => {
            let first =
                meta::finalizers(object).find(|f| matches!(*f, ORPHAN_FINALIZER | FOREGROUND_FINALIZER));
            match first {
                Some(ORPHAN_FINALIZER) => (true, false),
                Some(_) => (false, true),
                None => (default == Propagation::Orphan, false),
            }
        }
    };
    if has(ORPHAN_FINALIZER) != orphan || has(FOREGROUND_FINALIZER) != foreground {
        replace_finalizers(object, orphan, foreground);
    }
}

fn replace_finalizers(object: &mut Value, orphan: bool, foreground: bool) {
    let mut finalizers: Vec<Value> = meta::finalizers(object)
        .filter(|f| !matches!(*f, ORPHAN_FINALIZER | FOREGROUND_FINALIZER))
        .map(Value::from)
        .collect();
    if orphan {
        finalizers.push(ORPHAN_FINALIZER.into());
    }
    if foreground {
        finalizers.push(FOREGROUND_FINALIZER.into());
    }
    if finalizers.is_empty() {
        object.remove_at(&["metadata", "finalizers"]);
    } else {
        meta::set(object, "finalizers", Value::List(finalizers));
    }
}

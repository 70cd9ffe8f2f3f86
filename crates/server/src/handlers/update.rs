//! Handlers of PUT and PATCH: change an object in a compare-and-swap loop.

use std::sync::Arc;

use api::{Status, meta};
use bytes::Bytes;
use catalog::{ServedResource, Subresource, Working, WriteRules};
use requests::negotiate;
use requests::options::{FieldValidation, WriteOptions};
use schema::patch;
use storage::StoredEntry;
use value::Value;

use super::create;
use crate::call::{Call, HandlerResponse};
use crate::consistent_reads::BaseEntry;
use crate::decode::{self, Draft};
use crate::ownership::{self, FieldTracking};
use crate::state::State;
use crate::write::{
    Admitted, CONFLICT_ATTEMPTS, OPTIMISTIC_LOCK, StoreError, WriteContext, WriteOutcome, set_namespace,
};

/// Patch types for built-in resources.
const PATCH_TYPES: &[&str] = &[JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH];
/// Patch types for custom resources: strategic merge needs the merge keys of built-in types.
const CUSTOM_PATCH_TYPES: &[&str] = &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH];
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";
/// Server-side apply; the configuration may be JSON, which is valid YAML.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Origin of the new object.
enum UpdateSource {
    /// A PUT: the object, or a `Scale`.
    Object(Draft),
    /// A patch of the stored object: its type and body.
    Patch(&'static str, Bytes),
    /// A server-side apply: the configuration and the strict decoder's message. The object need not exist.
    Configuration(Value, Option<String>),
}

pub async fn put(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    subresource: Subresource,
) -> Result<HandlerResponse, Status> {
    let options = WriteOptions::parse("UpdateOptions", &call.query)?;
    let mut draft = match subresource {
        Subresource::Scale => decode::scale(call, kind, options.field_validation).await?,
        _ => Draft::Object(decode::object(call, kind, options.field_validation).await?),
    };
    set_namespace(draft.object_mut(), if kind.namespaced { &call.info.namespace } else { "" })?;
    check_name(call, draft.object())?;
    change(state, call, kind, subresource, &options, UpdateSource::Object(draft)).await
}

pub async fn patch(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    subresource: Subresource,
) -> Result<HandlerResponse, Status> {
    let sent = negotiate::content_type(&call.headers);
    let served = if kind.row().is_some() { PATCH_TYPES } else { CUSTOM_PATCH_TYPES };
    let Some(patch_type) = served.iter().find(|t| **t == sent) else {
        return Err(match kind.row() {
            Some(_) => Status::no_such_media_type(),
            None => Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]),
        });
    };
    let body = call.read_body().await?;
    if *patch_type == APPLY_PATCH {
        let options = WriteOptions::parse_apply(&call.query)?;
        let (config, strict) = decode::configuration(&body)?;
        call.audit_record().request_patch(&config);
        return change(state, call, kind, subresource, &options, UpdateSource::Configuration(config, strict))
            .await;
    }
    let options = WriteOptions::parse("PatchOptions", &call.query)?;
    if call.audit_record().wants_request()
        && let Ok(patch) = value::json::parse(&body)
    {
        call.audit_record().request_patch(&patch);
    }
    change(state, call, kind, subresource, &options, UpdateSource::Patch(patch_type, body)).await
}

async fn change(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    subresource: Subresource,
    options: &WriteOptions,
    source: UpdateSource,
) -> Result<HandlerResponse, Status> {
    let name = call.info.name.clone();
    let key = kind.key(&call.info.namespace, &name);
    let options_value = options.to_value("UpdateOptions");
    let manager = ownership::manager(&options.field_manager, &call.headers).into_owned();
    let tracking = match source {
        UpdateSource::Configuration(..) => FieldTracking::Settled,
        UpdateSource::Object(_) | UpdateSource::Patch(..) => FieldTracking::Updates(&manager),
    };
    let context = WriteContext {
        state,
        kind,
        subresource,
        options: &options_value,
        dry_run: options.dry_run,
        tracking,
    };
    let mut base = BaseEntry::for_write(&state.storage.store, &key, options.dry_run).await?;
    for _ in 0..CONFLICT_ATTEMPTS {
        call.effort.begin_attempt(call.deadline)?;
        let attempted = match base.entry() {
            None if base.has_changed().await? => continue,
            None => create_missing(&context, call, options, &source, &key).await.map(Attempt::Done),
            Some(old) => attempt(&context, call, options, &source, &old).await,
        };
        match attempted {
            Ok(Attempt::Done(response)) => return Ok(response),
            Ok(Attempt::Conflict) => base.reread(),
            Ok(Attempt::FinalConflict) => break,
            Ok(Attempt::Failed(status)) => return Err(status),
            Ok(Attempt::Unchanged(entry)) => {
                if !base.has_changed().await? {
                    return state.converter(kind).answer(subresource, 200, entry).await;
                }
            }
            Err(status) => {
                if base.entry().is_none() && status.reason() == "AlreadyExists" {
                    // Another write created the object first.
                    base.reread();
                    if base.entry().is_some() {
                        continue;
                    }
                }
                if !base.has_changed().await? {
                    return Err(status);
                }
            }
        }
    }
    Err(Status::conflict(&kind.resource, &name, OPTIMISTIC_LOCK))
}

/// The result of one attempt to change an object.
#[expect(clippy::large_enum_variant, reason = "a request has one at a time, on its stack")]
enum Attempt {
    Done(HandlerResponse),
    /// The object is already as requested.
    Unchanged(Arc<StoredEntry>),
    /// Another write changed the object first.
    Conflict,
    /// Like `Conflict`, for a request that names the revision it changes.
    FinalConflict,
    /// The store failed, and the object may have changed because of this request.
    Failed(Status),
}

/// Changes the object at `old`.
async fn attempt(
    context: &WriteContext<'_>,
    call: &mut Call,
    options: &WriteOptions,
    source: &UpdateSource,
    old: &Arc<StoredEntry>,
) -> Result<Attempt, Status> {
    let &WriteContext { state, kind, subresource, .. } = context;
    call.enter_lane(old.body.len()).await;
    call.effort.check()?;
    let old_object = state.converter(kind).load(old).await?;
    check_uid(kind, old, &old_object, source, options.dry_run)?;
    let new = new_object(context, call, options, source, &old_object).await?;
    let sent = meta::resource_version(new.object());
    let names_revision =
        !sent.is_empty() && (matches!(source, UpdateSource::Object(_)) || sent != old.revision.to_string());
    let mutated = context.mutate(call, new, Some(&old_object)).await?;
    let admitted = context.admit_update(call, mutated, old, &old_object).await?;
    match store_or_delete(context, call, admitted, old, &old_object).await {
        Ok(WriteOutcome::Entry(entry)) if Arc::ptr_eq(&entry, old) => Ok(Attempt::Unchanged(entry)),
        Ok(WriteOutcome::Entry(entry)) => {
            state.converter(kind).answer(subresource, 200, entry).await.map(Attempt::Done)
        }
        Ok(WriteOutcome::DryRun(object)) => {
            let object = kind.shapes().answer_object(subresource, object)?;
            Ok(Attempt::Done(HandlerResponse::Object(200, object.into_value())))
        }
        Err(StoreError::Refused(status)) => Err(status),
        Err(StoreError::Failed(status)) => Ok(Attempt::Failed(status)),
        Err(StoreError::Conflict) if names_revision => Ok(Attempt::FinalConflict),
        Err(StoreError::Conflict) => Ok(Attempt::Conflict),
    }
}

/// Creates the object of a PUT or a server-side apply that does not exist yet, where the resource and the subresource allow that.
async fn create_missing(
    context: &WriteContext<'_>,
    call: &mut Call,
    options: &WriteOptions,
    source: &UpdateSource,
    key: &str,
) -> Result<HandlerResponse, Status> {
    let &WriteContext { state, kind, subresource, tracking, .. } = context;
    let draft = match source {
        UpdateSource::Object(draft) if kind.write_rules().creates_on_update(subresource) => {
            let uid = meta::uid(draft.object());
            if !uid.is_empty() {
                // A uid refers to an existing object.
                let why = ServedResource::uid_mismatch(key, uid, "", options.dry_run);
                return Err(Status::conflict(&kind.resource, &call.info.name, why));
            }
            draft.clone()
        }
        UpdateSource::Configuration(config, strict) if WriteRules::creates_on_apply(subresource) => {
            let sent = (config, strict.as_deref());
            configured(call, context, options, None, sent).await?
        }
        _ => return Err(Status::not_found(&kind.resource, &call.info.name)),
    };
    state.authorization.authorize_create(call, kind).await?;
    create::create(state, call, kind, draft, options, tracking).await
}

/// The new object, computed from `old` for a patch or a server-side apply.
async fn new_object(
    context: &WriteContext<'_>,
    call: &mut Call,
    options: &WriteOptions,
    source: &UpdateSource,
    old: &Working,
) -> Result<Draft, Status> {
    match source {
        UpdateSource::Object(draft) => Ok(draft.clone()),
        UpdateSource::Patch(patch_type, body) => patched(call, context, options, old, (patch_type, body)),
        UpdateSource::Configuration(config, strict) => {
            configured(call, context, options, Some(old), (config, strict.as_deref())).await
        }
    }
}

/// Stores an admitted update, or deletes the object if the update removes its last finalizer.
async fn store_or_delete(
    context: &WriteContext<'_>,
    call: &Call,
    admitted: Admitted,
    old: &Arc<StoredEntry>,
    old_object: &Working,
) -> Result<WriteOutcome, StoreError> {
    if !is_last_finalizer(context.kind, admitted.object(), old_object) {
        return context.store(call, admitted, Some(old)).await;
    }
    // The response is the updated object, which no longer has the finalizer.
    let (admitted, object) = admitted.into_delete();
    let last = context.delete(call, admitted, old, &call.info.name).await?;
    context.state.in_force(context.kind, last.revision).await;
    Ok(WriteOutcome::DryRun(object))
}

/// Applies a patch to the stored object in the version of the request.
fn patched(
    call: &mut Call,
    context: &WriteContext<'_>,
    options: &WriteOptions,
    old: &Working,
    (patch_type, body): (&str, &Bytes),
) -> Result<Draft, Status> {
    let &WriteContext { kind, subresource, .. } = context;
    let current = kind.shapes().patch_base(subresource, old)?;
    let schema = kind.subresource_schema(subresource);
    let patch = match patch_type {
        JSON_PATCH => patch::PatchType::Json,
        MERGE_PATCH => patch::PatchType::Merge,
        _ => patch::PatchType::StrategicMerge(schema),
    };
    let strict = options.field_validation != FieldValidation::Ignore;
    let effort = call.effort.clone();
    let patched = effort.run(|| {
        let applied = patch::apply(patch, &current, body, strict)?;
        decode::patched(call, kind, subresource, applied, options.field_validation)
    });
    let mut draft = patched??;
    set_namespace(draft.object_mut(), if kind.namespaced { &call.info.namespace } else { "" })?;
    check_name(call, draft.object())?;
    Ok(draft)
}

/// Merges an applied configuration into the stored object in the version of the request.
async fn configured(
    call: &mut Call,
    context: &WriteContext<'_>,
    options: &WriteOptions,
    old: Option<&Working>,
    (config, strict): (&Value, Option<&str>),
) -> Result<Draft, Status> {
    let &WriteContext { state, kind, subresource, .. } = context;
    let applying = ownership::ApplyConfiguration {
        config,
        manager: &options.field_manager,
        force: options.force.unwrap_or_default(),
    };
    let object = ownership::merge_applied(state, kind, subresource, old, applying, call).await?;
    if let Some(why) = strict {
        match options.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => decode::warn(call, why),
            FieldValidation::Strict => {
                return Err(Status::bad_request(format!(
                    "error strict decoding patch: error converting YAML to JSON: {why}"
                )));
            }
        }
    }
    let mut draft = call.effort.run(|| decode::configured(kind, subresource, object, config))??;
    if old.is_none() {
        ownership::refuse_uid(kind, &call.info.name, draft.object())?;
    }
    set_namespace(draft.object_mut(), if kind.namespaced { &call.info.namespace } else { "" })?;
    check_name(call, draft.object())?;
    Ok(draft)
}

/// Requires that an object has the name in the path of its request.
pub(super) fn check_name(call: &Call, object: &Value) -> Result<(), Status> {
    let (own, name) = (meta::name(object), &call.info.name);
    if own.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if own != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Refuses a PUT that names another uid than the stored object's.
fn check_uid(
    kind: &ServedResource,
    entry: &Arc<StoredEntry>,
    old: &Value,
    source: &UpdateSource,
    dry_run: bool,
) -> Result<(), Status> {
    let UpdateSource::Object(draft) = source else { return Ok(()) };
    let (sent, there) = (meta::uid(draft.object()), meta::uid(old));
    if sent.is_empty() || sent == there {
        return Ok(());
    }
    let why = ServedResource::uid_mismatch(&entry.key, sent, there, dry_run);
    Err(Status::conflict(&kind.resource, meta::name(old), why))
}

/// Reports whether the update removes the last finalizer of an object that is being deleted, which completes the deletion. A namespace also
/// has finalizers in its spec.
fn is_last_finalizer(kind: &ServedResource, new: &Value, old: &Value) -> bool {
    let is_namespace = kind.is_built_in("", "Namespace");
    meta::is_deleting(old)
        && meta::finalizers(new).next().is_none()
        && old.int_at(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) == 0
        && (!is_namespace || new.list_at(&["spec", "finalizers"]).is_empty())
}

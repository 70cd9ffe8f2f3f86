//! Handler of POST: creates an object.

use api::{Status, meta};
use catalog::{ServedResource, Subresource};
use requests::options::WriteOptions;

use crate::call::{Call, HandlerResponse};
use crate::decode::{self, Draft};
use crate::handlers::update;
use crate::ownership::{self, FieldTracking};
use crate::state::State;
use crate::write::{StoreError, WriteContext, WriteOutcome, remove_server_metadata, set_namespace};

/// Maximum number of generated names that are tried.
const NAME_ATTEMPTS: usize = 8;

pub async fn handle(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let draft = Draft::Object(decode::object(call, kind, options.field_validation).await?);
    // The path of a custom resource may have a name, for which the caller was authorized. kube-apiserver creates the object of the body.
    if call.info.path_name().is_some() {
        update::check_name(call, draft.object())?;
    }
    let manager = ownership::manager(&options.field_manager, &call.headers).into_owned();
    create(state, call, kind, draft, &options, FieldTracking::Updates(&manager)).await
}

/// Creates a decoded object. Also used by PUT and apply for an object that does not exist, but never through a subresource.
pub async fn create(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    mut draft: Draft,
    options: &WriteOptions,
    tracking: FieldTracking<'_>,
) -> Result<HandlerResponse, Status> {
    if kind.as_custom().is_some_and(|custom| custom.crd.terminating) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(&kind.resource, meta::name(draft.object()), why));
    }
    let options_value = options.to_value("CreateOptions");
    let subresource = Subresource::None;
    let context = WriteContext {
        state,
        kind,
        subresource,
        options: &options_value,
        dry_run: options.dry_run,
        tracking,
    };
    remove_server_metadata(draft.object_mut());
    set_namespace(draft.object_mut(), if kind.namespaced { &call.info.namespace } else { "" })?;
    let generated =
        meta::name(draft.object()).is_empty() && !meta::text(draft.object(), "generateName").is_empty();
    let original = generated.then(|| draft.clone());
    let mutated = context.mutate(call, draft, None).await?;
    let mut admitted = context.admit_create(call, mutated).await?;
    for attempt in 1.. {
        let name = admitted.name().to_owned();
        match context.store(call, admitted, None).await {
            Ok(WriteOutcome::Entry(entry)) => {
                return state.converter(kind).answer(subresource, 201, entry).await;
            }
            Ok(WriteOutcome::DryRun(object)) => {
                return Ok(HandlerResponse::Object(201, kind.shapes().to_sent(object).into_value()));
            }
            Err(StoreError::Refused(status) | StoreError::Failed(status)) => return Err(status),
            Err(StoreError::Conflict) => match &original {
                None => return Err(already_exists(state, kind, call, &name)),
                Some(_) if attempt == NAME_ATTEMPTS => {
                    return Err(Status::generate_name_conflict(&kind.resource, &name));
                }
                Some(draft) => {
                    call.effort.begin_attempt(call.deadline)?;
                    // The object passes every stage again under its new name.
                    let mutated = context.mutate(call, draft.clone(), None).await?;
                    admitted = context.admit_create(call, mutated).await?;
                }
            },
        }
    }
    Err(Status::generate_name_conflict(&kind.resource, ""))
}

fn already_exists(state: &State, kind: &ServedResource, call: &Call, name: &str) -> Status {
    let there = state.storage.store.get(&kind.key(&call.info.namespace, name));
    let going =
        there.and_then(|entry| catalog::encode::tree(&entry).ok()).is_some_and(|o| meta::is_deleting(&o));
    let status = Status::already_exists(&kind.resource, name);
    if going {
        let message = format!("object is being deleted: {}", status.message());
        return status.with_message(message);
    }
    status
}

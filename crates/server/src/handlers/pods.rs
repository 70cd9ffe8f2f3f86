//! Handler of `pods/binding` and `bindings`.

use std::sync::Arc;

use api::validation::{self, fields::At};
use api::{FieldErrors, GroupKind, GroupResource, GroupVersionKind, Status, meta};
use catalog::{ServedResource, Subresource};
use kinds::strategy::assign_pod;
use requests::options::WriteOptions;
use value::{Map, Value};

use crate::call::{Call, HandlerResponse};
use crate::consistent_reads::BaseEntry;
use crate::decode;
use crate::ownership::FieldTracking;
use crate::state::State;
use crate::write::{self, CONFLICT_ATTEMPTS, MarkProof, OPTIMISTIC_LOCK, Posted, StoreError, WriteContext};

/// Assigns a pod to a node.
pub async fn bind(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let expected = GroupVersionKind::new("", "v1", "Binding");
    let binding = posted(call, &expected, &options).await?;
    let pod =
        if call.info.name.is_empty() { meta::name(&binding).to_owned() } else { call.info.name.to_string() };
    let subresource = if kind.gvk.kind == "Pod" { "binding" } else { "" };
    let post = Posted::create(state, kind, subresource, expected, &pod, &options);
    let binding = post.mutate(call, binding).await?;
    if meta::name(&binding) != pod {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let errors = kinds::table::behavior(&GroupKind::new("", "Binding"))
        .rules
        .as_ref()
        .map(|rules| call.effort.run(|| (rules.create)(&binding, &state.validation_context(call.now))))
        .transpose()?
        .unwrap_or_default();
    if !errors.is_empty() {
        // kube-apiserver loses the status code here.
        return Err(Status::plain(api::field::aggregate(&errors)));
    }
    let admitted = post.validate_for_pod(call, &binding).await?;
    if pod.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }

    let pods = pods(state)?;
    let context = WriteContext {
        state,
        kind: &pods,
        subresource: Subresource::None,
        options: &post.options,
        dry_run: options.dry_run,
        tracking: FieldTracking::Settled,
    };
    let key = pods.key(&call.info.namespace, &pod);
    let mut base = BaseEntry::newest(&state.storage.store, &key).await?;
    for _ in 0..CONFLICT_ATTEMPTS {
        call.effort.begin_attempt(call.deadline)?;
        let entry = base.entry().ok_or_else(|| Status::not_found(&pods.resource, &pod))?;
        let mut object = pods.shapes().load_built_in(&entry)?;
        let (uid, wanted) = (meta::uid(&object), meta::uid(&binding));
        if !wanted.is_empty() && wanted != uid {
            let why = ServedResource::uid_mismatch(&key, wanted, uid, options.dry_run);
            return Err(Status::conflict(&pods.resource, &pod, why));
        }
        let (version, wanted) = (entry.revision.to_string(), meta::resource_version(&binding));
        if !wanted.is_empty() && wanted != version {
            let why = ServedResource::version_mismatch(&key, wanted, &version, options.dry_run);
            return Err(Status::conflict(&pods.resource, &pod, why));
        }
        let errors = call.effort.run(|| {
            assign_pod(&mut object, &binding, call.now)?;
            Ok(check_metadata(&binding, &object))
        })?;
        let refused = |why: String| Status::conflict(&GroupResource::new("", "pods/binding"), &pod, why);
        let errors = errors.map_err(refused)?;
        if !errors.is_empty() {
            return Err(Status::invalid(&GroupKind::new("", "Binding"), &pod, &errors));
        }
        match context.store_mark(call, MarkProof::Post(&admitted), &entry, &object, &pod).await {
            Ok(_) => return Ok(HandlerResponse::Object(201, success())),
            Err(StoreError::Refused(status) | StoreError::Failed(status)) => return Err(status),
            Err(StoreError::Conflict) => base.reread(),
        }
    }
    Err(Status::conflict(&pods.resource, &pod, OPTIMISTIC_LOCK))
}

/// Validates the labels and annotations that a pod gets from its binding. kube-apiserver stores them unchecked; then every later update of
/// the pod is refused.
fn check_metadata(binding: &Value, pod: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if meta::labels(binding).next().is_some() || meta::annotations(binding).next().is_some() {
        let (metadata, at) = (pod.at(&["metadata"]), At::new("metadata"));
        validation::meta::labels(metadata, "labels", &at, &mut errors);
        validation::meta::annotations(metadata, &at, &mut errors);
    }
    errors
}

/// Reads the body as the kind that a subresource takes, and sets or checks its namespace.
pub async fn posted(
    call: &mut Call,
    expected: &GroupVersionKind,
    options: &WriteOptions,
) -> Result<Value, Status> {
    let mut object = decode::posted(call, expected, options.field_validation).await?;
    write::set_namespace(&mut object, &call.info.namespace)?;
    Ok(object)
}

fn pods(state: &State) -> Result<Arc<ServedResource>, Status> {
    state.apis.catalog.find(&"".into(), &"v1".into(), &"pods".into()).ok_or_else(Status::no_such_resource)
}

/// The `Status` that reports success with code 201.
pub(super) fn success() -> Value {
    let mut status = Value::map([("kind", "Status"), ("apiVersion", "v1"), ("status", "Success")]);
    status.set_at(&["metadata"], Value::Map(Map::new()));
    status.set_at(&["code"], 201_i64);
    status
}

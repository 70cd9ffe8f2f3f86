//! Virtual resources, which are answered and not stored: access reviews, identity reviews, component status.

use std::sync::Arc;

use api::selector::{FactsRef, SelectorFacts};
use api::{GroupResource, Status, meta};
use authz::review;
use catalog::{ServedResource, Subresource};
use heavy_lane::LARGE;
use requests::options::WriteOptions;
use value::{Map, Value};

use super::{evict, list, pods, tokens};
use crate::call::{Call, HandlerResponse};
use crate::decode;
use crate::ownership;
use crate::state::State;
use crate::write::{Posted, remove_server_metadata};

/// Dispatches requests for virtual resources and for subresources that take another kind.
pub async fn handle(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    match (kind.gvk.kind.as_str(), call.info.subresource.as_str()) {
        ("Pod", "binding") | ("Binding", "") => pods::bind(state, call, kind).await,
        ("Pod", "eviction") => evict::evict(state, call, kind).await,
        ("SubjectAccessReview", _) => access_review(state, call, kind, ReviewSubject::Named).await,
        ("LocalSubjectAccessReview", _) => {
            access_review(state, call, kind, ReviewSubject::NamedInNamespace).await
        }
        ("SelfSubjectAccessReview", _) => access_review(state, call, kind, ReviewSubject::Caller).await,
        ("SelfSubjectRulesReview", _) => rules_review(state, call, kind).await,
        ("SelfSubjectReview", _) => self_review(call, kind).await,
        ("TokenReview", _) => tokens::review(state, call, kind).await,
        ("ServiceAccount", "token") => tokens::request(state, call, kind).await,
        ("ComponentStatus", _) => component_status(state, call, kind),
        _ => Err(Status::no_such_resource()),
    }
}

/// The subject of an access review.
#[derive(Clone, Copy, PartialEq)]
enum ReviewSubject {
    Named,
    NamedInNamespace,
    Caller,
}

/// Reads the body as `kind`, runs admission and returns the admitted object.
pub async fn read(state: &State, call: &mut Call, kind: &ServedResource) -> Result<Value, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let mut object = decode::object(call, kind, options.field_validation).await?.object;
    remove_server_metadata(&mut object);
    crate::write::set_namespace(&mut object, if kind.namespaced { &call.info.namespace } else { "" })?;
    let manager = ownership::manager(&options.field_manager, &call.headers);
    let written = ownership::TrackedUpdate { old: None, empty: &[], manager: &manager, effort: &call.effort };
    ownership::track(state, kind, Subresource::None, written, &mut object, call.now).await?;
    let name = meta::name(&object).to_owned();
    let posted = Posted::create(state, kind, "", kind.gvk.clone(), &name, &options);
    posted.admit(call, object.into_value()).await
}

async fn access_review(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
    subject: ReviewSubject,
) -> Result<HandlerResponse, Status> {
    let mut review = read(state, call, kind).await?;
    let errors = kinds::table::behavior(&kind.stored.group_kind())
        .rules
        .as_ref()
        .map(|rules| (rules.create)(&review, &state.validation_context(call.now)))
        .unwrap_or_default();
    if !errors.is_empty() {
        // kube-apiserver names only the group here.
        let group = api::GroupKind::new(kind.stored.group.clone(), "");
        return Err(Status::invalid(&group, "", &errors));
    }
    if subject == ReviewSubject::NamedInNamespace {
        let wanted = review.str_at(&["spec", "resourceAttributes", "namespace"]).unwrap_or_default();
        if wanted != call.info.namespace {
            return Err(Status::bad_request(format!(
                "spec.resourceAttributes.namespace must match namespace: {}",
                call.info.namespace
            )));
        }
    }
    let spec = review.at(&["spec"]).cloned().unwrap_or_default();
    let user = if subject == ReviewSubject::Caller { call.user().clone() } else { review::subject(&spec) };
    let attributes = review::attributes(&spec);
    let answer = state.authorization.chain.load_full().decide(&user, &attributes).await;
    review.set_at(&["status"], review::status(&answer, &attributes));
    Ok(HandlerResponse::Object(201, kind.shapes().fill_metadata(review)))
}

async fn rules_review(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let mut review = read(state, call, kind).await?;
    let namespace = review.str_at(&["spec", "namespace"]).unwrap_or_default().to_owned();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let size = state.authorization.rbac.listing_size(call.user(), &namespace, LARGE + 1);
    call.effort.enter_lane(size).await;
    let rules = state.authorization.chain.load_full().rules_for(call.user(), &namespace);
    // As in kube-apiserver, the response does not repeat the spec.
    review.set_at(&["metadata"], Value::Map(Map::new()));
    review.set_at(&["spec"], Value::Map(Map::new()));
    review.set_at(&["status"], review::rules_status(&rules));
    Ok(HandlerResponse::Object(201, kind.shapes().fill_metadata(review)))
}

async fn self_review(call: &mut Call, kind: &ServedResource) -> Result<HandlerResponse, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let mut review = decode::object(call, kind, options.field_validation).await?.object.into_value();
    review.set_at(&["metadata"], Value::Map(Map::new()));
    meta::set(&mut review, "creationTimestamp", api::time::Timestamp::from_seconds(call.now).time());
    review.set_at(&["status", "userInfo"], call.user().to_user_info());
    Ok(HandlerResponse::Object(201, kind.shapes().fill_metadata(review)))
}

/// Answers `componentstatuses`; the store is the only component.
fn component_status(state: &State, call: &Call, kind: &ServedResource) -> Result<HandlerResponse, Status> {
    let healthy = state.storage.store.health();
    let mut item = Value::map([("kind", "ComponentStatus"), ("apiVersion", "v1")]);
    item.set_at(&["metadata", "name"], "etcd-0");
    let condition = match &healthy {
        Ok(()) => Value::map([("type", "Healthy"), ("status", "True"), ("message", "ok")]),
        Err(_) => {
            Value::map([("type", "Healthy"), ("status", "False"), ("message", "the store cannot write")])
        }
    };
    item.set_at(&["conditions"], Value::List(vec![condition]));
    match call.info.verb.as_str() {
        "get" if call.info.name == "etcd-0" => Ok(HandlerResponse::Object(200, item)),
        // kube-apiserver uses the singular name here.
        "get" => Err(Status::not_found(&GroupResource::new("", "componentstatus"), &call.info.name)),
        _ => {
            let selection = list::selection(call, kind)?;
            let facts = SelectorFacts::of(&item, [("metadata.name", "etcd-0")]);
            let selected = selection.matches(FactsRef::new(&facts));
            let mut list = Value::map([("kind", "ComponentStatusList"), ("apiVersion", "v1")]);
            list.set_at(&["metadata"], Value::Map(Map::new()));
            item.remove_at(&["kind"]);
            item.remove_at(&["apiVersion"]);
            list.set_at(&["items"], Value::List(selected.then_some(item).into_iter().collect()));
            Ok(HandlerResponse::Object(200, list))
        }
    }
}

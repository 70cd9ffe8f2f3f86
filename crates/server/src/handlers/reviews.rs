//! Kinds that are answered and forgotten: reviews of access and identity.

use std::sync::Arc;

use admission::Operation;
use api::{Status, meta};
use authn::User;
use authz::{Attributes, Decision};
use value::{Map, Str, Value};

use super::pods;
use crate::call::{Answer, Call};
use crate::catalog::Kind;
use crate::decode;
use crate::options::WriteOptions;
use crate::state::State;
use crate::write::Posted;

/// Answers a request for one of these kinds.
pub async fn handle(state: &Arc<State>, call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    match (kind.row.kind, call.info.subresource.as_str()) {
        ("Pod", "binding") | ("Binding", "") => pods::bind(state, call, kind).await,
        ("Pod", "eviction") => pods::evict(state, call, kind).await,
        ("SubjectAccessReview", _) => access_review(state, call, kind, Asker::Anybody).await,
        ("LocalSubjectAccessReview", _) => access_review(state, call, kind, Asker::InNamespace).await,
        ("SelfSubjectAccessReview", _) => access_review(state, call, kind, Asker::Caller).await,
        ("SelfSubjectRulesReview", _) => rules_review(state, call, kind).await,
        ("SelfSubjectReview", _) => self_review(call, kind).await,
        ("ComponentStatus", _) => component_status(state, call, kind),
        _ => Err(Status::no_such_resource()),
    }
}

/// Whom an access review is about.
#[derive(Clone, Copy, PartialEq)]
enum Asker {
    Anybody,
    InNamespace,
    Caller,
}

/// Reads the body as `kind`, runs admission, and hands it back.
async fn read(state: &State, call: &mut Call, kind: &Kind) -> Result<Value, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let mut object = decode::object(call, kind, options.field_validation).await?.into_object();
    super::create::place(&mut object, if kind.namespaced { &call.info.namespace } else { "" })?;
    let posted = Posted { kind, subresource: "", posted: kind.gvk.clone(), name: meta::name(&object) };
    let admission_options = options.to_value("CreateOptions");
    posted.admit(state, call, Operation::Create, &object, &admission_options, options.dry_run)?;
    Ok(object)
}

async fn access_review(state: &Arc<State>, call: &mut Call, kind: &Kind, asker: Asker) -> Result<Answer, Status> {
    let mut review = read(state, call, kind).await?;
    let errors = resources::validation::rules(&kind.stored.group_kind())
        .map(|rules| (rules.create)(&review, &state.validation_context(call.now)))
        .unwrap_or_default();
    if !errors.is_empty() {
        return Err(Status::invalid(&kind.stored.group_kind(), meta::name(&review), &errors));
    }
    if asker == Asker::InNamespace {
        let wanted = review.str_at(&["spec", "resourceAttributes", "namespace"]).unwrap_or_default();
        if wanted != call.info.namespace {
            return Err(Status::bad_request(format!(
                "spec.resourceAttributes.namespace must match namespace: {}",
                call.info.namespace
            )));
        }
    }
    let user = if asker == Asker::Caller { call.user().clone() } else { reviewed_user(&review) };
    let attributes = reviewed_attributes(&review);
    let answer = state.authorizer.load_full().decide(&user, &attributes).await;
    let mut status = Map::new();
    status.insert("allowed", answer.decision == Decision::Allow);
    if answer.decision == Decision::Deny {
        status.insert("denied", true);
    }
    if !answer.reason.is_empty() {
        status.insert("reason", answer.reason.to_string());
    }
    if let Some(error) = answer.error {
        status.insert("evaluationError", error);
    }
    review.set_at(&["status"], Value::Map(status));
    Ok(Answer::Object(201, review))
}

fn reviewed_user(review: &Value) -> User {
    let texts = |list: &[Value]| list.iter().filter_map(Value::as_str).map(Str::from).collect::<Vec<Str>>();
    let mut user = User::named(review.str_at(&["spec", "user"]).unwrap_or_default())
        .in_groups(texts(review.list_at(&["spec", "groups"])));
    user.uid = review.str_at(&["spec", "uid"]).unwrap_or_default().into();
    if let Some(extra) = review.at(&["spec", "extra"]).and_then(Value::as_map) {
        user.extra = extra.iter().map(|(k, v)| (k.clone(), texts(v.as_list().unwrap_or_default()))).collect();
    }
    user
}

fn reviewed_attributes(review: &Value) -> Attributes {
    if let Some(resource) = review.at(&["spec", "resourceAttributes"]) {
        let text = |key: &str| Str::from(resource.str_at(&[key]).unwrap_or_default());
        return Attributes {
            verb: text("verb"),
            group: text("group"),
            version: text("version"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            is_resource: true,
            ..Attributes::default()
        };
    }
    let text = |key: &str| Str::from(review.str_at(&["spec", "nonResourceAttributes", key]).unwrap_or_default());
    Attributes::path(text("verb"), text("path"))
}

async fn rules_review(state: &Arc<State>, call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    let mut review = read(state, call, kind).await?;
    let namespace = review.str_at(&["spec", "namespace"]).unwrap_or_default().to_owned();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = state.authorizer.load_full().rules_for(call.user(), &namespace);
    let mut of_resources = Vec::new();
    let mut of_paths = Vec::new();
    for rule in &rules.rules {
        let rule = rule.to_value();
        let is_path = !rule.list_at(&["nonResourceURLs"]).is_empty();
        if is_path { of_paths.push(rule) } else { of_resources.push(rule) }
    }
    let mut status = Value::map([("incomplete", rules.incomplete)]);
    status.set_at(&["resourceRules"], Value::List(of_resources));
    status.set_at(&["nonResourceRules"], Value::List(of_paths));
    if let Some(error) = rules.error {
        status.set_at(&["evaluationError"], error);
    }
    review.set_at(&["status"], status);
    Ok(Answer::Object(201, review))
}

async fn self_review(call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let mut review = decode::object(call, kind, options.field_validation).await?.into_object();
    meta::set(&mut review, "creationTimestamp", api::time::Timestamp::from_seconds(call.now).time());
    review.set_at(&["status", "userInfo"], call.user().to_user_info());
    Ok(Answer::Object(201, review))
}

/// `componentstatuses`: the store is the only component this server has.
fn component_status(state: &State, call: &Call, kind: &Kind) -> Result<Answer, Status> {
    let healthy = state.store.health();
    let mut item = Value::map([("kind", "ComponentStatus"), ("apiVersion", "v1")]);
    item.set_at(&["metadata", "name"], "etcd-0");
    let condition = match &healthy {
        Ok(()) => Value::map([("type", "Healthy"), ("status", "True"), ("message", "ok")]),
        Err(_) => Value::map([("type", "Healthy"), ("status", "False"), ("message", "the store cannot write")]),
    };
    item.set_at(&["conditions"], Value::List(vec![condition]));
    match call.info.verb.as_str() {
        "get" if call.info.name == "etcd-0" => Ok(Answer::Object(200, item)),
        "get" => Err(Status::not_found(&kind.resource, &call.info.name)),
        _ => {
            let mut list = Value::map([("kind", "ComponentStatusList"), ("apiVersion", "v1")]);
            list.set_at(&["metadata"], Value::Map(Map::new()));
            list.set_at(&["items"], Value::List(vec![item]));
            Ok(Answer::Object(200, list))
        }
    }
}

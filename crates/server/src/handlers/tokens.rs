//! `serviceaccounts/token` and `tokenreviews`.

use std::sync::Arc;
use std::time::SystemTime;

use admission::Operation;
use api::time::Timestamp;
use api::{GroupVersionKind, Status, meta};
use authn::tokens::TokenRequest;
use value::{Map, Str, Value};

use super::pods::posted;
use crate::call::{Answer, Call};
use crate::catalog::Kind;
use crate::encode;
use crate::options::WriteOptions;
use crate::state::State;
use crate::tokens::StoredObjects;
use crate::write::Posted;

/// `serviceaccounts/token`: a token for the account.
pub async fn request(state: &Arc<State>, call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let expected = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let object = posted(call, &expected, &options).await?;
    let name = call.info.name.to_string();
    let entry = state
        .store
        .get(&kind.key(&call.info.namespace, &name))
        .ok_or_else(|| Status::not_found(&kind.resource, &name))?;
    let account = encode::tree(&entry)?;
    let Some(tokens) = &state.tokens else { return Err(Status::no_such_resource()) };
    let options_value = options.to_value("CreateOptions");
    let post = Posted {
        state,
        kind,
        subresource: "token",
        posted: expected.clone(),
        name: &name,
        operation: Operation::Create,
        options: &options_value,
        dry_run: options.dry_run,
    };
    let object = post.mutate(call, object).await?;
    let now = Timestamp::from_seconds(call.now);
    let request = TokenRequest::new(object, &account, &tokens.rules, now)?;
    let rules = resources::validation::rules(&expected.group_kind());
    let errors = rules.map(|rules| (rules.create)(request.object(), &state.validation_context(call.now)));
    let errors = errors.unwrap_or_default();
    if !errors.is_empty() {
        return Err(Status::invalid(&expected.group_kind(), "", &errors));
    }
    post.validate(call, request.object()).await?;
    let objects = StoredObjects(state.store.clone());
    let grant = request.grant(&tokens.rules, &objects, crate::random::uid()).await?;
    for warning in &grant.warnings {
        call.warn(warning.as_str());
    }
    let token =
        tokens.issuer.issue(&grant.claims).map_err(|_| Status::internal("failed to generate token"))?;
    let (key, value) = grant.annotation();
    call.annotate(key, value);
    let mut answer = grant.answer(&token);
    if let Some(schema) = resources::schema::of(&expected.group, &expected.version, &expected.kind) {
        resources::decode::fill(&mut answer, schema);
    }
    Ok(Answer::Object(201, answer))
}

/// `tokenreviews`: whose token is this?
pub async fn review(state: &Arc<State>, call: &mut Call, kind: &Kind) -> Result<Answer, Status> {
    let mut review = super::reviews::read(state, call, kind).await?;
    let token = review.str_at(&["spec", "token"]).unwrap_or_default().to_owned();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    if !meta::namespace(&review).is_empty() {
        return Err(Status::bad_request("namespace is not allowed on this type"));
    }
    let wanted: Vec<Str> =
        review.list_at(&["spec", "audiences"]).iter().filter_map(Value::as_str).map(Str::from).collect();
    let authenticator = state.authenticator.load_full();
    let audiences = (!wanted.is_empty()).then_some(wanted.as_slice());
    let mut status = Map::new();
    match authenticator.review(&token, audiences, SystemTime::now()).await {
        Ok(found) => {
            status.insert("authenticated", true);
            status.insert("user", found.caller.user().to_user_info());
            if !found.audiences.is_empty() {
                status.insert("audiences", Value::list(found.audiences.iter().cloned()));
            }
        }
        Err(error) => {
            status.insert("user", Map::new());
            status.insert("error", error.to_string());
        }
    }
    review.set_at(&["status"], Value::Map(status));
    Ok(Answer::Object(201, kind.empty_with(review)))
}

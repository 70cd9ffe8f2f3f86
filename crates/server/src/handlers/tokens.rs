//! Handlers of `serviceaccounts/token` and `tokenreviews`.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use api::attestation::{self, AttestationDialect, WebhookConfigurationKind};
use api::time::Timestamp;
use api::{GroupVersionKind, Status, meta};
use authn::User;
use authn::tokens::{AttestFuture, Attester, TokenRequest, TokenRequestRefusal};
use authz::{AuthorizationAttributes, AuthorizerChain, Decision};
use catalog::ServedResource;
use catalog::encode;
use requests::options::WriteOptions;
use value::text::first_chars;
use value::{Map, Str, Value};

use super::pods::posted;
use crate::call::{Call, HandlerResponse};
use crate::consistent_reads;
use crate::ownership;
use crate::state::State;
use crate::tokens::StoredObjects;
use crate::write::Posted;

/// Audit annotation with the reason why a token request for a webhook was refused.
const DENIED_ANNOTATION: &str = "webhook-authentication.k8s.io/token-request-denied";
/// Maximum characters of a client's value in log lines.
const LOGGED_CHARACTERS: usize = 256;

/// Issues a token for the service account (`serviceaccounts/token`).
pub async fn request(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
    let begun = Instant::now();
    let options = WriteOptions::parse("CreateOptions", &call.query)?;
    let expected = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let mut object = posted(call, &expected, &options).await?;
    let empty = take_empty_attestations(&mut object);
    let manager = ownership::manager(&options.field_manager, &call.headers);
    ownership::track_posted(&expected, "token", &mut object, &manager, call.now);
    let asked = WebhookTokenRequest::read(&object);
    let request = PostedTokenRequest { object, options, expected, empty };
    let answer = answer(state, call, kind, request).await;
    if let Some(asked) = asked {
        if let Some(tokens) = &state.admission.webhook_tokens {
            tokens.metrics().requested(answer.is_ok(), begun.elapsed());
        }
        if let Err(refusal) = &answer {
            asked.report(call, refusal);
        }
    }
    answer.map_err(|refusal| refusal.status)
}

/// Removes attestations that were sent empty. Only validation distinguishes them from absent ones, and the response omits them.
fn take_empty_attestations(object: &mut Value) -> Vec<AttestationDialect> {
    let spec = object.as_map_mut().and_then(|object| object.get_mut("spec")).and_then(Value::as_map_mut);
    let Some(spec) = spec else { return Vec::new() };
    let is_empty = |spec: &Map, dialect: &AttestationDialect| {
        spec.get(dialect.field()).and_then(Value::as_map).is_some_and(Map::is_empty)
    };
    let empty: Vec<AttestationDialect> =
        AttestationDialect::ALL.into_iter().filter(|dialect| is_empty(spec, dialect)).collect();
    for dialect in &empty {
        spec.remove(dialect.field());
    }
    empty
}

/// The request for a webhook token as sent, to log it if it is refused.
struct WebhookTokenRequest {
    configuration: String,
    audience: String,
    group: String,
}

impl WebhookTokenRequest {
    /// `None` if the token is not to be bound to a webhook configuration.
    fn read(object: &Value) -> Option<Self> {
        let reference = object.at(&["spec", "boundObjectRef"])?;
        let kind = WebhookConfigurationKind::of_reference(reference)?;
        let dialect = AttestationDialect::of(object.get("spec"));
        let first = |path: &[&str]| {
            let first = object.list_at(path).first().and_then(Value::as_str);
            first_chars(first.unwrap_or_default(), LOGGED_CHARACTERS).to_owned()
        };
        let name = first_chars(reference.str_at(&["name"]).unwrap_or_default(), LOGGED_CHARACTERS);
        Some(WebhookTokenRequest {
            configuration: format!("{}/{name}", kind.kind()),
            audience: first(&["spec", "audiences"]),
            group: first(&["spec", dialect.field(), dialect.key()]),
        })
    }

    /// Logs the reason of a refusal for operators: the client must not learn what the decision depends on.
    fn report(&self, call: &Call, TokenRequestRefusal { status, cause }: &TokenRequestRefusal) {
        let (reason, detail) = match cause {
            Some(cause) => (cause.reason.as_str(), cause.detail.clone()),
            None => (status.reason(), first_chars(status.message(), 4 * LOGGED_CHARACTERS).to_owned()),
        };
        call.annotate(DENIED_ANNOTATION, format!("{reason}: {detail}"));
        tracing::warn!(
            reason,
            detail,
            user = call.user().name.as_str(),
            service_account = format!("{}/{}", call.info.namespace, call.info.name),
            configuration = self.configuration,
            audience = self.audience,
            api_group = self.group,
            "token request for a webhook refused"
        );
    }
}

struct PostedTokenRequest {
    object: Value,
    options: WriteOptions,
    expected: GroupVersionKind,
    /// Attestations that the client sent empty.
    empty: Vec<AttestationDialect>,
}

async fn answer(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
    request: PostedTokenRequest,
) -> Result<HandlerResponse, TokenRequestRefusal> {
    let PostedTokenRequest { object, options, expected, empty } = request;
    let Some(tokens) = &state.authentication.tokens else { return Err(Status::no_such_resource().into()) };
    let name = call.info.name.to_string();
    let post = Posted::create(state, kind, "token", expected.clone(), &name, &options);
    let object = post.mutate(call, object).await?;
    TokenRequest::check_address(&object, &call.info.namespace, &name)?;
    let entry = consistent_reads::entry(&state.storage.store, &kind.key(&call.info.namespace, &name)).await?;
    let entry = entry.ok_or_else(|| Status::not_found(&kind.resource, &name))?;
    let account = encode::tree(&entry)?;
    let now = Timestamp::from_seconds(call.now);
    let request = TokenRequest::new(object, &account, &tokens.rules, now)?;
    let rules = kinds::table::behavior(&expected.group_kind()).rules.as_ref();
    let mut validated = Cow::Borrowed(request.object());
    for dialect in empty {
        if validated.at(&["spec", dialect.field()]).is_none() {
            validated.to_mut().set_at(&["spec", dialect.field()], Value::Map(Map::new()));
        }
    }
    let context = state.validation_context(call.now);
    let errors = rules.map(|rules| call.effort.run(|| (rules.create)(&validated, &context)));
    let errors = errors.transpose()?.unwrap_or_default();
    if !errors.is_empty() {
        return Err(Status::invalid(&expected.group_kind(), "", &errors).into());
    }
    post.validate(call, request.object()).await?;
    let objects = StoredObjects::newest(state.storage.store.clone());
    let attester = Authorized(state.authorization.chain.load_full());
    let grant = request.grant(&tokens.rules, &objects, &attester, runtime::random::uid()).await?;
    for warning in &grant.warnings {
        call.warn(warning.as_str());
    }
    let token =
        tokens.issuer.issue(&grant.claims).map_err(|_| Status::internal("failed to generate token"))?;
    for (key, value) in &grant.annotations {
        call.annotate(key, value.as_str());
    }
    let mut answer = grant.answer(&token);
    if let Some(schema) = schema::of(&expected.group, &expected.version, &expected.kind) {
        schema::decode::fill(&mut answer, schema);
    }
    Ok(HandlerResponse::Object(201, answer))
}

/// Attests what the service account is authorized for.
struct Authorized(Arc<AuthorizerChain>);

impl Attester for Authorized {
    fn attest<'a>(
        &'a self,
        account: &'a User,
        dialect: AttestationDialect,
        group: &'a str,
    ) -> AttestFuture<'a> {
        let (api_group, resource) = dialect.resource();
        let attributes = AuthorizationAttributes::resource(attestation::VERB, api_group, resource)
            .named(dialect.name_of(group));
        Box::pin(async move {
            let answer = self.0.decide(account, &attributes).await;
            if answer.decision == Decision::Allow {
                return Ok(());
            }
            Err(authz::forbidden(&account.name, &attributes, &answer.why()))
        })
    }
}

/// Authenticates the token in a `TokenReview`.
pub async fn review(
    state: &Arc<State>,
    call: &mut Call,
    kind: &ServedResource,
) -> Result<HandlerResponse, Status> {
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
    let authenticator = state.authentication.authenticator.load_full();
    let audiences = (!wanted.is_empty()).then_some(wanted.as_slice());
    // As in kube-apiserver, the status of a failed review keeps the sent user; `authenticated` is what counts.
    let mut status = review.at(&["status"]).and_then(Value::as_map).cloned().unwrap_or_default();
    for field in ["authenticated", "error"] {
        status.remove(field);
    }
    match authenticator.review(&token, audiences, SystemTime::now()).await {
        Ok(found) => {
            status = Map::new();
            status.insert("authenticated", true);
            status.insert("user", found.caller.user().to_user_info());
            if !found.audiences.is_empty() {
                status.insert("audiences", Value::list(found.audiences.iter().cloned()));
            }
        }
        Err(error) => {
            if status.get("user").is_none() {
                status.insert("user", Map::new());
            }
            // kube-apiserver tries two authenticators and joins their errors: the one for loopback connections knows only its own token.
            let (unknown, error) = (authn::Error::InvalidToken.to_string(), error.text_for_review());
            let said = if error == unknown { error } else { format!("[{unknown}, {error}]") };
            status.insert("error", said);
        }
    }
    review.set_at(&["status"], Value::Map(status));
    Ok(HandlerResponse::Object(201, kind.shapes().fill_metadata(review)))
}

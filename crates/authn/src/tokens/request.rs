//! [`TokenRequest`]: what a client may ask for on `serviceaccounts/token`, and the claims of what it gets.

use std::pin::Pin;
use std::sync::Arc;

use api::attestation::{self, AttestationDialect, WebhookConfigurationKind};
use api::field::quote;
use api::time::Timestamp;
use api::{FieldError, GroupKind, GroupResource, Status, meta};
use value::{Path, Str, Value, format_smolstr};

use crate::tokens::claims::{Bound, BoundKind, Claims, Reference};
use crate::tokens::refusal::Refusal;
use crate::tokens::verify::BoundObjects;
use crate::tokens::webhook_request::WebhookToken;
use crate::user::User;

/// What kubelets ask for in the name of pods that never learned to read a token again.
const WARN_ONLY_SECONDS: i64 = 60 * 60 + 7;
/// What those get instead, so that they go on working.
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;
/// What audit says about a request in the KEP's words: which resource the permission was asked for on.
const KEP_ANNOTATION: &str = "webhook-authentication.k8s.io/attest-resource";
/// The default of `spec.expirationSeconds`.
const DEFAULT_SECONDS: i64 = 60 * 60;

/// What the server's flags say about tokens.
#[derive(Clone, Debug, Default)]
pub struct RequestRules {
    /// The API server's audiences.
    pub audiences: Vec<Str>,
    /// `--service-account-max-token-expiration`, in seconds; 0 for none.
    pub max_seconds: i64,
    /// `--service-account-extend-token-expiration`.
    pub extend: bool,
    /// The gate [`attestation::GATE`]: whether tokens can be bound to configurations of webhooks.
    pub webhooks: bool,
}

/// Says whether a service account may have something attested; the refusal is what the client is told.
pub trait Attester: Send + Sync {
    /// About one API group, in the words of a dialect.
    fn attest<'a>(&'a self, account: &'a User, dialect: AttestationDialect, group: &'a str) -> Attesting<'a>;
}

/// What [`Attester::attest`] gives, in time.
pub type Attesting<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// A token is granted: issue it with these claims, and put it into the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The claims.
    pub claims: Claims,
    /// Warnings for the client.
    pub warnings: Vec<Str>,
    /// Annotations of the audit event.
    pub annotations: Vec<(&'static str, String)>,
    answer: Value,
    expires: String,
}

/// A request for a token, read and checked by itself. Validating admission sees [`TokenRequest::object`].
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRequest {
    object: Value,
    now: Timestamp,
}

impl TokenRequest {
    /// Whether a request is for the account in its path, as far as it says; before it is known whether there is one.
    pub fn check_address(object: &Value, namespace: &str, name: &str) -> Result<(), Status> {
        for (field, own) in [("name", name), ("namespace", namespace)] {
            let given = meta::text(object, field);
            if !given.is_empty() && given != own {
                let path = Path::root().field("metadata").field(field);
                let detail = format!("must match the service account {field} if specified");
                let kind = GroupKind::new("authentication.k8s.io", "TokenRequest");
                return Err(Status::invalid(&kind, name, &[FieldError::invalid(&path, given, detail)]));
            }
        }
        Ok(())
    }

    /// Reads the request for the stored `account`: fills in what may be left out, and checks that it is about this account.
    /// The rules of the kind are not checked here.
    pub fn new(
        mut object: Value,
        account: &Value,
        rules: &RequestRules,
        now: Timestamp,
    ) -> Result<Self, Status> {
        let (name, namespace) = (meta::name(account), meta::namespace(account));
        Self::check_address(&object, namespace, name)?;
        meta::set(&mut object, "name", name);
        meta::set(&mut object, "namespace", namespace);
        let (given, own) = (meta::uid(&object), meta::uid(account));
        if !given.is_empty() && given != own {
            let resource = GroupResource::new("authentication.k8s.io", "TokenRequest");
            let why = format!(
                "the UID in the token request ({given}) does not match the UID of the service account ({own})"
            );
            return Err(Status::conflict(&resource, name, why));
        }
        let own = own.to_owned();
        meta::set(&mut object, "uid", own);
        meta::set(&mut object, "creationTimestamp", now.time());
        if object.list_at(&["spec", "audiences"]).is_empty() {
            object.set_at(&["spec", "audiences"], Value::list(rules.audiences.iter().cloned()));
        }
        if object.int_at(&["spec", "expirationSeconds"]).is_none() {
            object.set_at(&["spec", "expirationSeconds"], DEFAULT_SECONDS);
        }
        if let Some(map) = object.as_map_mut() {
            map.remove("status");
        }

        Ok(TokenRequest { object, now })
    }

    /// The request with what was left out filled in.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Looks up what the token is to be bound to, and says what it will claim. `id` is a fresh UUID.
    pub async fn grant(
        self,
        rules: &RequestRules,
        objects: &dyn BoundObjects,
        attester: &dyn Attester,
        id: impl Into<Str>,
    ) -> Result<Grant, Refusal> {
        let TokenRequest { mut object, now } = self;
        let id = id.into();
        let mut warnings = Vec::new();
        let mut annotations =
            vec![("authentication.kubernetes.io/issued-credential-id", format!("JTI={id}"))];
        let reference = object.at(&["spec", "boundObjectRef"]).filter(|r| !r.is_null());
        let bound = match (reference, reference.and_then(WebhookConfigurationKind::of_reference)) {
            (None, _) => None,
            (Some(reference), Some(kind)) => {
                let wanted = WebhookToken { request: &object, reference, kind, now };
                let (bound, dialect) = wanted.grant(rules, objects, attester).await?;
                if dialect == AttestationDialect::Kep {
                    warnings.push(Str::new_static(
                        "spec.attestationClaims is a name of KEP-6060; Kubernetes calls it spec.attestations",
                    ));
                    let (group, resource) = dialect.resource();
                    annotations.push((KEP_ANNOTATION, format!("{resource}.{group}")));
                }
                let shortened = object.int_at(&["spec", "expirationSeconds"]).unwrap_or(0);
                object.set_at(&["spec", "expirationSeconds"], shortened.min(attestation::LIFETIME));
                Some(bound)
            }
            (Some(reference), None) => Some(bound_object(&object, reference, objects).await?),
        };
        let mut seconds = object.int_at(&["spec", "expirationSeconds"]).unwrap_or(0);
        if rules.max_seconds > 0 && seconds > rules.max_seconds {
            warnings.push(format_smolstr!(
                "requested expiration of {seconds} seconds shortened to {} seconds",
                rules.max_seconds
            ));
            seconds = rules.max_seconds;
            object.set_at(&["spec", "expirationSeconds"], seconds);
        }
        let audiences: Vec<Str> =
            object.list_at(&["spec", "audiences"]).iter().filter_map(Value::as_str).map(Str::from).collect();
        let extended = rules.extend
            && matches!(bound, Some(Bound::Pod { .. }))
            && seconds == WARN_ONLY_SECONDS
            && audiences.iter().all(|audience| rules.audiences.contains(audience));
        let lifetime = if extended { EXTENDED_SECONDS } else { seconds };
        let claims = Claims {
            namespace: meta::namespace(&object).into(),
            service_account: Reference { name: meta::name(&object).into(), uid: meta::uid(&object).into() },
            audiences,
            id,
            issued_at: Some(now.seconds),
            not_before: Some(now.seconds),
            expires_at: Some(now.seconds.saturating_add(lifetime)),
            warn_after: extended.then(|| now.seconds.saturating_add(seconds)),
            bound,
        };
        // The answer shows the time that was asked for, not the extended one.
        let expires = Timestamp::from_seconds(now.seconds.saturating_add(seconds)).time();
        Ok(Grant { claims, warnings, annotations, answer: object, expires })
    }
}

impl Grant {
    /// The answer to the client, with the issued token.
    pub fn answer(mut self, token: &str) -> Value {
        self.answer.set_at(&["status", "expirationTimestamp"], self.expires);
        self.answer.set_at(&["status", "token"], token);
        self.answer
    }
}

/// Group and version of a reference. What is neither one nor two words is nothing, as in Kubernetes.
fn group_version(reference: &str) -> (&str, &str) {
    match reference.split_once('/') {
        None => ("", reference),
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(both) => both,
    }
}

pub(super) fn unbindable(api_version: &str, kind: &str, why: &str) -> Status {
    let (group, version) = group_version(api_version);
    Status::bad_request(format!("cannot bind token to object of type {group}/{version}, Kind={kind}{why}"))
}

/// A reference with a uid is to the object that has it.
fn check_uid(reference: &Value, found: &str) -> Result<(), Status> {
    let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
    let wanted = text("uid");
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let why = format!(
        "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been deleted and then recreated"
    );
    let (group, _) = group_version(text("apiVersion"));
    Err(Status::conflict(&GroupResource::new(group, text("kind")), text("name"), why))
}

async fn bound_object(
    request: &Value,
    reference: &Value,
    objects: &dyn BoundObjects,
) -> Result<Bound, Status> {
    let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
    let (group, _) = group_version(text("apiVersion"));
    let (namespace, name) = (meta::namespace(request), text("name"));
    let (kind, resource, namespace) = match (group, text("kind")) {
        ("", "Pod") => (BoundKind::Pod, "pods", namespace),
        ("", "Secret") => (BoundKind::Secret, "secrets", namespace),
        ("", "Node") => (BoundKind::Node, "nodes", ""),
        (_, kind) => return Err(unbindable(text("apiVersion"), kind, "")),
    };
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let object = find(objects, kind, namespace, name).await?;
    let object = object.ok_or_else(|| Status::not_found(&GroupResource::new("", resource), name))?;
    let found = Reference { name: name.into(), uid: meta::uid(&object).into() };
    let bound = match kind {
        BoundKind::Pod => {
            if object.str_at(&["spec", "serviceAccountName"]).unwrap_or_default() != meta::name(request) {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
                    quote(meta::name(request))
                )));
            }
            let node = match object.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty()) {
                None => None,
                Some(node) => {
                    let stored = find(objects, BoundKind::Node, "", node).await?;
                    let uid = stored.map(|node| Str::from(meta::uid(&node))).unwrap_or_default();
                    Some(Reference { name: node.into(), uid })
                }
            };
            Bound::Pod { pod: found.clone(), node }
        }
        BoundKind::Secret => Bound::Secret(found.clone()),
        _ => Bound::Node(found.clone()),
    };
    check_uid(reference, &found.uid)?;
    Ok(bound)
}

pub(super) async fn find(
    objects: &dyn BoundObjects,
    kind: BoundKind,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<Value>>, Status> {
    objects.get(kind, namespace, name).await.map_err(Status::internal)
}

//! [`TokenRequest`]: validates requests on `serviceaccounts/token` and determines the claims of the token.

use std::pin::Pin;
use std::sync::Arc;

use api::attestation::{self, AttestationDialect, WebhookConfigurationKind};
use api::field::quote;
use api::time::Timestamp;
use api::{FieldError, GroupKind, GroupResource, Status, meta};
use value::{Path, Str, Value, format_smolstr};

use crate::tokens::claims::{BoundKind, BoundObject, ObjectReference, TokenClaims};
use crate::tokens::refusal::TokenRequestRefusal;
use crate::tokens::verify::BoundObjects;
use crate::tokens::webhook_request::WebhookToken;
use crate::user::User;

/// The `expirationSeconds` that kubelets request for pods whose clients may not reload tokens.
const EXTENDABLE_SECONDS: i64 = 60 * 60 + 7;
/// The actual lifetime of such tokens, one year.
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;
/// The audit annotation of KEP-6060 with the resource for which the permission `attest` was checked.
const KEP_ANNOTATION: &str = "webhook-authentication.k8s.io/attest-resource";
/// The default of `spec.expirationSeconds`.
const DEFAULT_SECONDS: i64 = 60 * 60;

/// Token settings from flags.
#[derive(Clone, Debug, Default)]
pub struct RequestRules {
    /// The API server's audiences.
    pub audiences: Vec<Str>,
    /// `--service-account-max-token-expiration` in seconds; 0 means no limit.
    pub max_seconds: i64,
    pub extend: bool,
    /// The feature gate [`attestation::GATE`]: tokens can be bound to webhook configurations.
    pub webhooks: bool,
}

/// Checks the permission of a service account to attest. The error is the response to the client.
pub trait Attester: Send + Sync {
    /// Checks one API group, with the resource names of the dialect.
    fn attest<'a>(
        &'a self,
        account: &'a User,
        dialect: AttestationDialect,
        group: &'a str,
    ) -> AttestFuture<'a>;
}

pub type AttestFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// A granted request: issue a token with these claims and add it to the response.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenGrant {
    pub claims: TokenClaims,
    pub warnings: Vec<Str>,
    /// Annotations for the audit event.
    pub annotations: Vec<(&'static str, String)>,
    answer: Value,
    expires: String,
}

/// A decoded request. Validating admission sees [`TokenRequest::object`].
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRequest {
    object: Value,
    now: Timestamp,
}

impl TokenRequest {
    /// Checks that name and namespace in the object, if set, match the path. Does not need the account.
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

    /// Applies defaults for the stored `account` and checks that the request is for it. Does not validate the
    /// fields.
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

    /// The request with defaults.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Looks up the object that the token is to be bound to and returns the claims. `id` is a new UUID.
    pub async fn grant(
        self,
        rules: &RequestRules,
        objects: &dyn BoundObjects,
        attester: &dyn Attester,
        id: impl Into<Str>,
    ) -> Result<TokenGrant, TokenRequestRefusal> {
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
            && matches!(bound, Some(BoundObject::Pod { .. }))
            && seconds == EXTENDABLE_SECONDS
            && audiences.iter().all(|audience| rules.audiences.contains(audience));
        let lifetime = if extended { EXTENDED_SECONDS } else { seconds };
        let claims = TokenClaims {
            namespace: meta::namespace(&object).into(),
            service_account: ObjectReference {
                name: meta::name(&object).into(),
                uid: meta::uid(&object).into(),
            },
            audiences,
            id,
            issued_at: Some(now.seconds),
            not_before: Some(now.seconds),
            expires_at: Some(now.seconds.saturating_add(lifetime)),
            warn_after: extended.then(|| now.seconds.saturating_add(seconds)),
            bound,
        };
        // The response contains the requested expiration, not the extended one.
        let expires = Timestamp::from_seconds(now.seconds.saturating_add(seconds)).time();
        Ok(TokenGrant { claims, warnings, annotations, answer: object, expires })
    }
}

impl TokenGrant {
    /// The response to the client.
    pub fn answer(mut self, token: &str) -> Value {
        self.answer.set_at(&["status", "expirationTimestamp"], self.expires);
        self.answer.set_at(&["status", "token"], token);
        self.answer
    }
}

/// Splits an apiVersion. One with more than one slash yields two empty strings, as in Kubernetes.
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

/// If the reference has a uid, it must match.
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
) -> Result<BoundObject, Status> {
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
    let found = ObjectReference { name: name.into(), uid: meta::uid(&object).into() };
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
                    Some(ObjectReference { name: node.into(), uid })
                }
            };
            BoundObject::Pod { pod: found.clone(), node }
        }
        BoundKind::Secret => BoundObject::Secret(found.clone()),
        _ => BoundObject::Node(found.clone()),
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

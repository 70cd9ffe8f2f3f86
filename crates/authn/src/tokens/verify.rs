//! [`TokenVerifier`]: verifies a signed token and returns its user.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::attestation::{self, AttestationDialect, WebhookConfigurationKind};
use api::field::quote;
use api::identities as names;
use api::meta;
use api::time::Timestamp;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine as _};
use value::{Str, Value, format_smolstr, json};

use crate::observe::TokenUse;
use crate::tokens::claims::{
    BoundKind, BoundObject, ObjectReference, TokenClaims, audiences as claimed_audiences,
};
use crate::tokens::keys::TokenVerificationKey;
use crate::tokens::legacy;
use crate::user::{User, service_account};

/// The tolerated clock skew in seconds.
pub(super) const LEEWAY: i64 = 60;

/// Maximum length of a token in bytes. A longer string is not recognized as a token.
const MAX_TOKEN: usize = 16 * 1024;

/// Access to the stored objects that tokens are bound to.
pub trait BoundObjects: Send + Sync {
    /// The stored object. `namespace` is empty for cluster-scoped kinds. An error rejects the token.
    fn get<'a>(&'a self, kind: BoundKind, namespace: &'a str, name: &'a str) -> LookupFuture<'a>;

    /// The object with at least `metadata.uid` and `metadata.deletionTimestamp`. Tokens are verified before flow
    /// control, so that this must be cheap even if the object is large.
    fn identity<'a>(&'a self, kind: BoundKind, namespace: &'a str, name: &'a str) -> LookupFuture<'a> {
        self.get(kind, namespace, name)
    }

    /// Whether an APIService of this group exists and is not being deleted.
    fn has_api_service(&self, group: &str) -> bool;
}

pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Arc<Value>>, String>> + Send + 'a>>;

#[derive(Clone)]
pub struct TokenVerifier {
    issuers: Vec<Str>,
    keys: Vec<TokenVerificationKey>,
    audiences: Vec<Str>,
    objects: Arc<dyn BoundObjects>,
    lookup: bool,
    webhooks: bool,
}

/// The content of a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    pub user: User,
    /// The requested audiences that the token is valid for.
    pub audiences: Vec<Str>,
    /// Annotations for the audit event.
    pub annotations: Vec<(&'static str, String)>,
    pub warnings: Vec<Str>,
    /// The types that it is counted as.
    pub used: Vec<TokenUse>,
    /// Namespace and name of the secret of a legacy token, whose last use is to be recorded.
    pub secret: Option<(Str, Str)>,
}

impl TokenVerifier {
    /// Accepts tokens of any of `issuers`, signed by any of `keys`. `audiences` are the API server's own.
    /// Legacy tokens are compared with the stored secret.
    pub fn new(
        issuers: Vec<Str>,
        keys: Vec<TokenVerificationKey>,
        audiences: Vec<Str>,
        objects: Arc<dyn BoundObjects>,
    ) -> Self {
        TokenVerifier { issuers, keys, audiences, objects, lookup: true, webhooks: false }
    }

    /// Accepts tokens for webhooks in reviews (feature gate [`attestation::GATE`]).
    #[must_use]
    pub fn with_webhooks(mut self) -> Self {
        self.webhooks = true;
        self
    }

    /// `--service-account-lookup=false`: legacy tokens are valid without their secret.
    #[must_use]
    pub fn without_lookup(mut self) -> Self {
        self.lookup = false;
        self
    }

    /// The audiences of the API server.
    pub fn audiences(&self) -> &[Str] {
        &self.audiences
    }

    /// Verifies a token for the `wanted` audiences, or for the API server's own. `Ok(None)` means that it is
    /// not a token of these issuers.
    pub async fn verify(
        &self,
        token: &str,
        wanted: Option<&[Str]>,
        now: SystemTime,
    ) -> Result<Option<VerifiedToken>, String> {
        let Some(parts) = JwtParts::of(token) else { return Ok(None) };
        let issuer = parts.payload.str_at(&["iss"]).unwrap_or_default();
        let legacy = issuer == legacy::ISSUER;
        if !legacy && !self.issuers.iter().any(|known| known == issuer) {
            return Ok(None);
        }
        // INVARIANT: before the signature is verified, only the issuer is read from the payload.
        self.check_signature(&parts)?;
        let audiences = claimed_audiences(&parts.payload)?;
        let mut annotations = Vec::new();
        if audiences.is_empty() {
            let subject = parts.payload.str_at(&["sub"]).unwrap_or_default();
            annotations.push(("authentication.k8s.io/legacy-token", subject.to_owned()));
        }
        let shared = self.shared_audiences(&audiences, wanted)?;
        let mut verified = if legacy {
            legacy::verify(&parts.payload, token, self.lookup, &*self.objects).await?
        } else {
            self.check_bound(&TokenClaims::from_value(&parts.payload)?, seconds(now)).await?
        };
        if audiences.is_empty() {
            verified.used.push(TokenUse::Legacy);
        }
        verified.annotations.append(&mut annotations);
        verified.audiences = shared;
        Ok(Some(verified))
    }

    fn check_signature(&self, parts: &JwtParts<'_>) -> Result<(), String> {
        let algorithm = parts.header.str_at(&["alg"]).unwrap_or_default();
        let id = parts.header.str_at(&["kid"]).unwrap_or_default();
        let mut keys = self.keys.iter().filter(|key| id.is_empty() || key.id() == id).peekable();
        if keys.peek().is_none() {
            return Err("invalid signature, no keys found".to_owned());
        }
        // A critical header extension that is not understood invalidates the token.
        if parts.header.get("crit").is_some()
            || !keys.any(|key| key.verifies(algorithm, parts.signed.as_bytes(), &parts.signature))
        {
            return Err("go-jose/go-jose: error in cryptographic primitive".to_owned());
        }
        Ok(())
    }

    /// The `wanted` audiences that a token is valid for. A token without audiences is for the API server.
    fn shared_audiences(&self, claimed: &[Str], wanted: Option<&[Str]>) -> Result<Vec<Str>, String> {
        let own = if claimed.is_empty() { &self.audiences } else { claimed };
        let wanted = wanted.unwrap_or(&self.audiences);
        // A review can name as many audiences as fit into its body, and so can a token.
        let known: HashSet<&Str> = own.iter().collect();
        let shared: Vec<Str> = wanted.iter().filter(|audience| known.contains(audience)).cloned().collect();
        if shared.is_empty() && !self.audiences.is_empty() {
            let list = |list: &[Str]| {
                let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
                format!("[{}]", items.join(" "))
            };
            return Err(format!(
                "token audiences {} is invalid for the target audiences {}",
                list(own),
                list(wanted)
            ));
        }
        Ok(shared)
    }

    async fn check_bound(&self, claims: &TokenClaims, now: i64) -> Result<VerifiedToken, String> {
        check_times(claims, now)?;
        self.check_account(claims, now).await?;
        let TokenClaims { namespace, service_account, .. } = claims;
        let mut user = service_account::user(namespace, &service_account.name, &service_account.uid);
        let mut add_extra = |key: &'static str, value: &Str| {
            if !value.is_empty() {
                user.extra.insert(Str::new_static(key), vec![value.clone()]);
            }
        };
        match &claims.bound {
            None => {}
            Some(BoundObject::Secret(secret)) => {
                self.check_object(BoundKind::Secret, ["secret"; 2], namespace, secret, now).await?;
            }
            Some(BoundObject::Pod { pod, node }) => {
                self.check_object(BoundKind::Pod, ["pod"; 2], namespace, pod, now).await?;
                add_extra(names::POD_NAME, &pod.name);
                add_extra(names::POD_UID, &pod.uid);
                if let Some(node) = node {
                    add_extra(names::NODE_NAME, &node.name);
                    add_extra(names::NODE_UID, &node.uid);
                }
            }
            Some(BoundObject::Node(node)) => {
                self.check_object(BoundKind::Node, ["node"; 2], "", node, now).await?;
                add_extra(names::NODE_NAME, &node.name);
                add_extra(names::NODE_UID, &node.uid);
            }
            Some(BoundObject::Webhooks { kind, configuration, group }) => {
                let group = self.check_webhooks(*kind, configuration, group.as_ref(), now).await?;
                let (name, uid) = match kind {
                    WebhookConfigurationKind::Validating => (names::VALIDATING_NAME, names::VALIDATING_UID),
                    WebhookConfigurationKind::Mutating => (names::MUTATING_NAME, names::MUTATING_UID),
                };
                add_extra(name, &configuration.name);
                add_extra(uid, &configuration.uid);
                user.extra.insert(Str::new_static(names::ATTESTED_GROUPS), vec![group.clone()]);
            }
        }
        if !claims.id.is_empty() {
            let id = format_smolstr!("JTI={}", claims.id);
            user.extra.insert(Str::new_static(names::CREDENTIAL_ID), vec![id]);
        }
        let mut annotations = Vec::new();
        let used = claims.warn_after.map(|time| if now > time { TokenUse::Stale } else { TokenUse::Valid });
        if let Some(warn_after) = claims.warn_after.filter(|time| now > *time) {
            let text = format!(
                "subject: {}, seconds after warning threshold: {}",
                service_account::username(namespace, &service_account.name),
                now - warn_after
            );
            annotations.push(("authentication.k8s.io/stale-token", text));
        }
        Ok(VerifiedToken {
            user,
            audiences: Vec::new(),
            annotations,
            warnings: Vec::new(),
            used: used.into_iter().collect(),
            secret: None,
        })
    }

    /// The service account must exist with the UID in the token.
    async fn check_account(&self, claims: &TokenClaims, now: i64) -> Result<(), String> {
        let TokenClaims { namespace, service_account, .. } = claims;
        let account =
            self.objects.identity(BoundKind::ServiceAccount, namespace, &service_account.name).await?;
        let account =
            account.ok_or_else(|| format!("serviceaccounts {} not found", quote(&service_account.name)))?;
        if meta::uid(&account) != service_account.uid {
            return Err(format!(
                "service account UID ({}) does not match claim ({})",
                meta::uid(&account),
                service_account.uid
            ));
        }
        if is_deleted(&account, now) {
            return Err(format!("service account {namespace}/{} has been deleted", service_account.name));
        }
        Ok(())
    }

    /// A token for webhooks is valid as long as their configuration and the API group exist. Returns the
    /// group.
    async fn check_webhooks<'c>(
        &self,
        kind: WebhookConfigurationKind,
        configuration: &ObjectReference,
        group: Option<&'c Str>,
        now: i64,
    ) -> Result<&'c Str, String> {
        if !self.webhooks {
            let gate = quote(attestation::GATE);
            return Err(format!("feature gate {gate} is disabled, but token is webhook bound"));
        }
        let group = group.ok_or_else(|| {
            let key = quote(AttestationDialect::Kubernetes.key());
            format!("bound object was a webhook config, but {key} attestation is missing")
        })?;
        let words = [kind.kind(), "validating"];
        self.check_object(BoundKind::Webhooks(kind), words, "", configuration, now).await?;
        if group != attestation::EVERY_GROUP && !self.objects.has_api_service(group) {
            return Err("service account token has been invalidated".to_owned());
        }
        Ok(group)
    }

    async fn check_object(
        &self,
        kind: BoundKind,
        [word, claim]: [&str; 2],
        namespace: &str,
        reference: &ObjectReference,
        now: i64,
    ) -> Result<(), String> {
        let invalidated = || "service account token has been invalidated".to_owned();
        let object =
            self.objects.identity(kind, namespace, &reference.name).await?.ok_or_else(invalidated)?;
        if meta::uid(&object) != reference.uid {
            return Err(format!(
                "{word} UID ({}) does not match service account {claim} ref claim ({})",
                meta::uid(&object),
                reference.uid
            ));
        }
        if is_deleted(&object, now) { Err(invalidated()) } else { Ok(()) }
    }
}

impl std::fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier")
            .field("issuers", &self.issuers)
            .field("keys", &self.keys.len())
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

fn check_times(claims: &TokenClaims, now: i64) -> Result<(), String> {
    if claims.not_before.is_some_and(|time| now + LEEWAY < time) {
        return Err("service account token is not valid yet".to_owned());
    }
    if claims.expires_at.is_some_and(|time| now - LEEWAY > time) {
        return Err("service account token has expired".to_owned());
    }
    if claims.issued_at.is_some_and(|time| now + LEEWAY < time) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// Whether the object's deletion began longer ago than [`LEEWAY`]. An invalid deletion time counts as long
/// ago.
fn is_deleted(object: &Value, now: i64) -> bool {
    let text = meta::text(object, "deletionTimestamp");
    !text.is_empty() && Timestamp::parse(text).map_or(true, |time| time.seconds < now - LEEWAY)
}

pub(super) fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// A decoded JWT whose signature is not verified yet.
struct JwtParts<'a> {
    header: Value,
    payload: Value,
    signature: Vec<u8>,
    signed: &'a str,
}

impl<'a> JwtParts<'a> {
    /// `None` if this is not a JWT.
    fn of(token: &'a str) -> Option<Self> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let object = |text: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let read = json::read(&bytes).ok()?;
            // JSON with duplicate keys is ambiguous and therefore rejected.
            (read.duplicates.is_empty() && read.value.as_map().is_some()).then_some(read.value)
        };
        Some(JwtParts {
            header: object(header)?,
            payload: object(payload)?,
            signature: match URL_SAFE_NO_PAD.decode(signature) {
                Ok(signature) => signature,
                // A signature with non-zero trailing bits is another encoding of the same bytes. An empty
                // signature is returned, which never verifies.
                Err(DecodeError::InvalidLastSymbol(..)) => Vec::new(),
                Err(_) => return None,
            },
            signed,
        })
    }
}

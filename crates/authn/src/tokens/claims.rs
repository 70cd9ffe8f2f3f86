//! [`TokenClaims`]: the claims of a token.

use api::attestation::{AttestationDialect, WebhookConfigurationKind};
use value::{Map, Str, Value};

use crate::user::service_account;

/// An object by name and uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub name: Str,
    pub uid: Str,
}

/// The kinds of stored objects that a token can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundKind {
    /// The token's own service account; every token is bound to it.
    ServiceAccount,
    Pod,
    Secret,
    Node,
    /// A validating or mutating webhook configuration.
    Webhooks(WebhookConfigurationKind),
}

/// The object that a token is bound to, besides its service account. The token becomes invalid with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundObject {
    /// A pod and, if known, its node, whose uid may be empty.
    Pod {
        pod: ObjectReference,
        node: Option<ObjectReference>,
    },
    Secret(ObjectReference),
    Node(ObjectReference),
    /// A webhook configuration: the token authenticates an API server to its webhooks.
    Webhooks {
        kind: WebhookConfigurationKind,
        configuration: ObjectReference,
        /// The API group about which webhooks may be called; `*` for all. Tokens without it are neither
        /// issued nor accepted.
        group: Option<Str>,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenClaims {
    /// The service account's namespace.
    pub namespace: Str,
    pub service_account: ObjectReference,
    pub audiences: Vec<Str>,
    /// The claim `jti`, a UUID.
    pub id: Str,
    /// Seconds since the Unix epoch, like all times here.
    pub issued_at: Option<i64>,
    pub not_before: Option<i64>,
    pub expires_at: Option<i64>,
    /// After this time, use of the token is counted as stale.
    pub warn_after: Option<i64>,
    pub bound: Option<BoundObject>,
}

impl TokenClaims {
    /// The payload of the JWT.
    pub(super) fn to_value(&self, issuer: &str) -> Value {
        let mut kubernetes = Map::new();
        kubernetes.insert("namespace", self.namespace.clone());
        kubernetes.insert("serviceaccount", self.service_account.to_value());
        match &self.bound {
            None => {}
            Some(BoundObject::Pod { pod, node }) => {
                kubernetes.insert("pod", pod.to_value());
                if let Some(node) = node {
                    kubernetes.insert("node", node.to_value());
                }
            }
            Some(BoundObject::Secret(secret)) => {
                kubernetes.insert("secret", secret.to_value());
            }
            Some(BoundObject::Node(node)) => {
                kubernetes.insert("node", node.to_value());
            }
            Some(BoundObject::Webhooks { kind, configuration, group }) => {
                for dialect in AttestationDialect::ALL {
                    kubernetes.insert(kind.claim(dialect), configuration.to_value());
                    if let Some(group) = group {
                        let groups = Value::List(vec![Value::String(group.clone())]);
                        kubernetes.insert(dialect.field(), Value::map([(dialect.key(), groups)]));
                    }
                }
            }
        }
        if let Some(warn_after) = self.warn_after {
            kubernetes.insert("warnafter", warn_after);
        }
        let mut out = Map::new();
        if !self.audiences.is_empty() {
            out.insert("aud", Value::List(self.audiences.iter().cloned().map(Value::String).collect()));
        }
        for (claim, time) in [("exp", self.expires_at), ("iat", self.issued_at), ("nbf", self.not_before)] {
            if let Some(time) = time {
                out.insert(claim, time);
            }
        }
        out.insert("iss", issuer);
        if !self.id.is_empty() {
            out.insert("jti", self.id.clone());
        }
        out.insert("kubernetes.io", kubernetes);
        out.insert("sub", service_account::username(&self.namespace, &self.service_account.name));
        Value::Map(out)
    }

    /// Decodes a payload whose signature has been verified. A claim of the wrong type is an error: if it
    /// counted as absent, a token with an invalid `exp` would never expire.
    pub(super) fn from_value(payload: &Value) -> Result<Self, &'static str> {
        let kubernetes = payload
            .at(&["kubernetes.io"])
            .filter(|v| !v.is_null())
            .cloned()
            .unwrap_or(Value::map::<Str, Value>([]));
        let reference = |field: &str| reference(&kubernetes, field);
        let (pod, node, secret) = (reference("pod")?, reference("node")?, reference("secret")?);
        let bound = match (pod, node, secret, webhooks(&kubernetes)?) {
            (None, None, None, None) => None,
            (Some(pod), node, None, None) => Some(BoundObject::Pod { pod, node }),
            (None, Some(node), None, None) => Some(BoundObject::Node(node)),
            (None, None, Some(secret), None) => Some(BoundObject::Secret(secret)),
            (None, None, None, webhooks) => webhooks,
            _ => return Err("token can only be bound to one object type"),
        };
        Ok(TokenClaims {
            namespace: text(&kubernetes, "namespace")?,
            service_account: reference("serviceaccount")?.unwrap_or_default(),
            audiences: audiences(payload)?,
            id: text(payload, "jti")?,
            issued_at: time(payload, "iat")?,
            not_before: time(payload, "nbf")?,
            expires_at: time(payload, "exp")?,
            warn_after: time(&kubernetes, "warnafter")?.filter(|time| *time != 0),
            bound,
        })
    }
}

impl ObjectReference {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (field, text) in [("name", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                out.insert(field, text.clone());
            }
        }
        Value::Map(out)
    }
}

fn reference(kubernetes: &Value, field: &str) -> Result<Option<ObjectReference>, &'static str> {
    let value = kubernetes.get(field).filter(|value| !value.is_null());
    value
        .map(|value| Ok(ObjectReference { name: text(value, "name")?, uid: text(value, "uid")? }))
        .transpose()
}

/// The webhook configuration that a token is bound to. If the token has claims in both dialects, they must
/// agree: otherwise two verifiers could read it differently.
fn webhooks(kubernetes: &Value) -> Result<Option<BoundObject>, &'static str> {
    let mut found: Option<(WebhookConfigurationKind, ObjectReference)> = None;
    let mut group: Option<Str> = None;
    for dialect in AttestationDialect::ALL {
        for kind in WebhookConfigurationKind::ALL {
            let Some(reference) = reference(kubernetes, kind.claim(dialect))? else { continue };
            let this = (kind, reference);
            if found.as_ref().is_some_and(|other| *other != this) {
                return Err("the token is bound to more than one webhook configuration");
            }
            found = Some(this);
        }
        let attested = kubernetes.at(&[dialect.field(), dialect.key()]).filter(|value| !value.is_null());
        match attested.map(Value::as_list) {
            None | Some(Some([])) => {}
            Some(Some([Value::String(this)])) if group.as_ref().is_none_or(|other| other == this) => {
                group = Some(this.clone());
            }
            Some(_) => return Err("the token does not attest exactly one API group"),
        }
    }
    Ok(found.map(|(kind, configuration)| BoundObject::Webhooks { kind, configuration, group }))
}

pub(super) fn text(value: &Value, field: &str) -> Result<Str, &'static str> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(Str::default()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err("token claims are malformed"),
    }
}

fn time(value: &Value, field: &str) -> Result<Option<i64>, &'static str> {
    match value.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Int(seconds)) => Ok(Some(*seconds)),
        #[expect(clippy::cast_possible_truncation, reason = "within what an f64 holds exactly")]
        Some(Value::Float(seconds)) if seconds.abs() < 9e15 => Ok(Some(*seconds as i64)),
        Some(_) => Err("token claims are malformed"),
    }
}

pub(super) fn audiences(payload: &Value) -> Result<Vec<Str>, &'static str> {
    match payload.get("aud") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::List(list)) => {
            list.iter().map(|item| item.as_str().map(Str::from).ok_or("token claims are malformed")).collect()
        }
        Some(_) => Err("token claims are malformed"),
    }
}

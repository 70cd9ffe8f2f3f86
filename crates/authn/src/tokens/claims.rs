//! [`Claims`]: what a token says, and its JSON.

use api::attestation::{AttestationDialect, WebhookConfigurationKind};
use value::{Map, Str, Value};

use crate::user::service_account;

/// An object by name and uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The name.
    pub name: Str,
    /// The uid.
    pub uid: Str,
}

/// The kinds of stored objects a token can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundKind {
    /// Every token: whose it is.
    ServiceAccount,
    /// The pod that uses it.
    Pod,
    /// The secret that holds it.
    Secret,
    /// The node that uses it.
    Node,
    /// The configuration of the webhooks that it is shown to.
    Webhooks(WebhookConfigurationKind),
}

/// The object a token lives and dies with, besides its service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A pod, and the node it runs on where that is known (its uid may be empty).
    Pod {
        /// The pod.
        pod: Reference,
        /// The node.
        node: Option<Reference>,
    },
    /// A secret.
    Secret(Reference),
    /// A node.
    Node(Reference),
    /// A configuration of webhooks: the token tells them on whose behalf they are asked.
    Webhooks {
        /// Of which kind.
        kind: WebhookConfigurationKind,
        /// The configuration.
        configuration: Reference,
        /// The API group whose objects they may be asked about, `*` for all. Tokens are not issued without, and not believed.
        group: Option<Str>,
    },
}

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The service account's namespace.
    pub namespace: Str,
    /// The service account.
    pub service_account: Reference,
    /// Whom the token is for.
    pub audiences: Vec<Str>,
    /// A unique id.
    pub id: Str,
    /// When it was issued, in seconds since 1970.
    pub issued_at: Option<i64>,
    /// From when it may be used.
    pub not_before: Option<i64>,
    /// Until when it may be used.
    pub expires_at: Option<i64>,
    /// From when its use is noted as stale.
    pub warn_after: Option<i64>,
    /// What else it lives and dies with.
    pub bound: Option<Bound>,
}

impl Claims {
    /// The payload of a token.
    pub(super) fn to_value(&self, issuer: &str) -> Value {
        let mut kubernetes = Map::new();
        kubernetes.insert("namespace", self.namespace.clone());
        kubernetes.insert("serviceaccount", self.service_account.to_value());
        match &self.bound {
            None => {}
            Some(Bound::Pod { pod, node }) => {
                kubernetes.insert("pod", pod.to_value());
                if let Some(node) = node {
                    kubernetes.insert("node", node.to_value());
                }
            }
            Some(Bound::Secret(secret)) => {
                kubernetes.insert("secret", secret.to_value());
            }
            Some(Bound::Node(node)) => {
                kubernetes.insert("node", node.to_value());
            }
            Some(Bound::Webhooks { kind, configuration, group }) => {
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

    /// Reads a payload whose signature has been verified. A claim of the wrong type is an error: it would otherwise count as
    /// absent, and an absent `exp` never expires.
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
            (Some(pod), node, None, None) => Some(Bound::Pod { pod, node }),
            (None, Some(node), None, None) => Some(Bound::Node(node)),
            (None, None, Some(secret), None) => Some(Bound::Secret(secret)),
            (None, None, None, webhooks) => webhooks,
            _ => return Err("token can only be bound to one object type"),
        };
        Ok(Claims {
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

impl Reference {
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

fn reference(kubernetes: &Value, field: &str) -> Result<Option<Reference>, &'static str> {
    let value = kubernetes.get(field).filter(|value| !value.is_null());
    value.map(|value| Ok(Reference { name: text(value, "name")?, uid: text(value, "uid")? })).transpose()
}

/// The configuration of webhooks that a token is bound to. What it says twice, in two sets of names, it must say the same way: else
/// two readers would believe two things.
fn webhooks(kubernetes: &Value) -> Result<Option<Bound>, &'static str> {
    let mut found: Option<(WebhookConfigurationKind, Reference)> = None;
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
    Ok(found.map(|(kind, configuration)| Bound::Webhooks { kind, configuration, group }))
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

//! [`Claims`]: what a token says, and its JSON.

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
        let reference = |field: &str| {
            kubernetes
                .at(&[field])
                .filter(|v| !v.is_null())
                .map(|value| Ok(Reference { name: text(value, "name")?, uid: text(value, "uid")? }))
                .transpose()
        };
        for webhook in [
            "validatingwebhookconfiguration",
            "mutatingwebhookconfiguration",
            "validatingWebhookConfiguration",
            "mutatingWebhookConfiguration",
        ] {
            // Such a token authenticates the server to a webhook, never a client to the server.
            if kubernetes.at(&[webhook]).is_some() {
                return Err(
                    "feature gate \"APIServerWebhookAuthenticationToken\" is disabled, but token is webhook bound",
                );
            }
        }
        let (pod, node, secret) = (reference("pod")?, reference("node")?, reference("secret")?);
        let bound = match (pod, node, secret) {
            (None, None, None) => None,
            (Some(pod), node, None) => Some(Bound::Pod { pod, node }),
            (None, Some(node), None) => Some(Bound::Node(node)),
            (None, None, Some(secret)) => Some(Bound::Secret(secret)),
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

fn audiences(payload: &Value) -> Result<Vec<Str>, &'static str> {
    match payload.get("aud") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::List(list)) => {
            list.iter().map(|item| item.as_str().map(Str::from).ok_or("token claims are malformed")).collect()
        }
        Some(_) => Err("token claims are malformed"),
    }
}

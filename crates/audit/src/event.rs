//! [`Event`]: the audit data of one request and its encoding as a log line.
//!
//! Field order and value formats are byte for byte those of kube-apiserver's `audit.k8s.io/v1` logs, because
//! log readers were written against these.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use api::field::quote;
use api::time::Timestamp;
use authn::User;
use bytes::Bytes;
use http::HeaderMap;
use value::{Str, Value, write};

use super::policy::{AuditStage, Level};

/// Maximum bytes of the user agent that are recorded.
const MAX_USER_AGENT: usize = 1024;

/// All data of an audit event except its stage.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) level: Level,
    pub(super) id: Str,
    pub(super) uri: String,
    pub(super) verb: Str,
    pub(super) user: User,
    pub(super) impersonated: Option<Impersonated>,
    pub(super) source_ips: Vec<IpAddr>,
    pub(super) user_agent: String,
    pub(super) object: Option<AuditObjectRef>,
    pub(super) status: Option<ResponseStatus>,
    pub(super) request_object: Option<Bytes>,
    pub(super) response_object: Option<Bytes>,
    /// Time of arrival in microseconds since the Unix epoch.
    pub(super) received: i64,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The impersonated user, and the constraint that allowed the impersonation.
#[derive(Clone, Debug)]
pub(super) struct Impersonated {
    pub(super) user: User,
    pub(super) constraint: Str,
}

/// The object that a request refers to.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditObjectRef {
    pub(super) resource: Str,
    pub(super) namespace: Str,
    pub(super) name: Str,
    pub(super) uid: Str,
    pub(super) group: Str,
    pub(super) version: Str,
    pub(super) resource_version: Str,
    pub(super) subresource: Str,
}

/// The status code of the response, and the fields of its `Status` if any.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseStatus {
    pub(super) status: Str,
    pub(super) message: String,
    pub(super) reason: Str,
    pub(super) details: Option<Value>,
    pub(super) code: u16,
}

impl ResponseStatus {
    /// Reads the `Status` of a response.
    pub(super) fn of(status: &Value) -> Self {
        let text = |field: &str| status.str_at(&[field]).unwrap_or_default();
        ResponseStatus {
            status: text("status").into(),
            message: text("message").to_owned(),
            reason: text("reason").into(),
            details: status.at(&["details"]).cloned(),
            code: status.int_at(&["code"]).and_then(|code| u16::try_from(code).ok()).unwrap_or(0),
        }
    }
}

impl Event {
    /// Encodes the event as a line of JSON. `at` is the stage's time in microseconds since the Unix epoch.
    pub(super) fn json(&self, stage: AuditStage, at: i64) -> Vec<u8> {
        let mut out = AuditJsonWriter::begin();
        out.text("kind", "Event");
        out.text("apiVersion", "audit.k8s.io/v1");
        out.text("level", self.level.as_str());
        out.text("auditID", &self.id);
        out.text("stage", stage.as_str());
        out.text("requestURI", &self.uri);
        out.text("verb", &self.verb);
        out.raw("user", &user(&self.user));
        if let Some(impersonated) = &self.impersonated {
            out.raw("impersonatedUser", &user(&impersonated.user));
            if !impersonated.constraint.is_empty() {
                let mut metadata = AuditJsonWriter::begin();
                metadata.text("impersonationConstraint", &impersonated.constraint);
                out.raw("authenticationMetadata", &metadata.end());
            }
        }
        out.list("sourceIPs", self.source_ips.iter().map(ToString::to_string));
        out.given("userAgent", &self.user_agent);
        if let Some(object) = &self.object {
            out.raw("objectRef", &object.json());
        }
        if let Some(status) = &self.status {
            out.raw("responseStatus", &status.json());
        }
        if let Some(object) = &self.request_object {
            out.raw("requestObject", object);
        }
        if let Some(object) = &self.response_object {
            out.raw("responseObject", object);
        }
        out.text("requestReceivedTimestamp", &Timestamp::from_micros(self.received).micro_time());
        out.text("stageTimestamp", &Timestamp::from_micros(at).micro_time());
        if !self.annotations.is_empty() {
            let mut annotations = AuditJsonWriter::begin();
            for (key, value) in &self.annotations {
                annotations.text(key, value);
            }
            out.raw("annotations", &annotations.end());
        }
        let mut line = out.end();
        line.push(b'\n');
        line
    }

    /// Encodes the event as a line of `--audit-log-format=legacy`.
    pub(super) fn legacy(&self, stage: AuditStage) -> Vec<u8> {
        let groups = |user: &User| user.groups.iter().map(|g| quote(g)).collect::<Vec<_>>().join(",");
        let named = !self.user.name.is_empty();
        let none = || "<none>".to_owned();
        let (name, own_groups) = match (named, self.user.groups.is_empty()) {
            (false, _) => (none(), none()),
            (true, true) => (self.user.name.to_string(), none()),
            (true, false) => (self.user.name.to_string(), groups(&self.user)),
        };
        let (acting, acting_groups) = match &self.impersonated {
            None => ("<self>".to_owned(), "<lookup>".to_owned()),
            Some(i) => (i.user.name.to_string(), groups(&i.user)),
        };
        let namespace = self.object.as_ref().map(|o| o.namespace.to_string()).filter(|n| !n.is_empty());
        let response = self.status.as_ref().map_or("<deferred>".to_owned(), |s| s.code.to_string());
        let ip = self.source_ips.first().map_or("<unknown>".to_owned(), ToString::to_string);
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            line,
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={} as={} asgroups={} user-agent={} namespace={} uri={} response=\"{response}\"",
            Timestamp::from_micros(self.received).nano_time(),
            quote(&self.id),
            quote(stage.as_str()),
            quote(&ip),
            quote(&self.verb),
            quote(&name),
            quote(&own_groups),
            quote(&acting),
            quote(&acting_groups),
            quote(&self.user_agent),
            quote(&namespace.unwrap_or_else(none)),
            quote(&self.uri),
        );
        line.into_bytes()
    }
}

/// Source addresses: those from proxy headers, then the connection's own unless it is already the last one.
pub(super) fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<IpAddr> {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let parse = |text: &str| text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let mut ips: Vec<IpAddr> =
        header("x-forwarded-for").split(',').filter_map(|part| parse(part.trim())).collect();
    if let Some(ip) = parse(header("x-real-ip"))
        && !ips.contains(&ip)
    {
        ips.push(ip);
    }
    let peer = peer.to_canonical();
    if ips.last() != Some(&peer) {
        ips.push(peer);
    }
    ips
}

/// The user agent, truncated to [`MAX_USER_AGENT`] bytes.
pub(super) fn user_agent(headers: &HeaderMap) -> String {
    let sent = headers.get(http::header::USER_AGENT).map(http::HeaderValue::as_bytes).unwrap_or_default();
    match sent.get(..MAX_USER_AGENT) {
        Some(head) if sent.len() > MAX_USER_AGENT => {
            format!("{}...TRUNCATED", String::from_utf8_lossy(head))
        }
        _ => String::from_utf8_lossy(sent).into_owned(),
    }
}

fn user(user: &User) -> Vec<u8> {
    let mut out = AuditJsonWriter::begin();
    out.given("username", &user.name);
    out.given("uid", &user.uid);
    out.list("groups", user.groups.iter().map(ToString::to_string));
    if !user.extra.is_empty() {
        let mut extra = AuditJsonWriter::begin();
        for (key, values) in &user.extra {
            extra.raw(key, &write::to_vec(&Value::list(values.iter().cloned())));
        }
        out.raw("extra", &extra.end());
    }
    out.end()
}

impl AuditObjectRef {
    fn json(&self) -> Vec<u8> {
        let mut out = AuditJsonWriter::begin();
        out.given("resource", &self.resource);
        out.given("namespace", &self.namespace);
        out.given("name", &self.name);
        out.given("uid", &self.uid);
        out.given("apiGroup", &self.group);
        out.given("apiVersion", &self.version);
        out.given("resourceVersion", &self.resource_version);
        out.given("subresource", &self.subresource);
        out.end()
    }
}

impl ResponseStatus {
    fn json(&self) -> Vec<u8> {
        let mut out = AuditJsonWriter::begin();
        out.raw("metadata", b"{}");
        out.given("status", &self.status);
        out.given("message", &self.message);
        out.given("reason", &self.reason);
        if let Some(details) = &self.details {
            out.raw("details", &ordered_details(details));
        }
        if self.code != 0 {
            out.raw("code", self.code.to_string().as_bytes());
        }
        out.end()
    }
}

/// Encodes the details of a `Status` in the field order of kube-apiserver.
fn ordered_details(details: &Value) -> Vec<u8> {
    let mut out = AuditJsonWriter::begin();
    out.fields(details, &["name", "group", "kind", "uid"]);
    if let Some(Value::List(causes)) = details.at(&["causes"]) {
        let causes: Vec<Vec<u8>> = causes
            .iter()
            .map(|cause| {
                let mut out = AuditJsonWriter::begin();
                out.fields(cause, &["reason", "message", "field"]);
                out.end()
            })
            .collect();
        let mut list = vec![b'['];
        list.extend_from_slice(&causes.join(&b','));
        list.push(b']');
        out.raw("causes", &list);
    }
    out.fields(details, &["retryAfterSeconds"]);
    out.end()
}

/// Builds a JSON object with fields in insertion order.
struct AuditJsonWriter(Vec<u8>);

impl AuditJsonWriter {
    fn begin() -> Self {
        AuditJsonWriter(vec![b'{'])
    }

    fn raw(&mut self, key: &str, json: &[u8]) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write::string(&mut self.0, key);
        self.0.push(b':');
        self.0.extend_from_slice(json);
    }

    fn text(&mut self, key: &str, text: &str) {
        let mut json = Vec::with_capacity(text.len() + 2);
        write::string(&mut json, text);
        self.raw(key, &json);
    }

    /// Adds the field unless `text` is empty.
    fn given(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.text(key, text);
        }
    }

    fn list(&mut self, key: &str, items: impl Iterator<Item = String>) {
        let items: Vec<Value> = items.map(Value::from).collect();
        if !items.is_empty() {
            self.raw(key, &write::to_vec(&Value::List(items)));
        }
    }

    fn fields(&mut self, object: &Value, keys: &[&str]) {
        for key in keys {
            if let Some(value) = object.get(key) {
                self.raw(key, &write::to_vec(value));
            }
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

//! What a request asks for, read from its method, path and query alone.
//!
//! Pure parsing: it knows no resource and asks no store, because the caller has not been authorized yet. The rules are those
//! of Kubernetes' `RequestInfo`; authorization, audit and routing all look at this one result.

use std::borrow::Cow;

use value::{Str, text};

/// A request's method, path and query, understood as an API request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Whether the path names a resource; all else below but `path` and `verb` is empty if not.
    pub is_resource: bool,
    /// The path as sent.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, …; the lower-case HTTP method for paths that name no resource.
    pub verb: Str,
    /// `api` or `apis`.
    pub prefix: Str,
    /// The API group; empty for the core group.
    pub group: Str,
    /// The API version.
    pub version: Str,
    /// The namespace; empty for cluster-wide requests.
    pub namespace: Str,
    /// The plural resource name.
    pub resource: Str,
    /// `status`, `scale`, `log`, …
    pub subresource: Str,
    /// The object's name.
    pub name: Str,
    /// All path segments from the resource on.
    pub parts: Vec<Str>,
    /// Whether the resource stands below a namespace in the path (`namespaces/NS/RESOURCE`).
    pub in_namespace: bool,
    /// Whether the path has the old `watch/` prefix.
    pub watch_prefix: bool,
    /// The HTTP method.
    pub method: http::Method,
    /// The `labelSelector` of a list, watch or deletecollection.
    pub label_selector: String,
    /// The `fieldSelector` of a list, watch or deletecollection.
    pub field_selector: String,
}

impl RequestInfo {
    /// Reads a request. `path` is percent-decoded; `query` gives a decoded parameter.
    pub fn parse(method: &http::Method, path: &str, query: &Query) -> Self {
        let mut info = RequestInfo {
            path: path.to_owned(),
            verb: method.as_str().to_ascii_lowercase().into(),
            method: method.clone(),
            ..Self::default()
        };
        let segments: Vec<&str> = split_path(path);
        let (mut parts, grouped) = match segments.as_slice() {
            ["api", rest @ ..] if segments.len() >= 3 => (rest, false),
            ["apis", rest @ ..] if segments.len() >= 4 => (rest, true),
            _ => return info,
        };
        info.prefix = if grouped { "apis".into() } else { "api".into() };
        if grouped && let [group, rest @ ..] = parts {
            info.group = (*group).into();
            parts = rest;
        }
        let [version, rest @ ..] = parts else { return info };
        info.is_resource = true;
        info.version = (*version).into();
        parts = rest;

        let mut special = "";
        match parts {
            [verb @ ("proxy" | "watch"), rest @ ..] if !rest.is_empty() => {
                special = verb;
                info.verb = (*verb).into();
                parts = rest;
            }
            _ => {
                info.verb = match *method {
                    http::Method::POST => "create",
                    http::Method::GET | http::Method::HEAD => "get",
                    http::Method::PUT => "update",
                    http::Method::PATCH => "patch",
                    http::Method::DELETE => "delete",
                    _ => "",
                }
                .into();
            }
        }
        if let ["namespaces", namespace, rest @ ..] = parts {
            info.namespace = (*namespace).into();
            // `namespaces/NAME/status` is about the namespace itself; anything else is a resource inside it.
            if let [first, ..] = rest
                && !matches!(*first, "status" | "finalize")
            {
                parts = rest;
                info.in_namespace = true;
            }
        }
        info.watch_prefix = special == "watch";
        info.parts = parts.iter().map(|part| Str::from(*part)).collect();
        if let [resource, rest @ ..] = parts {
            info.resource = (*resource).into();
            if let [name, rest @ ..] = rest {
                info.name = (*name).into();
                if let [subresource, ..] = rest
                    && special != "proxy"
                {
                    info.subresource = (*subresource).into();
                }
            }
        }
        if info.name.is_empty() && info.verb == "get" {
            info.verb = if query.is_true("watch") { "watch" } else { "list" }.into();
        }
        if info.name.is_empty() && info.verb == "delete" {
            info.verb = "deletecollection".into();
        }
        if matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
            query.get("labelSelector").unwrap_or_default().clone_into(&mut info.label_selector);
            query.get("fieldSelector").unwrap_or_default().clone_into(&mut info.field_selector);
            // A list of one named object is authorized under that name.
            if info.name.is_empty()
                && info.verb != "deletecollection"
                && !info.watch_prefix
                && let Some(name) = single_name(query)
            {
                info.name = name;
            }
        }
        info
    }

    /// Whether the request may last as long as its client likes, so that it takes no seat and no deadline.
    pub fn is_long_running(&self) -> bool {
        matches!(self.verb.as_str(), "watch" | "proxy")
            || (self.is_resource
                && matches!(self.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward"))
    }

    /// The name in the path; a name that a field selector gives is not one.
    pub fn path_name(&self) -> Option<&str> {
        self.parts.get(1).map(Str::as_str)
    }

    /// Whether the request only reads.
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch" | "head" | "options")
    }
}

/// The non-empty segments of a path; a trailing slash says nothing.
fn split_path(path: &str) -> Vec<&str> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() }
}

/// The `X` of a field selector that requires `metadata.name=X`, if all options of the list can be read and a path could name it.
fn single_name(query: &Query) -> Option<Str> {
    let text = |name: &str| query.get(name).unwrap_or_default();
    let fields = text("fieldSelector");
    if fields.is_empty() || api::selector::LabelSelector::parse(text("labelSelector")).is_err() {
        return None;
    }
    if ["limit", "timeoutSeconds"]
        .iter()
        .any(|name| !text(name).is_empty() && text(name).parse::<i64>().is_err())
    {
        return None;
    }
    let fields = api::selector::FieldSelector::parse(fields).ok()?;
    let required = fields.requirements().iter().find(|r| r.equals && r.field == "metadata.name")?;
    api::names::is_path_segment_name(&required.value).is_empty().then(|| required.value.clone())
}

/// The decoded parameters of a query string, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// The most parameters looked at; the rest of a longer query is ignored.
    const MAX: usize = 256;

    /// Reads `a=b&c=d`. As in Go, a pair with a semicolon is none, because some take that for another separator; nor is one with an
    /// escape that stands for nothing.
    pub fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| {
                !pair.is_empty() && !pair.contains(';') && text::bad_percent_escape(pair).is_none()
            })
            .take(Self::MAX)
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (percent_decode(key, true), percent_decode(value, true))
            })
            .collect();
        Query { pairs }
    }

    /// Everything that was looked at, in order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Whether a boolean parameter is set: present, and neither `false` nor `0` (Kubernetes reads `?watch` as true).
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

/// Percent-decodes; bytes that are not UTF-8 afterwards become U+FFFD, which no name contains.
pub fn percent_decode(text: &str, plus_is_space: bool) -> String {
    let text =
        if plus_is_space && text.contains('+') { text.replace('+', " ").into() } else { Cow::Borrowed(text) };
    String::from_utf8_lossy(&text::percent_decode(&text)).into_owned()
}

/// Whether a server could read a path as another one: it has an empty segment other than the last one, or one that is `.` or
/// `..`, with or without parameters after a semicolon; or it has a backslash, which some take for a slash, or a control character.
/// No object has such a name.
pub(crate) fn has_other_readings(path: &str) -> bool {
    let below = path.strip_prefix('/').unwrap_or(path);
    let below = below.strip_suffix('/').unwrap_or(below);
    let mut names = below.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    names.any(|name| matches!(name, "" | "." | "..")) || path.contains(|c: char| c == '\\' || c.is_control())
}

/// A path without empty steps, `.` and `..`, and without a slash at its end.
pub(crate) fn clean_path(path: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            step => steps.push(step),
        }
    }
    format!("/{}", steps.join("/"))
}

#[cfg(test)]
#[path = "request_info/tests.rs"]
mod tests;

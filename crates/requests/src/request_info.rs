//! Parses the request attributes from the method, path and query alone.
//!
//! The parser knows no resources and accesses no store, because the user is not authorized yet. The rules are
//! those of kube-apiserver's `RequestInfo`; authorization, audit and routing all use this one result.

mod selector_parameter;

use api::selector::{FieldSelector, LabelSelector};
use value::go::url::query_pairs;
use value::{Str, text};

pub use selector_parameter::SelectorParameter;

/// The path that streams a snapshot of the store.
pub const SNAPSHOT_PATH: &str = "/portcullis/snapshot";

/// A request's method, path and query, parsed as an API request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// True if the path names a resource. Otherwise only `path`, `verb` and `method` are set.
    pub is_resource: bool,
    /// The path, percent-decoded but not normalized.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, …; the lower-case HTTP method for non-resource paths.
    pub verb: Str,
    /// Either `api` or `apis`.
    pub prefix: Str,
    /// The API group; empty for the core group.
    pub group: Str,
    pub version: Str,
    /// Empty for requests across namespaces and for cluster-scoped resources.
    pub namespace: Str,
    pub resource: Str,
    /// For example `status`, `scale` or `log`.
    pub subresource: Str,
    /// The object's name, from the path or a `metadata.name` field selector.
    pub name: Str,
    /// All path segments from the resource on.
    pub parts: Vec<Str>,
    /// True if the path has the form `namespaces/NS/RESOURCE`.
    pub in_namespace: bool,
    /// True if the path has the deprecated `watch/` prefix.
    pub watch_prefix: bool,
    pub method: http::Method,
    /// `labelSelector` of a list, watch or deletecollection.
    pub label_selector: SelectorParameter<LabelSelector>,
    /// `fieldSelector` of a list, watch or deletecollection.
    pub field_selector: SelectorParameter<FieldSelector>,
}

impl RequestInfo {
    /// Parses a request. `path` must be percent-decoded.
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

        let prefix_verb = match parts {
            [verb @ ("proxy" | "watch"), rest @ ..] if !rest.is_empty() => {
                parts = rest;
                Some(*verb)
            }
            _ => None,
        };
        info.verb = prefix_verb.unwrap_or_else(|| verb_of_method(method)).into();
        info.watch_prefix = prefix_verb == Some("watch");
        info.parse_resource(parts, prefix_verb == Some("proxy"));
        info.apply_query(query);
        info
    }

    /// Sets namespace, resource, name and subresource from the segments after the version. The deprecated `proxy/` prefix has no
    /// subresources.
    fn parse_resource(&mut self, mut parts: &[&str], is_proxy: bool) {
        if let ["namespaces", namespace, rest @ ..] = parts {
            self.namespace = (*namespace).into();
            // `namespaces/NAME/status` refers to the namespace itself; other segments are resources inside
            // it.
            if let [first, ..] = rest
                && !matches!(*first, "status" | "finalize")
            {
                parts = rest;
                self.in_namespace = true;
            }
        }
        self.parts = parts.iter().map(|part| Str::from(*part)).collect();
        let mut parts = parts.iter().map(|part| Str::from(*part));
        self.resource = parts.next().unwrap_or_default();
        self.name = parts.next().unwrap_or_default();
        if !is_proxy {
            self.subresource = parts.next().unwrap_or_default();
        }
    }

    /// Turns `get` and `delete` without a name into the verbs for collections, and sets the selectors of those.
    fn apply_query(&mut self, query: &Query) {
        if self.name.is_empty() && self.verb == "get" {
            self.verb = if query.is_true("watch") { "watch" } else { "list" }.into();
        }
        if self.name.is_empty() && self.verb == "delete" {
            self.verb = "deletecollection".into();
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection") {
            self.label_selector = SelectorParameter::new(query.get("labelSelector").unwrap_or_default());
            self.field_selector = SelectorParameter::new(query.get("fieldSelector").unwrap_or_default());
            // A list that selects one name is authorized for that name.
            if self.name.is_empty()
                && self.verb != "deletecollection"
                && !self.watch_prefix
                && let Some(name) = self.single_name(query)
            {
                self.name = name;
            }
        }
    }

    /// The `X` of a field selector with `metadata.name=X`, if all list options are valid and a path can contain
    /// `X`.
    fn single_name(&self, query: &Query) -> Option<Str> {
        let text = |name: &str| query.get(name).unwrap_or_default();
        if self.field_selector.text().is_empty() || self.label_selector.parsed().is_err() {
            return None;
        }
        if ["limit", "timeoutSeconds"]
            .iter()
            .any(|name| !text(name).is_empty() && text(name).parse::<i64>().is_err())
        {
            return None;
        }
        let fields = self.field_selector.parsed().as_ref().ok()?;
        let required = fields.requirements().iter().find(|r| r.equals && r.field == "metadata.name")?;
        api::names::is_path_segment_name(&required.value).is_empty().then(|| required.value.clone())
    }

    /// True if the client determines the duration, so that neither in-flight limits nor a deadline apply.
    pub fn is_long_running(&self) -> bool {
        matches!(self.verb.as_str(), "watch" | "proxy")
            || (self.verb == "post" && self.path == SNAPSHOT_PATH)
            || (self.is_resource
                && matches!(self.subresource.as_str(), "attach" | "exec" | "proxy" | "log" | "portforward"))
    }

    /// The name in the path, without one from a field selector.
    pub fn path_name(&self) -> Option<&str> {
        self.parts.get(1).map(Str::as_str)
    }

    /// True for verbs that never write.
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch" | "head" | "options")
    }
}

/// Splits a path into segments; ignores leading and trailing slashes.
fn split_path(path: &str) -> Vec<&str> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() { Vec::new() } else { trimmed.split('/').collect() }
}

/// The decoded parameters of a query string, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Maximum number of parameters; further ones are ignored.
    const MAX: usize = 256;

    /// Parses `a=b&c=d` as Go does.
    pub fn parse(text: &str) -> Self {
        Query { pairs: query_pairs(text).take(Self::MAX).collect() }
    }

    /// All parameters in order, without those beyond the limit.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// True if a parameter is present and neither `false` nor `0`; kube-apiserver reads `?watch` as true.
    pub fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

/// The verb of a request for one object; empty for other methods.
fn verb_of_method(method: &http::Method) -> &'static str {
    match *method {
        http::Method::POST => "create",
        http::Method::GET | http::Method::HEAD => "get",
        http::Method::PUT => "update",
        http::Method::PATCH => "patch",
        http::Method::DELETE => "delete",
        _ => "",
    }
}

/// Percent-decodes; bytes that are not UTF-8 afterwards become U+FFFD, which no valid name contains.
pub fn percent_decode(text: &str) -> String {
    String::from_utf8_lossy(&text::percent_decode(text)).into_owned()
}

/// True if another server could interpret the path differently: it has an empty segment before the end, a
/// segment `.` or `..` (also before a semicolon), a backslash, which some servers treat as a slash, or a
/// control character. No object has such a name.
pub fn has_other_readings(path: &str) -> bool {
    let below = path.strip_prefix('/').unwrap_or(path);
    let below = below.strip_suffix('/').unwrap_or(below);
    let mut names = below.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    names.any(|name| matches!(name, "" | "." | "..")) || path.contains(|c: char| c == '\\' || c.is_control())
}

/// Normalizes a path: resolves empty segments, `.` and `..`, and removes a trailing slash.
pub fn clean_path(path: &str) -> String {
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

//! Maps paths to documents. Every document has exactly one path.
//!
//! Authorizers, audit rules and anonymous access match the path as it was sent (percent-decoded). A second spelling that were served would
//! bypass their rules. The only aliases are those that published clients use and Kubernetes serves: one slash after the paths of its API
//! router ([`allows_trailing_slash`]).

use crate::state::State;

/// Splits a path into segments; `None` if it has an empty segment or a trailing slash that Kubernetes does not serve. Everything below
/// `/openapi/v3/` is one segment, compared as a whole.
pub(super) fn segments(path: &str) -> Option<Vec<&str>> {
    let below = path.strip_prefix('/')?;
    if below.is_empty() {
        return Some(Vec::new());
    }
    if let Some(document) = below.strip_prefix("openapi/v3/") {
        return Some(vec!["openapi", "v3", document]);
    }
    let (below, slash) = below.strip_suffix('/').map_or((below, false), |below| (below, true));
    let segments: Vec<&str> = below.split('/').collect();
    let is_document = !segments.contains(&"") && (!slash || allows_trailing_slash(&segments));
    is_document.then_some(segments)
}

/// Reports whether Kubernetes also serves the document with a trailing slash: its API router does, and clients generated from the OpenAPI
/// document request `/apis/apps/` or `/version/`. Authorizers see the path with the slash. Unlike kube-apiserver, this server does not
/// accept several slashes there.
fn allows_trailing_slash(segments: &[&str]) -> bool {
    matches!(
        segments,
        ["api" | "apis" | "version"]
            | ["api" | "apis", _]
            | ["apis", _, _]
            | [".well-known", "openid-configuration"]
            | ["openid", "v1", "jwks"]
    )
}

/// Reports whether a document is served at this path.
pub fn is_path(state: &State, path: &str) -> bool {
    let Some(segments) = segments(path) else { return false };
    match segments.as_slice() {
        ["apis", group] => {
            state.apis.catalog.served().has_group(group)
                || state.apis.catalog.has_custom_group(group)
                || state.apis.aggregation.has_group(group)
        }
        ["apis", group, version] => {
            state.apis.catalog.served().has_group(group)
                || state
                    .apis
                    .catalog
                    .custom()
                    .of_group(group)
                    .any(|crd| crd.established && crd.versions.iter().any(|v| v.served && v.name == *version))
        }
        ["healthz" | "livez" | "readyz", check @ ..] => state.serving.health.is_check(&check.join("/")),
        []
        | ["api" | "apis" | "version" | "metrics" | "statusz" | "flagz"]
        | ["metrics", "slis"]
        | ["api", _]
        | [".well-known", "openid-configuration"]
        | ["openid", "v1", "jwks"]
        | ["openapi", "v2" | "v3"]
        | ["openapi", "v3", _]
        | ["debug", "admission"]
        | ["portcullis", "snapshot"] => true,
        ["debug", "api_priority_and_fairness", "dump_priority_levels" | "dump_queues" | "dump_requests"] => {
            state.serving.flow_control.is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;

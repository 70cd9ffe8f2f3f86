//! The parameters of operations.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::openapi) struct Parameter {
    pub(in crate::openapi) name: &'static str,
    pub(in crate::openapi) in_path: bool,
    pub(in crate::openapi) kind: &'static str,
}

pub(super) const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, in_path: false, kind }
}

pub(super) const fn in_path(name: &'static str) -> Parameter {
    Parameter { name, in_path: true, kind: "string" }
}

pub(super) const NAME: Parameter = in_path("name");
pub(super) const NAMESPACE: Parameter = in_path("namespace");
pub(super) const PRETTY: Parameter = query("pretty", "string");

pub(super) const LIST: &[Parameter] = &[
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];

// kubectl looks for `fieldValidation` here to decide whether the server validates.
pub(super) const WRITE: &[Parameter] =
    &[query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string")];

pub(super) const PATCH: &[Parameter] = &[
    query("dryRun", "string"),
    query("fieldManager", "string"),
    query("fieldValidation", "string"),
    query("force", "boolean"),
];

pub(super) const DELETE: &[Parameter] = &[
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];

pub(super) const DELETE_COLLECTION: &[Parameter] = &[
    query("continue", "string"),
    query("dryRun", "string"),
    query("fieldSelector", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
];

pub(super) const STREAMS: &[Parameter] = &[
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];

pub(super) const LOG: &[Parameter] = &[
    query("container", "string"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("pretty", "string"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
];

/// Joins two lists of parameters, sorted by name; of the same name, path parameters come first.
pub(super) fn joined(a: &[Parameter], b: &[Parameter]) -> Vec<Parameter> {
    let mut all: Vec<Parameter> = a.iter().chain(b).cloned().collect();
    all.sort_by(|a, b| a.name.cmp(b.name).then(b.in_path.cmp(&a.in_path)));
    all
}

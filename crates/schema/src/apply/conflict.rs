//! Errors of server-side apply, worded as in Kubernetes.

use api::{Status, StatusCause, StatusDetails, StatusReason};

use super::element::ManagedFieldPath;
use super::managed::{ManagedFieldsOperation, Manager};
use super::set::FieldSet;

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The configuration sets fields that other managers own.
    Conflicts(Vec<Conflict>),
    /// The body is not a configuration of this kind.
    BadRequest(String),
    /// The configuration does not fit the schema, or the object cannot be merged.
    Failed(String),
}

/// A field owned by another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: ManagedFieldPath,
}

impl Conflict {
    /// One conflict per field, sorted by manager.
    pub(super) fn all(mut found: Vec<(Manager, FieldSet)>) -> Vec<Self> {
        found.sort_by_cached_key(|(manager, _)| manager.identifier());
        let each = |(manager, set): (Manager, FieldSet)| {
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        };
        found.into_iter().flat_map(each).collect()
    }

    fn manager_text(&self) -> String {
        let Manager { name, operation, api_version, subresource } = &self.manager;
        let mut text = api::field::quote(name);
        if !subresource.is_empty() {
            text.push_str(" with subresource ");
            text.push_str(&api::field::quote(subresource));
        }
        if *operation == ManagedFieldsOperation::Update {
            text.push_str(" using ");
            text.push_str(api_version);
        }
        text
    }
}

/// Limit on reported causes, so that the response does not grow with the number of conflicts.
const MAX_CAUSES: usize = 10_000;

impl ApplyError {
    pub fn into_status(self) -> Status {
        match self {
            ApplyError::Conflicts(conflicts) => conflict_status(&conflicts),
            ApplyError::BadRequest(message) => Status::bad_request(message),
            ApplyError::Failed(message) => Status::plain(message),
        }
    }
}

fn conflict_status(conflicts: &[Conflict]) -> Status {
    let cause = |conflict: &Conflict| StatusCause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.manager_text()),
        field: conflict.path.to_string(),
    };
    let details = StatusDetails {
        causes: conflicts.iter().take(MAX_CAUSES).map(cause).collect(),
        ..StatusDetails::default()
    };
    Status::failure(409, StatusReason::Conflict, message(conflicts)).with_details(details)
}

fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager_text(), only.path);
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts.iter().take(MAX_CAUSES) {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager_text()));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

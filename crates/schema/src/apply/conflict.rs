//! Why a configuration is not applied, in Kubernetes' words.

use api::{Cause, Details, Reason, Status};

use super::element::FieldPath;
use super::managed::{Manager, Operation};
use super::set::FieldSet;

/// Why a configuration is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It sets fields that others own.
    Conflicts(Vec<Conflict>),
    /// It is not a configuration of this kind.
    BadRequest(String),
    /// It does not fit the schema, or the object cannot be merged.
    Failed(String),
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who.
    pub manager: Manager,
    /// Which.
    pub path: FieldPath,
}

impl Conflict {
    /// One conflict for each field, sorted by manager.
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
        if *operation == Operation::Update {
            text.push_str(" using ");
            text.push_str(api_version);
        }
        text
    }
}

/// More than anybody reads; an answer must not grow with what is wrong.
const MAX_CAUSES: usize = 10_000;

impl Refusal {
    /// As the client sees it.
    pub fn into_status(self) -> Status {
        match self {
            Refusal::Conflicts(conflicts) => conflict_status(&conflicts),
            Refusal::BadRequest(message) => Status::bad_request(message),
            Refusal::Failed(message) => Status::plain(message),
        }
    }
}

fn conflict_status(conflicts: &[Conflict]) -> Status {
    let cause = |conflict: &Conflict| Cause {
        reason: "FieldManagerConflict".into(),
        message: format!("conflict with {}", conflict.manager_text()),
        field: conflict.path.to_string(),
    };
    let details =
        Details { causes: conflicts.iter().take(MAX_CAUSES).map(cause).collect(), ..Details::default() };
    Status::failure(409, Reason::Conflict, message(conflicts)).with_details(details)
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

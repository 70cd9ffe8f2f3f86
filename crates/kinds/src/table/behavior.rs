//! [`KindBehavior`]: the functions that a row of the table names for its kind.

use api::GroupKind;
use value::Value;

use super::{GROUPS, GroupRow, Resource, SUBRESOURCE_KINDS};
use crate::defaults::Defaults;
use crate::print::{self, TableDef};
use crate::strategy::Strategy;
use crate::validation::ValidationRules;
use crate::warnings::{StatusWarnings, WriteWarnings};

/// Functions and tables of a kind. There is no `Default`: every row sets each field, even to `None`.
#[derive(Clone, Copy, Debug)]
pub struct KindBehavior {
    /// Fills in absent fields of an object in its storage version.
    pub defaults: Option<Defaults>,
    /// Validation of everything but the common metadata rules.
    pub rules: Option<ValidationRules>,
    /// Preparation of creates and updates. `None` for kinds that are not stored.
    pub strategy: Option<Strategy>,
    /// Warnings for a create or an update.
    pub warnings: Option<WriteWarnings>,
    /// Warnings for an update through the `status` subresource.
    pub status_warnings: Option<StatusWarnings>,
    /// Columns of `kubectl get`. `None` selects name and creation time.
    pub columns: Option<TableDef>,
}

impl KindBehavior {
    /// Behavior of every kind that is not built in.
    pub const NONE: KindBehavior = KindBehavior {
        defaults: None,
        rules: None,
        strategy: None,
        warnings: None,
        status_warnings: None,
        columns: None,
    };

    /// Fills in the defaults of an object in its storage version.
    pub fn apply_defaults(&self, object: &mut Value) {
        if let Some(defaults) = self.defaults {
            defaults(object);
        }
    }

    /// Returns the warnings for creating `new` (no `old`) or for updating `old` to `new`.
    pub fn warnings_on_write(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(add) = self.warnings {
            add(new, old, &mut warnings);
        }
        warnings
    }

    /// Returns the warnings for a `status` update that results in `new`.
    pub fn warnings_on_status(&self, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(add) = self.status_warnings {
            add(new, &mut warnings);
        }
        warnings
    }

    pub fn table(&self) -> &TableDef {
        self.columns.as_ref().unwrap_or_else(|| print::default_table())
    }
}

/// Returns the behavior of a built-in kind or of a kind that only subresources use; [`KindBehavior::NONE`] for others.
pub fn behavior(kind: &GroupKind) -> &'static KindBehavior {
    if let Some(row) = row_of(GROUPS, kind) {
        return &row.behavior;
    }
    let mut kinds = SUBRESOURCE_KINDS.iter();
    let found = kinds.find(|(group, name, _)| *group == kind.group && *name == kind.kind);
    found.map_or(&KindBehavior::NONE, |(_, _, behavior)| behavior)
}

pub(super) fn row_of<'a>(groups: &'a [GroupRow], kind: &GroupKind) -> Option<&'a Resource> {
    let group = groups.iter().find(|group| group.name == kind.group)?;
    group.resources.iter().find(|row| row.kind == kind.kind)
}

//! How the objects of a kind behave: the functions that its row names.

use api::GroupKind;
use value::Value;

use super::{GROUPS, Group, Resource, SUBRESOURCE_KINDS};
use crate::defaults::Defaults;
use crate::print::{self, TableDef};
use crate::strategy::Strategy;
use crate::validation::Rules;
use crate::warnings::{StatusWarnings, WriteWarnings};

/// How the objects of a kind behave. It has no default: every row says each of these, `None` included.
#[derive(Clone, Copy, Debug)]
pub struct KindBehavior {
    /// Fills in absent fields of an object in its stored version.
    pub defaults: Option<Defaults>,
    /// The rules beside those for metadata.
    pub rules: Option<Rules>,
    /// What a create or an update does to an object. `None` for kinds that are not stored.
    pub strategy: Option<Strategy>,
    /// Warnings about a create or an update.
    pub warnings: Option<WriteWarnings>,
    /// Warnings about an update through `status`.
    pub status_warnings: Option<StatusWarnings>,
    /// The columns of `kubectl get`. `None` for name and creation time.
    pub columns: Option<TableDef>,
}

impl KindBehavior {
    /// The behavior of what is no built-in kind.
    pub const NONE: KindBehavior = KindBehavior {
        defaults: None,
        rules: None,
        strategy: None,
        warnings: None,
        status_warnings: None,
        columns: None,
    };

    /// Fills in the defaults of an object in its stored version.
    pub fn apply_defaults(&self, object: &mut Value) {
        if let Some(defaults) = self.defaults {
            defaults(object);
        }
    }

    /// The warnings about creating `new`, or changing `old` into it.
    pub fn warnings_on_write(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(add) = self.warnings {
            add(new, old, &mut warnings);
        }
        warnings
    }

    /// The warnings about an update through `status` that makes an object `new`.
    pub fn warnings_on_status(&self, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(add) = self.status_warnings {
            add(new, &mut warnings);
        }
        warnings
    }

    /// The table of `kubectl get`.
    pub fn table(&self) -> &TableDef {
        self.columns.as_ref().unwrap_or_else(|| print::default_table())
    }
}

/// The behavior of a built-in kind, or of a kind that only subresources take. Other kinds have none.
pub fn behavior(kind: &GroupKind) -> &'static KindBehavior {
    if let Some(row) = row_of(GROUPS, kind) {
        return &row.behavior;
    }
    let mut kinds = SUBRESOURCE_KINDS.iter();
    let found = kinds.find(|(group, name, _)| *group == kind.group && *name == kind.kind);
    found.map_or(&KindBehavior::NONE, |(_, _, behavior)| behavior)
}

/// The row of a kind in these groups.
pub(super) fn row_of<'a>(groups: &'a [Group], kind: &GroupKind) -> Option<&'a Resource> {
    let group = groups.iter().find(|group| group.name == kind.group)?;
    group.resources.iter().find(|row| row.kind == kind.kind)
}

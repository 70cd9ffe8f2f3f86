//! Evaluates label and field selectors on stored objects.

use std::borrow::Cow;

use api::Status;
use api::selector::{FactsRef, FieldRequirement, FieldSelector, Selection};
use kinds::table::{SelectableField, SelectableFields};
use storage::StoredEntry;
use value::Value;

use super::served_resource::{ResourceOrigin, ServedResource};
use crate::encode;

impl ServedResource {
    /// The fields of the stored object: those of the resource in whose form it is stored.
    pub(super) fn fields(&self) -> &'static [SelectableField] {
        const METADATA: &[SelectableField] = &[SelectableField::NAME, SelectableField::NAMESPACE];
        match self.row().map(|row| &row.storing_row().fields) {
            None | Some(SelectableFields::Metadata) => METADATA,
            Some(SelectableFields::These(fields)) => fields,
        }
    }

    pub(super) fn field_values<'a>(&self, object: &'a Value) -> Vec<(&'static str, Cow<'a, str>)> {
        self.fields().iter().map(|field| (field.label, field_value(field, object))).collect()
    }

    /// A field selector of a request, with the names that the fields have in the stored object.
    pub fn stored_fields_of(&self, fields: FieldSelector) -> FieldSelector {
        match self.row() {
            Some(row) => fields.renamed(|field| row.stored_field(field)),
            None => fields,
        }
    }

    /// Reports whether this selection requires reading objects: it uses selectable fields of a CRD.
    pub fn reads_objects(&self, selection: &Selection) -> bool {
        let own = self.as_custom().is_some_and(|custom| !custom.version.selectable.is_empty());
        own && selection.fields.requirements().iter().any(is_below_metadata)
    }

    /// Evaluates a selection on an entry. `None` if the result depends on fields of the object that must first be converted to the version
    /// of the request.
    pub fn selects(&self, selection: &Selection, entry: &StoredEntry) -> Option<bool> {
        if selection.is_everything() {
            return Some(true);
        }
        let facts = FactsRef::new(&entry.facts);
        if !self.reads_objects(selection) {
            return Some(selection.matches(facts));
        }
        if !selection.labels.matches(&facts) {
            return Some(false);
        }
        if self.must_convert(entry) {
            return None;
        }
        Some(encode::tree(entry).is_ok_and(|object| self.selects_fields(selection, entry, &object)))
    }

    /// Evaluates the field selector on an object in the version of the request. The selectable fields of a CRD may change, so they are read
    /// from the object and not from the stored facts.
    pub fn selects_fields(&self, selection: &Selection, entry: &StoredEntry, object: &Value) -> bool {
        let facts = FactsRef::new(&entry.facts);
        let compiled = self.as_custom().map(|custom| custom.version.compiled());
        selection.fields.requirements().iter().all(|requirement| {
            let own = compiled.and_then(|compiled| compiled.selectable(&requirement.field, object));
            let value = own.unwrap_or_else(|| facts.field(&requirement.field).to_owned());
            (value == requirement.value.as_str()) == requirement.equals
        })
    }

    /// Refuses a field label that selectors of this kind do not support.
    pub fn check_field(&self, label: &str) -> Result<(), Status> {
        let custom = match &self.origin {
            ResourceOrigin::BuiltIn(built_in) => {
                return built_in.row.field(&self.gvk.version, label).map(|_| ()).map_err(Status::bad_request);
            }
            ResourceOrigin::Custom(custom) => custom,
        };
        let known = match label {
            "metadata.name" => true,
            "metadata.namespace" => self.namespaced,
            label => custom.version.selectable.iter().any(|known| known == label),
        };
        if known { Ok(()) } else { Err(Status::bad_request(format!("field label not supported: {label}"))) }
    }
}

/// Reports whether a requirement concerns a field other than name and namespace.
fn is_below_metadata(requirement: &FieldRequirement) -> bool {
    !matches!(requirement.field.as_str(), "metadata.name" | "metadata.namespace")
}

/// The text of a field for field selectors; the field's default if it is empty.
fn field_value<'a>(field: &SelectableField, object: &'a Value) -> Cow<'a, str> {
    let found = field.paths.iter().find_map(|path| {
        let mut here = object;
        for key in *path {
            if let Value::List(list) = here {
                here = list.first()?;
            }
            here = here.get(key)?;
        }
        match here {
            Value::String(s) if s.is_empty() => None,
            Value::String(s) => Some(Cow::Borrowed(s.as_str())),
            Value::Bool(b) => Some(Cow::Borrowed(if *b { "true" } else { "false" })),
            Value::Int(i) => Some(Cow::Owned(i.to_string())),
            _ => None,
        }
    });
    found.unwrap_or(Cow::Borrowed(field.default))
}

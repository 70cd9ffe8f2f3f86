//! Warnings for valid CRDs.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};

use api::validation::fields::Read;
use value::Value;

/// Warnings for a valid CRD: unrecognized formats, and sets of objects or lists. Warnings that `old` also causes are omitted.
pub fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let before = old.map(CrdRemarks::of).unwrap_or_default();
    let found = CrdRemarks::of(new);
    let formats = found.formats.iter().filter(|format| !before.known_formats.contains(*format));
    let formats = formats.map(|format| format!("unrecognized format {}", api::field::quote(format)));
    let sets = found.sets.difference(&before.sets).map(|kind| {
        let kind = api::field::quote(kind);
        format!("x-kubernetes-list-type: set for items of type {kind} is not supported by server-side apply or CEL validation rules")
    });
    formats.chain(sets).collect()
}

/// The parts of the schemas of a CRD that cause warnings.
#[derive(Default)]
struct CrdRemarks {
    /// The unrecognized formats in the order in which they first occur.
    formats: Vec<String>,
    known_formats: HashSet<String>,
    /// The item types of sets whose items are not scalars.
    sets: BTreeSet<String>,
}

impl CrdRemarks {
    fn of(crd: &Value) -> Self {
        let found = RefCell::new(CrdRemarks::default());
        super::strictness::any(&super::internal(crd.part("spec")), &|schema| {
            found.borrow_mut().add(schema);
            false
        });
        found.into_inner()
    }

    fn add(&mut self, schema: &Value) {
        if let Some(format) = crate::unrecognized_format(schema)
            && self.known_formats.insert(format.to_owned())
        {
            self.formats.push(format.to_owned());
        }
        let kind = schema.part("items").text("type");
        if schema.text("x-kubernetes-list-type") == "set" && matches!(kind, "object" | "array") {
            self.sets.insert(kind.to_owned());
        }
    }
}

//! Where the walk is, in the two forms Go's decoder prints it.

use value::Str;

use crate::{Kind, Property, Schema};

/// One step from a value to a value inside it.
pub(super) enum Step<'a> {
    /// A field of a struct, and the struct.
    Field(&'a Property, &'a Schema),
    /// An item of a list.
    Index(usize),
    /// A value of a map.
    Key(Str),
}

/// The steps from the root.
#[derive(Default)]
pub(super) struct Stack<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Stack<'a> {
    pub(super) fn push(&mut self, step: Step<'a>) {
        self.steps.push(step);
    }

    pub(super) fn pop(&mut self) {
        self.steps.pop();
    }

    pub(super) fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// The path of `field` below here as strict errors print it: `spec.containers[0].foo`.
    pub(super) fn strict_path(&self, field: &str) -> String {
        let mut path = self.place();
        join(&mut path, field);
        path
    }

    /// The path of here in the same form.
    pub(super) fn place(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                Step::Field(property, _) => join(&mut path, &property.name),
                Step::Index(index) => {
                    path.push('[');
                    path.push_str(&index.to_string());
                    path.push(']');
                }
                Step::Key(key) => join(&mut path, key),
            }
        }
        path
    }

    /// Go's words for a value of the wrong type here. Its path has the fields only, with the embedded structs they are declared in,
    /// after the name of the innermost struct.
    pub(super) fn type_error(&self, found: &str, go_type: &str) -> String {
        let mut path = String::new();
        let mut innermost = "";
        for step in &self.steps {
            let Step::Field(property, schema) = step else { continue };
            if let Some(embedded) = property.embedded {
                join(&mut path, embedded);
            }
            join(&mut path, &property.name);
            innermost = schema.struct_name();
        }
        if path.is_empty() {
            return format!("json: cannot unmarshal {found} into Go value of type {go_type}");
        }
        format!("json: cannot unmarshal {found} into Go struct field {innermost}.{path} of type {go_type}")
    }
}

fn join(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Whether a typed decoder comes to the key at `path` (`spec.containers[0].name`).
pub(super) fn is_met(schema: &Schema, path: &str) -> bool {
    let mut schema = schema;
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let (name, mut indexes) = match name.split_once('[') {
            Some((name, rest)) => (name, rest.matches(']').count()),
            None => (name, 0),
        };
        schema = match &schema.kind {
            Kind::Object(object) => match object.property(name) {
                Some(property) => property.schema.get(),
                None => return false,
            },
            // A key may itself have dots, so what follows cannot be told apart; scalars below are all there is in practice.
            Kind::Map(_) => return true,
            _ => return false,
        };
        while indexes > 0 {
            indexes -= 1;
            match &schema.kind {
                Kind::List(list) => schema = list.items.get(),
                _ => return false,
            }
        }
        if names.peek().is_some() && matches!(schema.kind, Kind::Any | Kind::SchemaOr(_)) {
            return false;
        }
    }
    true
}

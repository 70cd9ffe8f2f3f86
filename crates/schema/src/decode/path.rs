//! The current path of the decoder, in the two forms that Go's errors use.

use value::Str;

use crate::{Property, Schema, ValueType};

pub(super) enum DecodeStep<'a> {
    /// A field and the struct that contains it.
    Field(&'a Property, &'a Schema),
    Index(usize),
    Key(Str),
}

#[derive(Default)]
pub(super) struct Stack<'a> {
    steps: Vec<DecodeStep<'a>>,
}

impl<'a> Stack<'a> {
    pub(super) fn push(&mut self, step: DecodeStep<'a>) {
        self.steps.push(step);
    }

    pub(super) fn pop(&mut self) {
        self.steps.pop();
    }

    pub(super) fn is_root(&self) -> bool {
        self.steps.is_empty()
    }

    /// The path of `field` below the current value as strict errors print it: `spec.containers[0].foo`.
    pub(super) fn strict_path(&self, field: &str) -> String {
        let mut path = self.path();
        join(&mut path, field);
        path
    }

    /// The path of the current value as strict errors print it.
    pub(super) fn path(&self) -> String {
        let mut path = String::new();
        for step in &self.steps {
            match step {
                DecodeStep::Field(property, _) => join(&mut path, &property.name),
                DecodeStep::Index(index) => {
                    path.push('[');
                    path.push_str(&index.to_string());
                    path.push(']');
                }
                DecodeStep::Key(key) => join(&mut path, key),
            }
        }
        path
    }

    /// Go's error for a value of the wrong type at the current path. Its path has only fields, including the embedded structs that
    /// declare them, after the name of the innermost struct.
    pub(super) fn type_error(&self, found: &str, go_type: &str) -> String {
        let mut path = String::new();
        let mut innermost = "";
        for step in &self.steps {
            let DecodeStep::Field(property, schema) = step else { continue };
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

/// Whether a typed decoder reads the key at `path` (`spec.containers[0].name`).
pub(super) fn is_decoded(schema: &Schema, path: &str) -> bool {
    let mut schema = schema;
    let mut names = path.split('.').peekable();
    while let Some(name) = names.next() {
        let (name, mut indexes) = match name.split_once('[') {
            Some((name, rest)) => (name, rest.matches(']').count()),
            None => (name, 0),
        };
        schema = match &schema.value_type {
            ValueType::Object(object) => match object.property(name) {
                Some(property) => property.schema.get(),
                None => return false,
            },
            // A map key may itself contain dots, so the rest of the path is ambiguous. In practice, maps contain only scalars.
            ValueType::Map(_) => return true,
            _ => return false,
        };
        while indexes > 0 {
            indexes -= 1;
            match &schema.value_type {
                ValueType::List(list) => schema = list.items.get(),
                _ => return false,
            }
        }
        if names.peek().is_some() && matches!(schema.value_type, ValueType::Any | ValueType::SchemaOr(_)) {
            return false;
        }
    }
    true
}

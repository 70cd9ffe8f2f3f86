//! The form of `data/protobuf.txt`, and a line of it with the type's schema → [`Layout`].
//!
//! One line per message, sorted by name: the name of the type as in `data/schema.txt`, then its fields in the order of their
//! numbers, by their names in JSON:
//!
//! ```text
//! core.v1.Volume name <.VolumeSource
//! core.v1.SecretVolumeSource secretName items defaultMode optional
//! admissionregistration.v1.Mutation 2:patchType applyConfiguration jsonPatch
//! ```
//!
//! A field's number is one more than that of the field before it, unless said (`2:patchType`). `<NAME` is a struct that Go embeds:
//! a message of its own here, but in JSON its fields are those of the struct around it. The name is without its package when
//! that is the same. What a field carries follows from its schema. A line is read the first time its message is met.

use std::sync::{LazyLock, OnceLock};

use value::Str;

use crate::{Format, Kind, Object, Schema, SchemaOr};

static DATA: &str = include_str!("../../data/protobuf.txt");

/// What the fields of a message are.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// The name of the Go struct, for errors.
    pub(super) message: &'static str,
    /// By number, from 1.
    fields: Vec<Option<Field>>,
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    /// The name in JSON; of an embedded struct, its own.
    pub(super) name: Str,
    /// What it carries.
    pub(super) shape: Shape,
}

/// What a field carries.
#[derive(Debug)]
pub(super) enum Shape {
    /// A number, text or bytes.
    Scalar(Scalar),
    /// A struct: a message of the table, by position.
    Struct(u16),
    /// A message whose JSON is no struct.
    Special(Special),
    /// A field that may come many times.
    List(Box<Shape>),
    /// Entries with a key and a value.
    Map(Box<Shape>),
    /// A struct whose fields belong to the one around it.
    Embedded(Layout),
}

/// What is not a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scalar {
    /// Text.
    Text,
    /// Bytes, which JSON has in base64.
    Bytes,
    /// A boolean.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A float.
    Double,
}

/// The messages that have a JSON of their own.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special {
    /// `meta.v1.Time`.
    Time,
    /// `meta.v1.MicroTime`.
    MicroTime,
    /// `api.resource.Quantity`.
    Quantity,
    /// `util.intstr.IntOrString`.
    IntOrString,
    /// JSON as bytes: `runtime.RawExtension`, `meta.v1.FieldsV1`, `apiextensions.v1.JSON`.
    Raw,
    /// A named list of strings (`ExtraValue`, `Verbs`): protobuf has no such thing, so it is a message with `items`.
    Items,
    /// The unions of a custom resource definition's schema.
    SchemaOr(SchemaOr),
}

struct Line {
    name: &'static str,
    rest: &'static str,
    layout: OnceLock<Layout>,
}

static LINES: LazyLock<Box<[Line]>> = LazyLock::new(|| {
    // INVARIANT: the lines are sorted by name, and a test proves it.
    let lines = DATA.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
            Line { name, rest, layout: OnceLock::new() }
        })
        .collect()
});

/// The layout of a type, if it is a struct that protobuf knows.
pub(super) fn of(schema: &Schema) -> Option<&'static Layout> {
    at(position(&schema.name)?)
}

/// The message at a position.
pub(super) fn at(position: u16) -> Option<&'static Layout> {
    let line = LINES.get(usize::from(position))?;
    Some(line.layout.get_or_init(|| match crate::named(line.name).and_then(Schema::object) {
        Some(object) => build(line, object),
        None => Layout::default(),
    }))
}

impl Layout {
    /// The field with this number.
    pub(super) fn field(&self, number: usize) -> Option<&Field> {
        self.fields.get(number.checked_sub(1)?)?.as_ref()
    }

    /// All fields.
    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.fields.iter().flatten()
    }
}

fn position(name: &str) -> Option<u16> {
    let found = LINES.binary_search_by(|line| line.name.cmp(name)).ok()?;
    u16::try_from(found).ok()
}

/// The layout of a line; `object` is the struct to whose JSON its fields belong.
fn build(line: &'static Line, object: &'static Object) -> Layout {
    let (package, message) = line.name.rsplit_once('.').unwrap_or(("", line.name));
    let mut fields = Vec::new();
    for word in line.rest.split(' ').filter(|word| !word.is_empty()) {
        let word = match word.split_once(':') {
            Some((number, word)) => {
                // No message has field numbers beyond a byte, so that a slip of the pen costs no memory.
                let before = number.parse::<u8>().unwrap_or_default().saturating_sub(1);
                fields.resize_with(usize::from(before), || None);
                word
            }
            None => word,
        };
        fields.push(field(word, package, object));
    }
    Layout { message, fields }
}

fn field(word: &'static str, package: &str, object: &'static Object) -> Option<Field> {
    let Some(embedded) = word.strip_prefix('<') else {
        let shape = shape(object.property(word)?.schema.get())?;
        return Some(Field { name: Str::new_static(word), shape });
    };
    let name = match embedded.strip_prefix('.') {
        Some(name) => format!("{package}.{name}"),
        None => embedded.to_owned(),
    };
    let layout = build(LINES.get(usize::from(position(&name)?))?, object);
    Some(Field { name: Str::new_static(layout.message), shape: Shape::Embedded(layout) })
}

fn shape(schema: &Schema) -> Option<Shape> {
    Some(match &schema.kind {
        Kind::Object(_) => Shape::Struct(position(&schema.name)?),
        Kind::Map(map) => Shape::Map(Box::new(shape(map.values.get())?)),
        Kind::List(_) if !schema.name.is_empty() => Shape::Special(Special::Items),
        Kind::List(list) => Shape::List(Box::new(shape(list.items.get())?)),
        Kind::String(Format::Plain) => Shape::Scalar(Scalar::Text),
        Kind::String(Format::Bytes) => Shape::Scalar(Scalar::Bytes),
        Kind::String(Format::Time) => Shape::Special(Special::Time),
        Kind::String(Format::MicroTime) => Shape::Special(Special::MicroTime),
        Kind::String(Format::IntOrString) => Shape::Special(Special::IntOrString),
        Kind::String(Format::Quantity) => Shape::Special(Special::Quantity),
        Kind::Int32 => Shape::Scalar(Scalar::Int32),
        Kind::Int64 => Shape::Scalar(Scalar::Int64),
        Kind::Float => Shape::Scalar(Scalar::Double),
        Kind::Bool => Shape::Scalar(Scalar::Bool),
        Kind::Any => Shape::Special(Special::Raw),
        Kind::SchemaOr(or) => Shape::Special(Special::SchemaOr(*or)),
    })
}

/// The names of all messages, in the order of the file.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LINES.iter().map(|line| line.name)
}

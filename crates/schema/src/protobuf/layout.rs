//! Parses `data/protobuf.txt`, which has the protobuf field numbers of every message, into [`Layout`]s.
//!
//! The file has one line per message, sorted by name: the name of the type as in `data/schema.txt`, then the JSON names of its fields
//! in the order of their numbers:
//!
//! ```text
//! core.v1.Volume name <.VolumeSource
//! core.v1.SecretVolumeSource secretName items defaultMode optional
//! admissionregistration.v1.Mutation 2:patchType applyConfiguration jsonPatch
//! ```
//!
//! A field's number is one more than that of the preceding field unless it is given (`2:patchType`). `<NAME` is an embedded Go struct,
//! which is a message of its own in protobuf but whose fields belong to the enclosing struct in JSON. Its name omits the package if
//! that is the same. The type of a field follows from its schema. A line is parsed when its message is first needed.

use std::sync::{LazyLock, OnceLock};

use value::Str;

use crate::{Object, Schema, SchemaOr, StringEncoding, ValueType};

/// The files with one line per message. No message is in two of them.
static DATA: &[&str] = &[
    include_str!("../../data/protobuf.txt"),
    include_str!("../../data/unpublished_protobuf.txt"),
    #[cfg(feature = "fixture-kind")]
    include_str!("../../data/fixture_protobuf.txt"),
];

/// The fields of a message.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// Name of the Go struct, for errors.
    pub(super) message: &'static str,
    /// The fields by number; index 0 is number 1.
    fields: Vec<Option<MessageField>>,
}

#[derive(Debug)]
pub(super) struct MessageField {
    /// The name in JSON, or the name of an embedded struct.
    pub(super) name: Str,
    pub(super) shape: ProtobufType,
    /// True if the field is a pointer in Go, so that it is encoded only if it is set.
    pub(super) is_pointer: bool,
}

#[derive(Debug)]
pub(super) enum ProtobufType {
    /// A number, text or bytes.
    Scalar(ProtobufScalar),
    /// A struct: index of its message in the table.
    Struct(u16),
    /// A message whose JSON is not an object of its fields.
    Special(Special),
    /// A repeated field, one occurrence per item.
    List(Box<ProtobufType>),
    /// A repeated field of entries with a key and a value.
    Map(Box<ProtobufType>),
    /// A struct whose fields belong to the enclosing struct in JSON.
    Embedded(Layout),
}

/// The type of a field that is not a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProtobufScalar {
    Text,
    /// Bytes, which are base64 in JSON.
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
}

/// Messages with a custom JSON encoding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special {
    /// The message of `meta.v1.Time`.
    Time,
    /// The message of `meta.v1.MicroTime`.
    MicroTime,
    /// The message of `api.resource.Quantity`.
    Quantity,
    /// The message of `util.intstr.IntOrString`.
    IntOrString,
    /// JSON as bytes: `runtime.RawExtension`, `meta.v1.FieldsV1`, `apiextensions.v1.JSON`.
    Raw,
    /// A named list of strings (`ExtraValue`, `Verbs`), which protobuf wraps in a message with the field `items`.
    Items,
    /// The unions in the schema of a CRD.
    SchemaOr(SchemaOr),
}

struct MessageLine {
    name: &'static str,
    rest: &'static str,
    layout: OnceLock<Layout>,
}

static LINES: LazyLock<Box<[MessageLine]>> = LazyLock::new(|| {
    let lines = DATA.iter().flat_map(|file| file.lines()).filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        MessageLine { name, rest, layout: OnceLock::new() }
    });
    let mut lines: Box<[MessageLine]> = lines.collect();
    lines.sort_unstable_by_key(|line| line.name);
    lines
});

/// The layout of a type, if it is a struct with a protobuf message.
pub(super) fn of(schema: &Schema) -> Option<&'static Layout> {
    at(position(&schema.name)?)
}

/// The layout at an index of the table.
pub(super) fn at(position: u16) -> Option<&'static Layout> {
    let line = LINES.get(usize::from(position))?;
    Some(line.layout.get_or_init(|| match crate::named(line.name).and_then(Schema::object) {
        Some(object) => build(line, object),
        None => Layout::default(),
    }))
}

impl Layout {
    pub(super) fn field(&self, number: usize) -> Option<&MessageField> {
        self.fields.get(number.checked_sub(1)?)?.as_ref()
    }

    /// All fields with their numbers, in ascending order.
    pub(super) fn numbered_fields(&self) -> impl Iterator<Item = (usize, &MessageField)> {
        (1..).zip(&self.fields).filter_map(|(number, field)| Some((number, field.as_ref()?)))
    }

    #[cfg(test)]
    pub(super) fn fields(&self) -> impl Iterator<Item = &MessageField> {
        self.fields.iter().flatten()
    }
}

fn position(name: &str) -> Option<u16> {
    let found = LINES.binary_search_by(|line| line.name.cmp(name)).ok()?;
    u16::try_from(found).ok()
}

/// Builds the layout of a line. `object` is the struct to which the fields belong in JSON.
fn build(line: &'static MessageLine, object: &'static Object) -> Layout {
    let (package, message) = line.name.rsplit_once('.').unwrap_or(("", line.name));
    let mut fields = Vec::new();
    for word in line.rest.split(' ').filter(|word| !word.is_empty()) {
        let word = match word.split_once(':') {
            Some((number, word)) => {
                // No message has field numbers above 255, so an error in the table cannot allocate much memory.
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

fn field(word: &'static str, package: &str, object: &'static Object) -> Option<MessageField> {
    let Some(embedded) = word.strip_prefix('<') else {
        let property = object.property(word)?;
        let shape = shape(property.schema.get())?;
        return Some(MessageField { name: Str::new_static(word), shape, is_pointer: property.pointer });
    };
    let name = match embedded.strip_prefix('.') {
        Some(name) => format!("{package}.{name}"),
        None => embedded.to_owned(),
    };
    let layout = build(LINES.get(usize::from(position(&name)?))?, object);
    let name = Str::new_static(layout.message);
    Some(MessageField { name, shape: ProtobufType::Embedded(layout), is_pointer: false })
}

fn shape(schema: &Schema) -> Option<ProtobufType> {
    Some(match &schema.value_type {
        ValueType::Object(_) => ProtobufType::Struct(position(&schema.name)?),
        ValueType::Map(map) => ProtobufType::Map(Box::new(shape(map.values.get())?)),
        ValueType::List(_) if !schema.name.is_empty() => ProtobufType::Special(Special::Items),
        ValueType::List(list) => ProtobufType::List(Box::new(shape(list.items.get())?)),
        ValueType::String(StringEncoding::Plain) => ProtobufType::Scalar(ProtobufScalar::Text),
        ValueType::String(StringEncoding::Bytes) => ProtobufType::Scalar(ProtobufScalar::Bytes),
        ValueType::String(StringEncoding::Time) => ProtobufType::Special(Special::Time),
        ValueType::String(StringEncoding::MicroTime) => ProtobufType::Special(Special::MicroTime),
        ValueType::String(StringEncoding::IntOrString) => ProtobufType::Special(Special::IntOrString),
        ValueType::String(StringEncoding::Quantity) => ProtobufType::Special(Special::Quantity),
        ValueType::Int32 => ProtobufType::Scalar(ProtobufScalar::Int32),
        ValueType::Int64 => ProtobufType::Scalar(ProtobufScalar::Int64),
        ValueType::Float => ProtobufType::Scalar(ProtobufScalar::Double),
        ValueType::Bool => ProtobufType::Scalar(ProtobufScalar::Bool),
        ValueType::Any => ProtobufType::Special(Special::Raw),
        ValueType::SchemaOr(or) => ProtobufType::Special(Special::SchemaOr(*or)),
    })
}

/// The names of all messages, in the order of the file.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LINES.iter().map(|line| line.name)
}

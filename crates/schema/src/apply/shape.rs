//! How server-side apply sees a schema: which values are owned as a whole and which have an owner for each part.

use value::{Str, Value, json};

use super::element::Element;
use crate::{ListOf, ListType, MapType, Object, Schema, ValueType};

/// A schema together with the map type declared by the field that contains it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Typed<'s> {
    schema: &'s Schema,
    map_type: Option<MapType>,
}

/// How the ownership of a value is divided.
pub(super) enum OwnershipShape<'s> {
    Scalar,
    /// A map or list with one owner.
    Atomic,
    /// A struct or map with an owner for each field.
    Fields(Typed<'s>),
    /// A list with an owner for each item.
    Items(AssociativeList<'s>),
}

/// A set or keyed list.
#[derive(Clone, Copy)]
pub(super) struct AssociativeList<'s> {
    pub(super) item: Typed<'s>,
    /// The key fields; empty for a set.
    keys: &'s [Str],
}

static ANY: Schema = Schema::ANY;

/// The only type of raw JSON that has one owner; the others have an owner for each field.
const RAW_EXTENSION: &str = "runtime.RawExtension";

impl<'s> Typed<'s> {
    pub(super) fn root(schema: &'s Schema) -> Self {
        Typed { schema, map_type: None }
    }

    fn new(schema: &'s Schema) -> Self {
        Typed::root(schema)
    }

    pub(super) fn schema(self) -> &'s Schema {
        self.schema
    }

    pub(super) fn object(self) -> Option<&'s Object> {
        self.schema.object()
    }

    /// Whether values may be any JSON.
    pub(super) fn is_any(self) -> bool {
        matches!(self.schema.value_type, ValueType::Any | ValueType::SchemaOr(_))
    }

    /// The schema of the value at a key, and whether the key is a declared field.
    pub(super) fn field(self, name: &str) -> Option<(Typed<'s>, bool)> {
        match &self.schema.value_type {
            ValueType::Object(object) => match object.property(name) {
                Some(property) => {
                    Some((Typed { schema: property.schema.get(), map_type: property.map_type }, true))
                }
                None if object.properties.is_empty() && object.rest.is_none() => {
                    Some((Typed::new(&ANY), false))
                }
                None => object.rest.as_ref().map(|rest| (Typed::new(rest.get()), false)),
            },
            ValueType::Map(map) => Some((Typed::new(map.values.get()), false)),
            ValueType::Any | ValueType::SchemaOr(_) => Some((Typed::new(&ANY), false)),
            _ => None,
        }
    }

    pub(super) fn items(self) -> Option<Typed<'s>> {
        match &self.schema.value_type {
            ValueType::List(list) => Some(Typed::new(list.items.get())),
            _ => None,
        }
    }

    /// Whether maps of this schema have one owner.
    pub(super) fn is_atomic_map(self) -> bool {
        match (self.map_type, &self.schema.value_type) {
            (Some(map_type), _) => map_type == MapType::Atomic,
            (None, ValueType::Object(object)) => object.atomic,
            (None, ValueType::Map(map)) => map.atomic,
            (None, ValueType::Any) => self.schema.name == RAW_EXTENSION,
            (None, _) => false,
        }
    }

    fn of_list(list: &'s ListOf) -> OwnershipShape<'s> {
        let item = Typed::new(list.items.get());
        match &list.list_type {
            None | Some(ListType::Atomic) => OwnershipShape::Atomic,
            Some(ListType::Set) => OwnershipShape::Items(AssociativeList { item, keys: &[] }),
            Some(ListType::Map(keys)) => OwnershipShape::Items(AssociativeList { item, keys }),
        }
    }

    /// The shape of values of this schema. For untyped JSON it depends on `value`.
    pub(super) fn shape(self, value: Option<&Value>) -> OwnershipShape<'s> {
        match &self.schema.value_type {
            ValueType::Object(_) | ValueType::Map(_) if self.is_atomic_map() => OwnershipShape::Atomic,
            ValueType::Object(_) | ValueType::Map(_) => OwnershipShape::Fields(self),
            ValueType::List(list) => Self::of_list(list),
            ValueType::Any | ValueType::SchemaOr(_) => match value {
                None | Some(Value::Null | Value::Map(_)) if self.is_atomic_map() => OwnershipShape::Atomic,
                None | Some(Value::Null | Value::Map(_)) => OwnershipShape::Fields(self),
                Some(Value::List(_)) => OwnershipShape::Atomic,
                Some(_) => OwnershipShape::Scalar,
            },
            _ => OwnershipShape::Scalar,
        }
    }
}

impl AssociativeList<'_> {
    /// The element that identifies an item, or an error if the item has none.
    pub(super) fn element(&self, item: &Value) -> Result<Element, String> {
        if self.keys.is_empty() {
            return match item {
                Value::Map(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::List(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(Element::Value(scalar.clone())),
            };
        }
        let map = match item {
            Value::Map(map) => map,
            Value::Null => {
                return Err("associative list with keys may not have a null element".to_owned());
            }
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut fields = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            let value = match map.get(key) {
                Some(value) => value.clone(),
                None => match self.default_of(key) {
                    Some(default) => default,
                    // An item without the key differs from every item that has it.
                    None => continue,
                },
            };
            fields.push((key.clone(), value));
        }
        if fields.is_empty() {
            let keys: Vec<String> = self.keys.iter().map(|key| api::field::quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        if fields.len() > 1 {
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Ok(Element::Key(fields.into()))
    }

    fn default_of(&self, key: &str) -> Option<Value> {
        let default = self.item.object()?.property(key)?.default.as_ref()?;
        json::parse(default.as_bytes()).ok().filter(|value| !value.is_null())
    }
}

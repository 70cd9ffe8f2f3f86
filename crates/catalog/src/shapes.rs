//! The three shapes of an object, and the conversions between them that need no webhook.
//!
//! | shape | built-in resource | custom resource |
//! |---|---|---|
//! | [`Sent`] | in the version of the request | in the version of the request |
//! | [`Working`] | in the storage version, with defaults | in the version of the request, with defaults |
//! | [`StoredObject`] | in the storage version | in the storage version |
//!
//! Clients send and read [`Sent`]. Defaulting produces [`Working`], which strategies, admission and validation see. The store holds
//! [`StoredObject`]. A custom resource may need its conversion webhook between `Working` and `StoredObject`:
//! `Converter` of the server.

use std::ops::{Deref, DerefMut};

use api::Status;
use value::Value;

use super::served_resource::{ResourceOrigin, ServedResource};

/// An object in the version of the request, as clients send and read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent(Value);

/// An object as strategies, admission and validation see it, with defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Working(Value);

/// An object as the store holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredObject(Value);

impl Sent {
    /// Wraps a decoded body, or the result of a patch or server-side apply.
    pub fn new(object: Value) -> Self {
        Sent(object)
    }

    /// Drops the shape, to build a response.
    pub fn into_value(self) -> Value {
        self.0
    }
}

impl Working {
    /// Drops the shape, to build a response that is not the resource itself.
    pub fn into_value(self) -> Value {
        self.0
    }

    /// Wraps a built-in resource in its storage version.
    pub fn of_built_in(object: Value) -> Self {
        Working(object)
    }

    /// Wraps a custom resource in the version of the request, with defaults and pruned.
    pub fn of_converted(object: Value) -> Self {
        Working(object)
    }
}

impl StoredObject {
    /// Parses the body of a stored entry.
    pub fn read(entry: &storage::StoredEntry) -> Result<Self, Status> {
        crate::encode::tree(entry).map(StoredObject)
    }

    /// Wraps a custom resource in its storage version.
    pub fn of_converted(object: Value) -> Self {
        StoredObject(object)
    }

    /// Drops the shape, for a conversion.
    pub fn into_value(self) -> Value {
        self.0
    }
}

impl Deref for Sent {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Deref for Working {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Deref for StoredObject {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

/// Fields may change in place; the shape does not.
impl DerefMut for Sent {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

/// Strategies and admission change fields in place; the shape does not change.
impl DerefMut for Working {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl ServedResource {
    /// Fills in defaults; a built-in resource is converted to its storage version first. Fails if the defaults would make a custom resource
    /// too large to store.
    pub fn to_working(&self, sent: Sent) -> Result<Working, Status> {
        match &self.origin {
            ResourceOrigin::Custom(custom) => {
                let Sent(mut object) = sent;
                custom.version.compiled().default(&mut object).map_err(Status::too_large)?;
                Ok(Working(object))
            }
            ResourceOrigin::BuiltIn(_) => {
                let Working(mut object) = self.to_working_without_defaults(sent);
                self.behavior().apply_defaults(&mut object);
                Ok(Working(object))
            }
        }
    }

    /// Like [`ServedResource::to_working`], without defaults.
    fn to_working_without_defaults(&self, Sent(object): Sent) -> Working {
        let ResourceOrigin::BuiltIn(built_in) = &self.origin else { return Working(object) };
        let mut object = match &built_in.conversion {
            Some(conversion) => (conversion.to_stored)(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.stored.api_version());
        Working(object)
    }

    /// Converts to the version of the request. If that differs in shape from the storage version, adds the fields that it writes even when
    /// they are empty.
    pub fn to_sent(&self, working: Working) -> Sent {
        let mut sent = self.to_sent_as_it_is(working);
        if let ResourceOrigin::BuiltIn(built_in) = &self.origin
            && built_in.conversion.is_some()
        {
            schema::decode::fill(&mut sent, built_in.schema);
        }
        sent
    }

    /// Like [`ServedResource::to_sent`], without adding empty fields.
    pub fn to_sent_as_it_is(&self, Working(object): Working) -> Sent {
        let ResourceOrigin::BuiltIn(built_in) = &self.origin else { return Sent(object) };
        let mut object = match &built_in.conversion {
            Some(conversion) => (conversion.from_stored)(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.gvk.api_version());
        Sent(object)
    }

    /// Converts an object from this version of a built-in resource to another one, with the fields that it writes even when they are empty.
    pub fn to_version(&self, sent: Sent, other: &ServedResource) -> Sent {
        let mut sent = other.to_sent_as_it_is(self.to_working_without_defaults(sent));
        schema::decode::fill(&mut sent, other.schema());
        sent
    }

    /// Reads a built-in resource, whose stored and working shapes are equal. Fails for a custom resource, which its
    /// `Converter` of the server loads.
    pub fn load_built_in(&self, entry: &storage::StoredEntry) -> Result<Working, Status> {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => {
                StoredObject::read(entry).map(|StoredObject(object)| Working(object))
            }
            ResourceOrigin::Custom(_) => {
                Err(Status::internal("a custom resource was read as a built-in one"))
            }
        }
    }

    /// A built-in resource in the version of the request, or a custom resource in the version in which it is stored: for entries that need
    /// no conversion, and for controllers, which read only the metadata of custom resources.
    pub fn show_unconverted(&self, entry: &storage::StoredEntry) -> Result<Sent, Status> {
        match &self.origin {
            ResourceOrigin::BuiltIn(_) => self.load_built_in(entry).map(|object| self.to_sent(object)),
            ResourceOrigin::Custom(_) => StoredObject::read(entry).map(|StoredObject(object)| Sent(object)),
        }
    }

    /// The stored object of a built-in resource, equal to its working shape; `None` for a custom resource.
    pub fn to_stored_built_in(&self, Working(object): &Working) -> Option<StoredObject> {
        matches!(self.origin, ResourceOrigin::BuiltIn(_)).then(|| StoredObject(object.clone()))
    }

    /// An empty object in the version of the request, with the fields that are written even when they are empty.
    pub fn nothing(&self) -> Sent {
        Sent(self.empty_with(Value::map([
            ("apiVersion", self.gvk.api_version()),
            ("kind", self.gvk.kind.to_string()),
        ])))
    }

    /// Drops fields that are written even when they are empty, so that a sent and a stored object can be compared.
    pub fn normalise(&self, object: &mut Working) {
        if self.row().is_some() {
            schema::decode::normalise(object, self.stored_schema());
        }
    }

    /// Adds the fields that the version of the request writes even when they are empty.
    pub fn fill_sent(&self, object: &mut Sent) {
        if let ResourceOrigin::BuiltIn(built_in) = &self.origin {
            schema::decode::fill(object, built_in.schema);
        }
    }

    /// Adds the fields that the storage version writes even when they are empty.
    pub fn fill_working(&self, object: &mut Working) {
        if self.row().is_some() {
            schema::decode::fill(object, self.stored_schema());
        }
    }
}

//! The three shapes of an object, and the conversions between them that call nothing.
//!
//! | shape | built-in resource | custom resource |
//! |---|---|---|
//! | [`Sent`] | in the version of the request | in the version of the request |
//! | [`Working`] | in the storage version, with defaults | in the version of the request, with defaults |
//! | [`StoredObject`] | in the storage version | in the storage version |
//!
//! Clients send and read [`Sent`]. Defaulting ends with [`Working`], which strategies, admission and validation see. The store holds
//! [`StoredObject`]. A custom resource may need its conversion webhook between `Working` and `StoredObject`:
//! [`Converter`](crate::conversion::Converter).

use std::ops::{Deref, DerefMut};

use api::Status;
use value::Value;

use super::served_resource::{Nature, ServedResource};

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
    /// A decoded body, or what a patch or a configuration made of an object that was shown.
    pub(crate) fn new(object: Value) -> Self {
        Sent(object)
    }

    /// The object without its shape: for an answer.
    pub fn into_value(self) -> Value {
        self.0
    }
}

impl Working {
    /// The object without its shape: for an answer that is not about the resource itself.
    pub fn into_value(self) -> Value {
        self.0
    }

    /// A built-in resource in its storage version.
    pub(crate) fn of_built_in(object: Value) -> Self {
        Working(object)
    }

    /// A custom resource that was converted to the version of the request, has its defaults, and is pruned.
    pub(crate) fn of_converted(object: Value) -> Self {
        Working(object)
    }
}

impl StoredObject {
    /// The object that an entry of the store holds.
    pub(crate) fn read(entry: &storage::Entry) -> Result<Self, Status> {
        crate::encode::tree(entry).map(StoredObject)
    }

    /// A custom resource that was converted to the storage version.
    pub(crate) fn of_converted(object: Value) -> Self {
        StoredObject(object)
    }

    /// The object without its shape: for a conversion.
    pub(crate) fn into_value(self) -> Value {
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

/// Fields are changed in place; the shape stays.
impl DerefMut for Sent {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

/// Strategies and admission change fields in place; the shape stays.
impl DerefMut for Working {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl ServedResource {
    /// Converts to the storage version where a built-in resource needs it, and fills in defaults. Defaults that would make the object larger
    /// than anything that is stored are refused.
    pub fn to_working(&self, sent: Sent) -> Result<Working, Status> {
        match &self.nature {
            Nature::Custom(custom) => {
                let Sent(mut object) = sent;
                custom.version.compiled().default(&mut object).map_err(Status::too_large)?;
                Ok(Working(object))
            }
            Nature::BuiltIn(_) => {
                let Working(mut object) = self.to_working_without_defaults(sent);
                self.behavior().apply_defaults(&mut object);
                Ok(Working(object))
            }
        }
    }

    /// As [`ServedResource::to_working`], without defaults.
    fn to_working_without_defaults(&self, Sent(object): Sent) -> Working {
        let Nature::BuiltIn(built_in) = &self.nature else { return Working(object) };
        let mut object = match &built_in.conversion {
            Some(conversion) => (conversion.to_stored)(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.stored.api_version());
        Working(object)
    }

    /// Converts to the version of the request. Fields that this version always writes are there if it has another shape than the storage
    /// version.
    pub fn to_sent(&self, working: Working) -> Sent {
        let mut sent = self.to_sent_as_it_is(working);
        if let Nature::BuiltIn(built_in) = &self.nature
            && built_in.conversion.is_some()
        {
            schema::decode::fill(&mut sent, built_in.schema);
        }
        sent
    }

    /// As [`ServedResource::to_sent`], without fields that are only written out.
    pub fn to_sent_as_it_is(&self, Working(object): Working) -> Sent {
        let Nature::BuiltIn(built_in) = &self.nature else { return Sent(object) };
        let mut object = match &built_in.conversion {
            Some(conversion) => (conversion.from_stored)(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.gvk.api_version());
        Sent(object)
    }

    /// Brings an object from this version of a built-in resource into another one, with the fields that it always writes.
    pub fn to_version(&self, sent: Sent, other: &ServedResource) -> Sent {
        let mut sent = other.to_sent_as_it_is(self.to_working_without_defaults(sent));
        schema::decode::fill(&mut sent, other.schema());
        sent
    }

    /// The stored object of a built-in resource, whose working shape it is. A custom resource is loaded by its
    /// [`Converter`](crate::conversion::Converter), and is refused here.
    pub fn load_built_in(&self, entry: &storage::Entry) -> Result<Working, Status> {
        match &self.nature {
            Nature::BuiltIn(_) => StoredObject::read(entry).map(|StoredObject(object)| Working(object)),
            Nature::Custom(_) => Err(Status::internal("a custom resource was read as a built-in one")),
        }
    }

    /// A built-in resource as clients of this version read it, and a custom resource as it is stored, unconverted: for entries that need no
    /// conversion, and for controllers, which read only the metadata of custom resources.
    pub fn show_unconverted(&self, entry: &storage::Entry) -> Result<Sent, Status> {
        match &self.nature {
            Nature::BuiltIn(_) => self.load_built_in(entry).map(|object| self.to_sent(object)),
            Nature::Custom(_) => StoredObject::read(entry).map(|StoredObject(object)| Sent(object)),
        }
    }

    /// What is stored for a built-in resource: its working shape. `None` for a custom resource.
    pub(crate) fn to_stored_built_in(&self, Working(object): &Working) -> Option<StoredObject> {
        matches!(self.nature, Nature::BuiltIn(_)).then(|| StoredObject(object.clone()))
    }

    /// An object of the resource in the version of the request with nothing in it but what is always written.
    pub fn nothing(&self) -> Sent {
        Sent(self.empty_with(Value::map([
            ("apiVersion", self.gvk.api_version()),
            ("kind", self.gvk.kind.to_string()),
        ])))
    }

    /// Drops the fields that are only written out, so that what was sent and what is stored compare.
    pub fn normalise(&self, object: &mut Working) {
        if self.row().is_some() {
            schema::decode::normalise(object, self.stored_schema());
        }
    }

    /// Adds the fields that the version of the request writes even when they are empty.
    pub fn fill_sent(&self, object: &mut Sent) {
        if let Nature::BuiltIn(built_in) = &self.nature {
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

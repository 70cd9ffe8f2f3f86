//! The three shapes of an object: [`Sent`], [`Working`] and [`StoredObject`].
//!
//! | shape | built-in resource | custom resource |
//! |---|---|---|
//! | [`Sent`] | in the version of the request | in the version of the request |
//! | [`Working`] | in the storage version, with defaults | in the version of the request, with defaults |
//! | [`StoredObject`] | in the storage version | in the storage version |
//!
//! Clients send and read [`Sent`]. Defaulting produces [`Working`], which strategies, admission and validation see. The store holds
//! [`StoredObject`].
//!
//! The fields are private. [`Shapes`] has the conversions that need no webhook; the `Converter` of the server calls the conversion webhook
//! of a custom resource where one is needed. A bare [`Value`] gets a shape only where the shape is made: [`Sent::decoded`],
//! [`StoredObject::read`], and the conversions of [`Shapes`].
//!
//! ```compile_fail,E0423
//! let forged = catalog::Working(value::Value::Null);
//! ```
//!
//! ```compile_fail,E0423
//! let forged = catalog::StoredObject(value::Value::Null);
//! ```

mod conversions;

use std::ops::{Deref, DerefMut};

use api::Status;
use value::Value;

pub use conversions::Shapes;

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
    /// Wraps an object that was just decoded by the schema of its version: a request body, or the result of a patch or server-side apply.
    pub fn decoded(object: Value) -> Self {
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
}

impl StoredObject {
    /// Parses the body of a stored entry.
    pub fn read(entry: &storage::StoredEntry) -> Result<Self, Status> {
        crate::encode::tree(entry).map(StoredObject)
    }

    /// Wraps a decoded value of etcd whose CRD is unknown. Readers convert it to the schema in force.
    pub(crate) fn of_unknown_crd(object: Value) -> Self {
        StoredObject(object)
    }

    /// Drops the managed fields, which conversions do not change.
    pub fn remove_managed_fields(&mut self) {
        self.0.remove_at(&["metadata", "managedFields"]);
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

/// A `Scale` is tracked and admitted as clients send it, which changes its fields in place; the shape does not change.
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

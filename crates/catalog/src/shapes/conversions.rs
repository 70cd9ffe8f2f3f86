//! [`Shapes`]: the conversions between the shapes of an object that need no webhook, and so never wait.

use api::{Status, meta};
use kinds::scale;
use value::Value;

use super::{Sent, StoredObject, Working};
use crate::served_resource::{BuiltIn, CustomResourceVersion, ResourceOrigin, ServedResource};
use crate::subresource::Subresource;

/// Converts objects of one resource between their shapes.
#[derive(Clone, Copy, Debug)]
pub struct Shapes<'a> {
    resource: &'a ServedResource,
}

impl ServedResource {
    pub fn shapes(&self) -> Shapes<'_> {
        Shapes { resource: self }
    }
}

/// Conversions from and to the shape of the store.
impl Shapes<'_> {
    fn built_in(&self) -> Option<&BuiltIn> {
        match &self.resource.origin {
            ResourceOrigin::BuiltIn(built_in) => Some(built_in),
            ResourceOrigin::Custom(_) => None,
        }
    }

    /// Reads a built-in resource, whose stored and working shapes are equal. Fails for a custom resource, which the
    /// `Converter` of the server loads.
    pub fn load_built_in(&self, entry: &storage::StoredEntry) -> Result<Working, Status> {
        if self.built_in().is_none() {
            return Err(Status::internal("a custom resource was read as a built-in one"));
        }
        StoredObject::read(entry).map(|StoredObject(object)| Working(object))
    }

    /// Reads an object whose working shape is the stored one: a built-in resource, or a custom resource that conforms to the current schema
    /// of the requested version. `None` if it must be converted.
    pub fn load_current(&self, entry: &storage::StoredEntry) -> Result<Option<Working>, Status> {
        if self.built_in().is_none() && self.resource.must_convert(entry) {
            return Ok(None);
        }
        StoredObject::read(entry).map(|StoredObject(object)| Some(Working(object)))
    }

    /// The working shape of an object that was just made for the store, if the requested version is the storage version; otherwise the
    /// object, to be converted.
    pub fn reread(&self, stored: StoredObject) -> Result<Working, StoredObject> {
        if self.built_in().is_some() || self.resource.is_stored_version() {
            return Ok(Working(stored.0));
        }
        Err(stored)
    }

    /// Wraps a custom resource that was converted to the version of the request, with defaults and pruned. Fails if it is in another
    /// version, and for a built-in resource.
    pub fn of_converted(&self, object: Value) -> Result<Working, Status> {
        if self.built_in().is_some()
            || meta::gvk(&object).group_version() != self.resource.gvk.group_version()
        {
            return Err(Status::internal("an object was not converted to the version of the request"));
        }
        Ok(Working(object))
    }

    /// A built-in resource in the version of the request, or a custom resource in the version in which it is stored: for entries that need
    /// no conversion, and for controllers, which read only the metadata of custom resources.
    pub fn show_unconverted(&self, entry: &storage::StoredEntry) -> Result<Sent, Status> {
        let StoredObject(object) = StoredObject::read(entry)?;
        Ok(if self.built_in().is_some() { self.to_sent(Working(object)) } else { Sent(object) })
    }

    /// The stored object of a built-in resource, equal to its working shape; `None` for a custom resource.
    pub fn to_stored_built_in(&self, Working(object): &Working) -> Option<StoredObject> {
        self.built_in().map(|_| StoredObject(object.clone()))
    }

    /// Makes the stored object of a custom resource that was converted to the storage version: adds the defaults of that version and drops
    /// nulls of fields that are not nullable, so that the stored bytes can be sent unchanged. Fails if the defaults would make it too large
    /// to store.
    pub fn to_stored_custom(
        custom: &CustomResourceVersion,
        mut converted: Value,
    ) -> Result<StoredObject, Status> {
        custom.stored.compiled().drop_nulls_and_default(&mut converted).map_err(Status::too_large)?;
        Ok(StoredObject(converted))
    }
}

/// Conversions between the version of the request and the working shape.
impl Shapes<'_> {
    /// Fills in defaults; a built-in resource is converted to its storage version first. Fails if the defaults would make a custom resource
    /// too large to store.
    pub fn to_working(&self, sent: Sent) -> Result<Working, Status> {
        match &self.resource.origin {
            ResourceOrigin::Custom(custom) => {
                let Sent(mut object) = sent;
                custom.version.compiled().default(&mut object).map_err(Status::too_large)?;
                Ok(Working(object))
            }
            ResourceOrigin::BuiltIn(_) => {
                let Working(mut object) = self.to_working_without_defaults(sent);
                self.resource.behavior().apply_defaults(&mut object);
                Ok(Working(object))
            }
        }
    }

    /// Like [`Shapes::to_working`], without defaults.
    fn to_working_without_defaults(self, Sent(object): Sent) -> Working {
        let Some(built_in) = self.built_in() else { return Working(object) };
        let mut object = match &built_in.conversion {
            Some(conversion) => (conversion.to_stored)(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.resource.stored.api_version());
        Working(object)
    }

    /// Converts to the version of the request. If that differs in shape from the storage version, adds the fields that it writes even when
    /// they are empty.
    pub fn to_sent(&self, working: Working) -> Sent {
        let mut sent = self.to_sent_unfilled(working);
        if let Some(built_in) = self.built_in()
            && built_in.conversion.is_some()
        {
            schema::decode::fill(&mut sent, built_in.schema);
        }
        sent
    }

    /// Like [`Shapes::to_sent`], without adding empty fields.
    pub fn to_sent_unfilled(&self, Working(object): Working) -> Sent {
        let Some(built_in) = self.built_in() else { return Sent(object) };
        let mut object = match &built_in.conversion {
            Some(conversion) => (conversion.from_stored)(&object),
            None => object,
        };
        object.set_at(&["apiVersion"], self.resource.gvk.api_version());
        Sent(object)
    }

    /// Converts an object from this version of a built-in resource to another one, with the fields that it writes even when they are empty.
    pub fn to_version(&self, sent: Sent, other: &ServedResource) -> Sent {
        let mut sent = other.shapes().to_sent_unfilled(self.to_working_without_defaults(sent));
        schema::decode::fill(&mut sent, other.schema());
        sent
    }

    /// The working shape of a built-in resource that comes back from code which knows only [`Value`], such as admission. `None` if it is
    /// not in the storage version, and for a custom resource.
    pub fn in_stored_version(&self, object: &Value) -> Option<Working> {
        let fits = self.built_in().is_some() && meta::gvk(object) == self.resource.stored;
        fits.then(|| Working(object.clone()))
    }

    /// A custom resource, in whatever version it names, that comes back from code which knows only [`Value`]. `None` for a built-in
    /// resource.
    pub fn in_named_version(&self, object: Value) -> Option<Sent> {
        self.built_in().is_none().then_some(Sent(object))
    }

    /// An empty object in the version of the request, with the fields that are written even when they are empty.
    pub fn empty_sent(&self) -> Sent {
        let gvk = &self.resource.gvk;
        Sent(
            self.fill_metadata(Value::map([
                ("apiVersion", gvk.api_version()),
                ("kind", gvk.kind.to_string()),
            ])),
        )
    }
}

/// Fields that are written even when they are empty.
impl Shapes<'_> {
    /// Drops them, so that a sent and a stored object can be compared.
    pub fn normalize(&self, Working(object): &mut Working) {
        if self.built_in().is_some() {
            schema::decode::normalize(object, self.resource.stored_schema());
        }
    }

    /// Adds those of the version of the request.
    pub fn fill_sent(&self, Sent(object): &mut Sent) {
        if let Some(built_in) = self.built_in() {
            schema::decode::fill(object, built_in.schema);
        }
    }

    /// Adds those of the storage version.
    pub fn fill_working(&self, Working(object): &mut Working) {
        if self.built_in().is_some() {
            schema::decode::fill(object, self.resource.stored_schema());
        }
    }

    /// Adds those of the version of the request to an object that has only metadata, as in bookmarks.
    pub fn fill_metadata(&self, mut object: Value) -> Value {
        if let Some(built_in) = self.built_in() {
            schema::decode::fill(&mut object, built_in.schema);
        }
        object
    }
}

/// Conversions to and from the objects of subresources.
impl Shapes<'_> {
    pub fn view(&self, subresource: Subresource, object: &Working) -> Result<Sent, Status> {
        match (subresource, &self.resource.origin) {
            (Subresource::Scale, ResourceOrigin::Custom(custom)) => {
                let scale = crd::scale::from_object(scale_paths(custom)?, object).map_err(Status::plain)?;
                Ok(Sent(scale.0))
            }
            (Subresource::Scale, ResourceOrigin::BuiltIn(_)) => {
                Ok(Sent(scale::from_object(self.scaled()?, object)))
            }
            _ => Ok(self.to_sent(object.clone())),
        }
    }

    /// The base of a patch or apply through a subresource. Unlike in [`Shapes::view`], the scale of a custom resource may lack fields that
    /// its CRD names.
    pub fn patch_base(&self, subresource: Subresource, object: &Working) -> Result<Sent, Status> {
        match (subresource, &self.resource.origin) {
            (Subresource::Scale, ResourceOrigin::Custom(custom)) => {
                crd::scale::patch_base(scale_paths(custom)?, object).map(Sent).map_err(Status::plain)
            }
            _ => self.view(subresource, object),
        }
    }

    /// The object of a dry run as a subresource shows it.
    pub fn answer_object(&self, subresource: Subresource, object: Working) -> Result<Sent, Status> {
        match subresource {
            Subresource::Scale => self.view(subresource, &object),
            _ => Ok(self.to_sent(object)),
        }
    }

    /// Sets the replicas of `old` from a changed scale.
    pub fn apply_scale(&self, scale: &Sent, old: &Working) -> Result<Working, Status> {
        // Only the number of replicas differs from `old`, so the result has its shape.
        Ok(Working(match &self.resource.origin {
            ResourceOrigin::Custom(custom) => crd::scale::apply(scale_paths(custom)?, old, scale)?,
            ResourceOrigin::BuiltIn(_) => scale::apply(self.scaled()?, old, scale)?,
        }))
    }

    /// An empty `Scale`, with the fields that are written even when they are empty.
    pub fn empty_scale(&self) -> Sent {
        let mut empty = Value::map([("apiVersion", schema::apply::SCALE_VERSION), ("kind", "Scale")]);
        schema::decode::fill(&mut empty, self.resource.subresource_schema(Subresource::Scale));
        Sent(empty)
    }

    fn scaled(self) -> Result<scale::ScalableKind, Status> {
        scale::ScalableKind::of(&self.resource.stored.group_kind()).ok_or_else(Status::no_such_resource)
    }
}

fn scale_paths(custom: &CustomResourceVersion) -> Result<&crd::ScalePaths, Status> {
    custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)
}

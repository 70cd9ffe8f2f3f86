//! The objects of a request converted to the version in which policies matched.

use std::borrow::Cow;

use api::GroupVersionKind;
use value::Value;

use crate::VersionedObject;
use crate::matching::RequestContext;

/// The new and the old object in one version.
pub(super) struct ConvertedObjects<'a> {
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old: Option<Cow<'a, Value>>,
}

impl<'a> ConvertedObjects<'a> {
    /// Converts both objects to `kind`.
    pub(super) async fn of(
        context: &'a RequestContext<'a>,
        object: &'a VersionedObject<'_>,
        kind: &GroupVersionKind,
    ) -> Result<Self, String> {
        let old = &context.attributes.old_object;
        Ok(ConvertedObjects {
            object: convert(context, object, kind).await?,
            old: convert(context, old, kind).await?,
        })
    }
}

async fn convert<'a>(
    context: &'a RequestContext<'a>,
    object: &'a VersionedObject<'_>,
    kind: &GroupVersionKind,
) -> Result<Option<Cow<'a, Value>>, String> {
    if *kind == context.attributes.kind {
        return Ok(object.in_version(kind, context.cluster).await?.map(Cow::Borrowed));
    }
    match object.stored() {
        None => Ok(None),
        Some(stored) => {
            context.cluster.convert(stored, kind).await.map(|in_version| Some(Cow::Owned(in_version)))
        }
    }
}

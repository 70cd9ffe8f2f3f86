//! The objects of a request in the shapes that policies see: one for each kind that something matched as.

use std::borrow::Cow;

use api::GroupVersionKind;
use value::Value;

use crate::Seen;
use crate::matching::Asked;

/// The new and the old object in the shape of one kind.
pub(super) struct Shown<'a> {
    pub(super) object: Option<Cow<'a, Value>>,
    pub(super) old: Option<Cow<'a, Value>>,
}

impl<'a> Shown<'a> {
    /// Both in the shape of `kind`.
    pub(super) async fn of(
        asked: &'a Asked<'a>,
        object: &'a Seen<'_>,
        kind: &GroupVersionKind,
    ) -> Result<Self, String> {
        let old = &asked.attributes.old_object;
        Ok(Shown { object: one(asked, object, kind).await?, old: one(asked, old, kind).await? })
    }
}

async fn one<'a>(
    asked: &'a Asked<'a>,
    seen: &'a Seen<'_>,
    kind: &GroupVersionKind,
) -> Result<Option<Cow<'a, Value>>, String> {
    if *kind == asked.attributes.kind {
        return Ok(seen.shown(kind, asked.cluster).await?.map(Cow::Borrowed));
    }
    match seen.stored() {
        None => Ok(None),
        Some(stored) => asked.cluster.convert(stored, kind).await.map(|shown| Some(Cow::Owned(shown))),
    }
}

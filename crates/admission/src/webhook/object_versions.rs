//! A request's object in the versions that webhooks need, each converted once.

use api::{GroupVersionKind, Status};
use value::Value;

use crate::{ClusterView, VersionedObject};

pub(super) struct ObjectVersions<'a> {
    object: &'a VersionedObject<'a>,
    /// The kind in the request's version, whose conversion the whole chain shares.
    request_kind: &'a GroupVersionKind,
    others: Vec<(GroupVersionKind, Value)>,
}

impl<'a> ObjectVersions<'a> {
    /// `request_kind` is the kind in the request's version.
    pub(super) fn new(object: &'a VersionedObject<'a>, request_kind: &'a GroupVersionKind) -> Self {
        ObjectVersions { object, request_kind, others: Vec::new() }
    }

    /// Converts the object to `kind`, if not done yet.
    pub(super) async fn convert(
        &mut self,
        kind: &GroupVersionKind,
        cluster: &dyn ClusterView,
    ) -> Result<(), Status> {
        if kind == self.request_kind {
            return self.object.in_version(kind, cluster).await.map(drop).map_err(Status::internal);
        }
        if let Some(object) = self.object.stored()
            && !self.others.iter().any(|(known, _)| known == kind)
        {
            let converted = cluster.convert(object, kind).await.map_err(Status::internal)?;
            self.others.push((kind.clone(), converted));
        }
        Ok(())
    }

    /// The object converted to `kind`. Call [`Self::convert`] first.
    pub(super) async fn get(
        &self,
        kind: &GroupVersionKind,
        cluster: &dyn ClusterView,
    ) -> Result<Option<&Value>, Status> {
        if kind == self.request_kind {
            return self.object.in_version(kind, cluster).await.map_err(Status::internal);
        }
        Ok(self.others.iter().find(|(known, _)| known == kind).map(|(_, converted)| converted))
    }
}

//! A request's objects in the versions in which webhooks want to see them, each made once.

use api::{GroupVersionKind, Status};
use value::Value;

use crate::{Cluster, Seen};

/// One object in every version that was asked for.
pub(super) struct Views<'a> {
    object: &'a Seen<'a>,
    /// The version of the request: its view is shared with the rest of the chain.
    own: &'a GroupVersionKind,
    others: Vec<(GroupVersionKind, Value)>,
}

impl<'a> Views<'a> {
    /// No view yet. `own` is the kind in the request's version.
    pub(super) fn new(object: &'a Seen<'a>, own: &'a GroupVersionKind) -> Self {
        Views { object, own, others: Vec::new() }
    }

    /// Makes the view in the version of `kind`, if it is not there.
    pub(super) async fn make(
        &mut self,
        kind: &GroupVersionKind,
        cluster: &dyn Cluster,
    ) -> Result<(), Status> {
        if kind == self.own {
            return self.object.shown(kind, cluster).await.map(drop).map_err(Status::internal);
        }
        if let Some(object) = self.object.stored()
            && !self.others.iter().any(|(known, _)| known == kind)
        {
            let view = cluster.convert(object, kind).await.map_err(Status::internal)?;
            self.others.push((kind.clone(), view));
        }
        Ok(())
    }

    /// The view in the version of `kind`, which has been made.
    pub(super) async fn get(
        &self,
        kind: &GroupVersionKind,
        cluster: &dyn Cluster,
    ) -> Result<Option<&Value>, Status> {
        if kind == self.own {
            return self.object.shown(kind, cluster).await.map_err(Status::internal);
        }
        Ok(self.others.iter().find(|(known, _)| known == kind).map(|(_, view)| view))
    }
}

//! The faces of an object: itself, and the subresources that are views of it.

use api::{GroupVersionKind, Status};
use resources::schema::Schema;
use resources::{custom, scale};
use value::Value;

use super::kind::{Kind, Nature};
use crate::decode::Draft;

/// Which face of an object a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facet {
    /// The object itself.
    Whole,
    /// `status`.
    Status,
    /// `scale`: another kind's view of the number of replicas.
    Scale,
    /// `namespaces/finalize`.
    Finalize,
    /// `certificatesigningrequests/approval`.
    Approval,
    /// `pods/ephemeralcontainers`.
    EphemeralContainers,
    /// `pods/resize`.
    Resize,
}

impl Facet {
    /// The facet that a subresource is, if it is one.
    pub fn of(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Facet::Whole,
            "status" => Facet::Status,
            "scale" => Facet::Scale,
            "finalize" => Facet::Finalize,
            "approval" => Facet::Approval,
            "ephemeralcontainers" => Facet::EphemeralContainers,
            "resize" => Facet::Resize,
            _ => return None,
        })
    }

    /// The subresource's name; empty for the object itself.
    pub fn subresource(self) -> &'static str {
        match self {
            Facet::Whole => "",
            Facet::Status => "status",
            Facet::Scale => "scale",
            Facet::Finalize => "finalize",
            Facet::Approval => "approval",
            Facet::EphemeralContainers => "ephemeralcontainers",
            Facet::Resize => "resize",
        }
    }
}

impl Kind {
    /// The kind that admission is told.
    pub fn admission_kind(&self, facet: Facet) -> GroupVersionKind {
        match facet {
            Facet::Scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
            _ => self.gvk.clone(),
        }
    }

    /// The schema of what a facet takes.
    pub fn facet_schema(&self, facet: Facet) -> &Schema {
        match facet {
            Facet::Scale => {
                resources::schema::of("autoscaling", "v1", "Scale").unwrap_or_else(|| self.schema())
            }
            _ => self.schema(),
        }
    }

    /// A stored object as a facet shows it, in the version of the request.
    pub fn view(&self, facet: Facet, object: &Value) -> Result<Value, Status> {
        match (facet, &self.nature) {
            (Facet::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::from_object(paths, object).map(|(scale, _)| scale).map_err(Status::plain)
            }
            (Facet::Scale, Nature::BuiltIn(_)) => Ok(scale::from_object(self.scaled()?, object)),
            _ => Ok(self.from_stored(object.clone())),
        }
    }

    /// The same as what a change through the facet starts from.
    pub fn to_change(&self, facet: Facet, object: &Value) -> Result<Value, Status> {
        match (facet, &self.nature) {
            (Facet::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::to_change(paths, object).map_err(Status::plain)
            }
            _ => self.view(facet, object),
        }
    }

    fn scaled(&self) -> Result<scale::Scaled, Status> {
        scale::Scaled::of(&self.stored.group_kind()).ok_or_else(Status::no_such_resource)
    }

    /// The object that a change through a facet asks for.
    pub fn through(&self, facet: Facet, draft: Draft, old: &Value) -> Result<Draft, Status> {
        match (facet, &self.nature) {
            (Facet::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::apply(paths, old, draft.object()).map(Draft::again)
            }
            (Facet::Scale, Nature::BuiltIn(_)) => {
                scale::apply(self.scaled()?, old, draft.object()).map(Draft::again)
            }
            _ => Ok(draft),
        }
    }

    /// A dry run's object as a facet shows it.
    pub fn answer_object(&self, facet: Facet, object: Value) -> Result<Value, Status> {
        match facet {
            Facet::Scale => self.view(facet, &object),
            _ => Ok(self.from_stored(object)),
        }
    }
}

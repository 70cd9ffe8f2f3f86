//! The faces of an object: itself, and the subresources that are views of it.

use api::{GroupVersionKind, Status};
use resources::schema::Schema;
use resources::{custom, scale};
use value::Value;

use super::served_resource::{Nature, ServedResource};
use crate::decode::Draft;

/// Which face of an object a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself.
    None,
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

impl Subresource {
    /// The subresource that a subresource is, if it is one.
    pub fn of(subresource: &str) -> Option<Self> {
        Some(match subresource {
            "" => Subresource::None,
            "status" => Subresource::Status,
            "scale" => Subresource::Scale,
            "finalize" => Subresource::Finalize,
            "approval" => Subresource::Approval,
            "ephemeralcontainers" => Subresource::EphemeralContainers,
            "resize" => Subresource::Resize,
            _ => return None,
        })
    }

    /// The subresource's name; empty for the object itself.
    pub fn name(self) -> &'static str {
        match self {
            Subresource::None => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
            Subresource::Approval => "approval",
            Subresource::EphemeralContainers => "ephemeralcontainers",
            Subresource::Resize => "resize",
        }
    }
}

impl ServedResource {
    /// The kind that admission is told.
    pub fn admission_kind(&self, subresource: Subresource) -> GroupVersionKind {
        match subresource {
            Subresource::Scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
            _ => self.gvk.clone(),
        }
    }

    /// The schema of what a subresource takes.
    pub fn subresource_schema(&self, subresource: Subresource) -> &Schema {
        match subresource {
            Subresource::Scale => {
                resources::schema::of("autoscaling", "v1", "Scale").unwrap_or_else(|| self.schema())
            }
            _ => self.schema(),
        }
    }

    /// A stored object as a subresource shows it, in the version of the request.
    pub fn view(&self, subresource: Subresource, object: &Value) -> Result<Value, Status> {
        match (subresource, &self.nature) {
            (Subresource::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::from_object(paths, object).map(|(scale, _)| scale).map_err(Status::plain)
            }
            (Subresource::Scale, Nature::BuiltIn(_)) => Ok(scale::from_object(self.scaled()?, object)),
            _ => Ok(self.from_stored(object.clone())),
        }
    }

    /// The same as what a change through the subresource starts from.
    pub fn to_change(&self, subresource: Subresource, object: &Value) -> Result<Value, Status> {
        match (subresource, &self.nature) {
            (Subresource::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::to_change(paths, object).map_err(Status::plain)
            }
            _ => self.view(subresource, object),
        }
    }

    fn scaled(&self) -> Result<scale::Scaled, Status> {
        scale::Scaled::of(&self.stored.group_kind()).ok_or_else(Status::no_such_resource)
    }

    /// The object that a change through a subresource asks for.
    pub fn through(&self, subresource: Subresource, draft: Draft, old: &Value) -> Result<Draft, Status> {
        match (subresource, &self.nature) {
            (Subresource::Scale, Nature::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                custom::scale::apply(paths, old, draft.object()).map(Draft::again)
            }
            (Subresource::Scale, Nature::BuiltIn(_)) => {
                scale::apply(self.scaled()?, old, draft.object()).map(Draft::again)
            }
            _ => Ok(draft),
        }
    }

    /// A dry run's object as a subresource shows it.
    pub fn answer_object(&self, subresource: Subresource, object: Value) -> Result<Value, Status> {
        match subresource {
            Subresource::Scale => self.view(subresource, &object),
            _ => Ok(self.from_stored(object)),
        }
    }
}

//! Subresources that are views of an object, through which it is read and changed.

use api::{GroupVersionKind, Status};
use kinds::scale;
use schema::Schema;

use super::served_resource::{ResourceOrigin, ServedResource};
use super::shapes::{Sent, Working};

/// The view of an object that a request reads or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself, without a subresource.
    None,
    Status,
    /// The replica count as an `autoscaling/v1` `Scale`.
    Scale,
    /// Only of namespaces (`namespaces/finalize`).
    Finalize,
    /// Only of certificate signing requests (`certificatesigningrequests/approval`).
    Approval,
    /// Only of pods (`pods/ephemeralcontainers`).
    EphemeralContainers,
    /// Only of pods (`pods/resize`).
    Resize,
}

impl Subresource {
    /// Parses a subresource name; `None` for one that is not a view of the object, such as `pods/log`.
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

    /// Name of the subresource; empty for the object itself.
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
    /// Kind of the object that admission receives.
    pub fn admission_kind(&self, subresource: Subresource) -> GroupVersionKind {
        match subresource {
            Subresource::Scale => GroupVersionKind::new("autoscaling", "v1", "Scale"),
            _ => self.gvk.clone(),
        }
    }

    /// Schema of the object that clients send to a subresource.
    pub fn subresource_schema(&self, subresource: Subresource) -> &Schema {
        match subresource {
            Subresource::Scale => schema::of("autoscaling", "v1", "Scale").unwrap_or_else(|| self.schema()),
            _ => self.schema(),
        }
    }

    /// An object as a subresource shows it.
    pub fn view(&self, subresource: Subresource, object: &Working) -> Result<Sent, Status> {
        match (subresource, &self.origin) {
            (Subresource::Scale, ResourceOrigin::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                let scale = crd::scale::from_object(paths, object).map_err(Status::plain)?;
                Ok(Sent::new(scale.0))
            }
            (Subresource::Scale, ResourceOrigin::BuiltIn(_)) => {
                Ok(Sent::new(scale::from_object(self.scaled()?, object)))
            }
            _ => Ok(self.to_sent(object.clone())),
        }
    }

    /// An object as the base of a patch or apply through a subresource. Unlike in [`ServedResource::view`], the scale of a custom resource
    /// may lack fields that its CRD names.
    pub fn to_change(&self, subresource: Subresource, object: &Working) -> Result<Sent, Status> {
        match (subresource, &self.origin) {
            (Subresource::Scale, ResourceOrigin::Custom(custom)) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                crd::scale::to_change(paths, object).map(Sent::new).map_err(Status::plain)
            }
            _ => self.view(subresource, object),
        }
    }

    fn scaled(&self) -> Result<scale::Scaled, Status> {
        scale::Scaled::of(&self.stored.group_kind()).ok_or_else(Status::no_such_resource)
    }

    /// Sets the replicas of `old` from a changed scale.
    pub fn apply_scale(&self, scale: &Sent, old: &Working) -> Result<Working, Status> {
        let object = match &self.origin {
            ResourceOrigin::Custom(custom) => {
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                crd::scale::apply(paths, old, scale)?
            }
            ResourceOrigin::BuiltIn(_) => scale::apply(self.scaled()?, old, scale)?,
        };
        // Only the number of replicas differs from `old`.
        Ok(Working::of_converted(object))
    }

    /// The object of a dry run as a subresource shows it.
    pub fn answer_object(&self, subresource: Subresource, object: Working) -> Result<Sent, Status> {
        match subresource {
            Subresource::Scale => self.view(subresource, &object),
            _ => Ok(self.to_sent(object)),
        }
    }
}

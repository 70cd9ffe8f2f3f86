//! Subresources that are views of an object, through which it is read and changed.

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

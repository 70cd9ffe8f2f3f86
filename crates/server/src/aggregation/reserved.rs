//! The group versions that no APIService can give to another server: those that this server serves with built-in resources.
//!
//! kube-apiserver lets an APIService take over such a group version. A user who may write APIServices can then direct all requests for it to
//! a server of their own, with their objects (Secrets, for `v1.`) and the headers that name the caller.

use api::{FieldError, GroupVersion};
use catalog::ServedResource;
use documents::discovery::Registration;
use kinds::table::Served;
use value::{Path, Value};

use super::GROUP;

/// Whether this server serves the group version with built-in resources.
pub(super) fn is_reserved(served: &Served, registration: &Registration) -> bool {
    served.is_served(&registration.group, &registration.version)
}

/// Refuses `spec.service` in an APIService for a reserved group version. An update may leave a stored one as it is, because it has no
/// effect and other fields must stay changeable.
pub(crate) fn check_service(
    served: &Served,
    kind: &ServedResource,
    new: &Value,
    old: Option<&Value>,
) -> Option<FieldError> {
    const SERVICE: [&str; 2] = ["spec", "service"];
    if !kind.is_built_in(GROUP, "APIService") {
        return None;
    }
    let service = new.at(&SERVICE).filter(|service| !service.is_null())?;
    let text = |field: &str| new.str_at(&["spec", field]).unwrap_or_default();
    let (group, version) = (text("group"), text("version"));
    if !served.is_served(group, version) || old.is_some_and(|old| old.at(&SERVICE) == Some(service)) {
        return None;
    }
    let about = GroupVersion::new(group, version);
    let why =
        format!("{about} is served by this server itself and cannot be served by an aggregated API server");
    Some(FieldError::forbidden(&Path::root().field("spec").field("service"), why))
}

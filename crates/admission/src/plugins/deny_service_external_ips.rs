//! DenyServiceExternalIPs: rejects new external IPs of Services. Off by default.

use std::collections::HashSet;

use api::Status;
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

/// Rejects new external IPs of services.
#[derive(Debug)]
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(service) = object.filter(|_| attributes.writes("", "services")) else {
            return Ok(());
        };
        let addresses = service.list_at(&["spec", "externalIPs"]);
        let before =
            attributes.old_object.stored().map_or(&[][..], |old| old.list_at(&["spec", "externalIPs"]));
        let before: HashSet<&str> = before.iter().filter_map(Value::as_str).collect();
        if addresses.iter().all(|address| address.as_str().is_some_and(|address| before.contains(address))) {
            return Ok(());
        }
        Err(attributes.refuse(object, "Use of external IPs is denied by admission control"))
    }
}

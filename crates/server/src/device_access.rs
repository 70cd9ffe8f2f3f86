//! What needs more than the right to write a claim for devices: admin access (KEP-5018), and the parts of a status that belong to
//! the scheduler and to drivers.

use std::collections::{BTreeMap, BTreeSet};

use admission::ClusterView;
use api::{FieldError, FieldErrors, meta};
use authz::{Attributes, Decision, forbidden};
use kinds::validation::admin_access;
use value::{Path, Str, Value};

use crate::call::Call;
use crate::catalog::ServedResource;
use crate::state::State;

/// Drops admin access where there is no such thing: from what is new, not from what has it already.
pub(crate) fn drop_admin(state: &State, kind: &ServedResource, object: &mut Value, old: Option<&Value>) {
    if !state.apis.admin_access {
        kinds::strategy::drop_admin_access(&kind.built_in_kind(), object, old);
    }
}

/// Whether a new object asks for admin access.
pub(crate) fn asks_admin(kind: &ServedResource, new: &Value) -> bool {
    admin_access::asked(&kind.built_in_kind(), new, None).is_some()
}

/// The audit annotation of everybody who asks for admin access: the object, and which label allowed it, or that none did.
const ANNOTATION: &str = "resource.k8s.io/admin-access";

/// Admin access to devices needs a namespace that is labelled for it, as it is now. `old_status_of` is the object before a change of
/// its status; absent for a new object.
pub(crate) fn check_admin(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    new: &Value,
    old_status_of: Option<&Value>,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let Some(at) = admin_access::asked(&kind.built_in_kind(), new, old_status_of) else { return errors };
    let name = call.info.namespace.clone();
    let namespace = ClusterView::object(state, "", "namespaces", "", &name);
    let object = format!("{name}/{}", meta::name(new));
    let resource = match call.info.subresource.as_str() {
        "" => kind.resource.to_string(),
        subresource => format!("{}/{subresource}", kind.resource),
    };
    match namespace.as_deref().and_then(admin_access::allowed_by) {
        None => {
            tracing::warn!(
                user = %call.user().name,
                namespace = %name,
                name = meta::name(new),
                resource,
                "admin access to devices refused: the namespace has no label that allows it"
            );
            call.annotate(
                ANNOTATION,
                format!("{object}: refused, the namespace has no label that allows it"),
            );
            errors.push(admin_access::refused(&at));
        }
        Some(label) => {
            tracing::info!(
                user = %call.user().name,
                namespace = %name,
                name = meta::name(new),
                resource,
                label,
                "admin access to devices allowed"
            );
            call.annotate(ANNOTATION, format!("{object}: allowed by the label {label}"));
            if label != admin_access::LABEL {
                call.warn(format!(
                    "admin access is allowed by the label {label}; use {} instead",
                    admin_access::LABEL
                ));
            }
        }
    }
    errors
}

/// A changed status of a claim: allocation and reservations need `resourceclaims/binding` in the whole cluster, what is said about a
/// device the right to speak for its driver.
pub(crate) async fn check_status(
    state: &State,
    call: &Call,
    kind: &ServedResource,
    new: &Value,
    old: &Value,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if !kind.is_built_in("resource.k8s.io", "ResourceClaim") {
        return errors;
    }
    let status = Path::root().field("status");
    let verb = call.info.verb.as_str();
    if differ(new, old, "allocation") || differ(new, old, "reservedFor") {
        let asked = asked(call, verb.into(), "binding");
        if let Err(why) = may(state, call, asked).await {
            errors.push(FieldError::forbidden(
                &status.field("allocation"),
                format!(
                    "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}"
                ),
            ));
        }
    }
    // What is said about devices goes with the allocation, whoever takes that away.
    if new.at(&["status", "allocation"]).is_some_and(|allocation| !allocation.is_null()) {
        let verbs = driver_verbs(call, verb, new);
        for driver in changed_drivers(new, old) {
            if let Err(why) = may_any(state, call, &verbs, driver).await {
                errors.push(FieldError::forbidden(
                    &status.field("devices"),
                    format!(
                        "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {why}",
                        verbs.join(" ")
                    ),
                ));
            }
        }
    }
    errors
}

/// Absent, null and empty are one.
fn differ(new: &Value, old: &Value, field: &str) -> bool {
    let read = |claim: &Value| {
        let found = claim.at(&["status", field]).filter(|found| !found.is_null());
        found.filter(|found| found.as_list().is_none_or(|items| !items.is_empty())).cloned()
    };
    read(new) != read(old)
}

/// The question about a made-up part of the resource that is written.
fn asked(call: &Call, verb: Str, part: &'static str) -> Attributes {
    let mut attributes = call.permit().attributes().clone();
    attributes.verb = verb;
    attributes.subresource = Str::new_static(part);
    attributes.namespace = Str::default();
    attributes.name = Str::default();
    attributes
}

/// Whether the caller may; in Kubernetes' words why not.
async fn may(state: &State, call: &Call, asked: Attributes) -> Result<(), String> {
    let answer = state.authorization.chain_for(call.caller()).decide(call.user(), &asked).await;
    if answer.decision == Decision::Allow {
        return Ok(());
    }
    Err(forbidden(&call.user().name, &asked, &answer.why()).message().to_owned())
}

/// Whether the caller may speak for a driver by one of these verbs; otherwise why not by the first.
async fn may_any(state: &State, call: &Call, verbs: &[String], driver: &str) -> Result<(), String> {
    let mut first = None;
    for verb in verbs {
        let mut asked = asked(call, verb.as_str().into(), "driver");
        asked.namespace = call.info.namespace.clone();
        asked.name = driver.into();
        match may(state, call, asked).await {
            Ok(()) => return Ok(()),
            Err(why) => first = first.or(Some(why)),
        }
    }
    Err(first.unwrap_or_default())
}

/// A service account on the node of the claim may do with less than one elsewhere.
fn driver_verbs(call: &Call, verb: &str, claim: &Value) -> Vec<String> {
    let anywhere = format!("arbitrary-node:{verb}");
    if is_on_node_of(call, claim) {
        return vec![format!("associated-node:{verb}"), anywhere];
    }
    vec![anywhere]
}

fn is_on_node_of(call: &Call, claim: &Value) -> bool {
    let user = call.user();
    let named = user.extra.get("authentication.kubernetes.io/node-name").map(Vec::as_slice);
    let (Some([node]), Some(allocated)) = (named, node_of(claim)) else { return false };
    authn::service_account::split(&user.name).is_some()
        && api::names::name_is_dns_subdomain(node, false).is_empty()
        && node.as_str() == allocated
}

/// The one node that an allocation names.
fn node_of(claim: &Value) -> Option<&str> {
    let [term] = claim.list_at(&["status", "allocation", "nodeSelector", "nodeSelectorTerms"]) else {
        return None;
    };
    let [field] = term.list_at(&["matchFields"]) else { return None };
    let [value] = field.list_at(&["values"]) else { return None };
    let by_name = term.list_at(&["matchExpressions"]).is_empty()
        && field.str_at(&["key"]) == Some("metadata.name")
        && field.str_at(&["operator"]) == Some("In");
    value.as_str().filter(|_| by_name)
}

/// The drivers whose devices are described, no longer described or described otherwise.
fn changed_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let devices = |claim: &'a Value| claim.list_at(&["status", "devices"]);
    let key = |device: &'a Value| {
        ["driver", "pool", "device", "shareID"].map(|part| device.str_at(&[part]).unwrap_or_default())
    };
    let mut before: BTreeMap<[&str; 4], &Value> = devices(old).iter().map(|d| (key(d), d)).collect();
    let mut changed = BTreeSet::new();
    for device in devices(new) {
        let key = key(device);
        if before.remove(&key) != Some(device) {
            changed.extend(key.first());
        }
    }
    changed.extend(before.keys().filter_map(|key| key.first()));
    changed
}

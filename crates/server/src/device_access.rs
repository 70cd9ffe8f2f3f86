//! Checks of ResourceClaims beyond the permission to write them: admin access (KEP-5018), and the parts of the status that belong to the
//! scheduler and to DRA drivers.

use std::collections::{BTreeMap, BTreeSet};

use api::{FieldError, FieldErrors, Status, meta};
use authz::{AuthorizationAttributes, Decision, forbidden};
use catalog::ServedResource;
use catalog::encode;
use catalog::keys;
use kinds::validation::admin_access;
use runtime::LogLimit;
use value::{Path, Str, Value};

use crate::call::Call;
use crate::consistent_reads;
use crate::state::State;

/// Drops `adminAccess` if the feature gate `DRAAdminAccess` is off and the old object does not have it.
pub(crate) fn drop_admin(state: &State, kind: &ServedResource, object: &mut Value, old: Option<&Value>) {
    if !state.apis.admin_access {
        kinds::strategy::drop_admin_access(&kind.built_in_kind(), object, old);
    }
}

/// Whether a new object asks for admin access.
pub(crate) fn asks_admin(kind: &ServedResource, new: &Value) -> bool {
    admin_access::requesting_field(&kind.built_in_kind(), new, None).is_some()
}

/// Audit annotation of requests for admin access: the object, and the namespace label that allowed it or that there was none.
const ANNOTATION: &str = "resource.k8s.io/admin-access";

/// The audit log has all refusals; a client can cause any number of them.
static REFUSED_LOG: LogLimit = LogLimit::with_burst(20);

/// Checks that the namespace currently has a label that allows admin access, if the object asks for it. `old_status_of` is the object
/// before a change of its status; `None` for a new object.
pub(crate) async fn check_admin(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    new: &Value,
    old_status_of: Option<&Value>,
) -> Result<FieldErrors, Status> {
    let mut errors = FieldErrors::new();
    let Some(at) = admin_access::requesting_field(&kind.built_in_kind(), new, old_status_of) else {
        return Ok(errors);
    };
    let name = call.info.namespace.clone();
    let object = format!("{name}/{}", meta::name(new));
    let resource = match call.info.subresource.as_str() {
        "" => kind.resource.to_string(),
        subresource => format!("{}/{subresource}", kind.resource),
    };
    match allowing_label(state, &name).await? {
        None => {
            if let Some(unlogged) = REFUSED_LOG.due() {
                tracing::warn!(
                    user = %call.user().name,
                    namespace = %name,
                    name = meta::name(new),
                    resource,
                    unlogged,
                    "admin access to devices refused: the namespace has no label that allows it"
                );
            }
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
    Ok(errors)
}

/// Repeats [`check_admin`] after validating admission, whose webhooks may have taken long: once the removal of the label is acknowledged, no
/// new object asks for admin access. (kube-apiserver does not check again.)
pub(crate) async fn check_admin_again(
    state: &State,
    call: &Call,
    kind: &ServedResource,
    new: &Value,
    old_status_of: Option<&Value>,
) -> Result<FieldErrors, Status> {
    let mut errors = FieldErrors::new();
    if let Some(at) = admin_access::requesting_field(&kind.built_in_kind(), new, old_status_of)
        && allowing_label(state, &call.info.namespace).await?.is_none()
    {
        errors.push(admin_access::refused(&at));
    }
    Ok(errors)
}

/// The label by which a namespace allows admin access. Like kube-apiserver, this reads it from the backend: another server may have
/// removed it.
async fn allowing_label(state: &State, namespace: &str) -> Result<Option<&'static str>, Status> {
    let key = keys::built_in("", "namespaces").map(|prefix| keys::cluster_scoped(prefix, namespace));
    let entry = consistent_reads::entry(&state.storage.store, &key.unwrap_or_default()).await?;
    let namespace = entry.map(|entry| encode::tree(&entry)).transpose()?;
    Ok(namespace.as_ref().and_then(admin_access::allowed_by))
}

/// Authorizes a changed status of a ResourceClaim: allocation and reservations need `resourceclaims/binding` in the whole cluster, and
/// `status.devices` needs `resourceclaims/driver` for the driver of each changed device.
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
        let access_attributes = access_attributes(call, verb.into(), "binding");
        if let Err(why) = may(state, call, access_attributes).await {
            errors.push(FieldError::forbidden(
                &status.field("allocation"),
                format!(
                    "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}"
                ),
            ));
        }
    }
    // Without an allocation there are no devices: removing it removes `status.devices`, which needs no further permission.
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

/// Compares a field of the status. An absent field, null and an empty list are equal.
fn differ(new: &Value, old: &Value, field: &str) -> bool {
    let read = |claim: &Value| {
        let found = claim.at(&["status", field]).filter(|found| !found.is_null());
        found.filter(|found| found.as_list().is_none_or(|items| !items.is_empty())).cloned()
    };
    read(new) != read(old)
}

/// The request attributes with another verb and a synthetic subresource, without namespace and name.
fn access_attributes(call: &Call, verb: Str, part: &'static str) -> AuthorizationAttributes {
    let mut attributes = call.permit().attributes().clone();
    attributes.verb = verb;
    attributes.subresource = Str::new_static(part);
    attributes.namespace = Str::default();
    attributes.name = Str::default();
    attributes
}

/// Authorizes the caller. The error is kube-apiserver's message.
async fn may(state: &State, call: &Call, access_attributes: AuthorizationAttributes) -> Result<(), String> {
    let answer = state.authorization.chain_for(call.caller()).decide(call.user(), &access_attributes).await;
    if answer.decision == Decision::Allow {
        return Ok(());
    }
    Err(forbidden(&call.user().name, &access_attributes, &answer.why()).message().to_owned())
}

/// Authorizes the caller for a driver by one of `verbs`. The error is that of the first verb.
async fn may_any(state: &State, call: &Call, verbs: &[String], driver: &str) -> Result<(), String> {
    let mut first = None;
    for verb in verbs {
        let mut access_attributes = access_attributes(call, verb.as_str().into(), "driver");
        access_attributes.namespace = call.info.namespace.clone();
        access_attributes.name = driver.into();
        match may(state, call, access_attributes).await {
            Ok(()) => return Ok(()),
            Err(why) => first = first.or(Some(why)),
        }
    }
    Err(first.unwrap_or_default())
}

/// The verbs on the driver, any of which permits the change: `arbitrary-node:VERB`, and for a service account on the node of the claim
/// also `associated-node:VERB`.
fn driver_verbs(call: &Call, verb: &str, claim: &Value) -> Vec<String> {
    let anywhere = format!("arbitrary-node:{verb}");
    if is_on_node_of(call, claim) {
        return vec![format!("associated-node:{verb}"), anywhere];
    }
    vec![anywhere]
}

fn is_on_node_of(call: &Call, claim: &Value) -> bool {
    let user = call.user();
    let named = user.extra.get(authn::names::NODE_NAME).map(Vec::as_slice);
    let (Some([node]), Some(allocated)) = (named, node_of(claim)) else { return false };
    authn::service_account::split(&user.name).is_some()
        && api::names::name_is_dns_subdomain(node, false).is_empty()
        && node.as_str() == allocated
}

/// The node of an allocation whose node selector matches a single node by name.
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

/// The drivers of the devices that were added to `status.devices`, removed from it or changed.
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

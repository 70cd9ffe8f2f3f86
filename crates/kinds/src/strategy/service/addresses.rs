//! Allocation of cluster IPs and choice of their families.

use std::net::IpAddr;

use api::names::parse_ip_sloppy;
use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, Status};
use value::Value;

use super::facts::{
    NONE, families_of, family_of, first_ip, has_selector, is_external_name, set_cluster_ips, set_families,
};
use super::{AddressError, Allocator, Family, ServiceAllocation, invalid, keeps_dual_stack, refuse};
use crate::validation::service::cluster_ip_errors;

/// Sets `ipFamilyPolicy` and `ipFamilies`; fails if the server's ranges do not support them.
pub(super) fn init_families(
    service: &mut Value,
    old: Option<&Value>,
    allocator: &mut dyn Allocator,
) -> Result<(), Status> {
    if is_external_name(service) || old.is_some_and(|old| keeps_dual_stack(service, old)) {
        return Ok(());
    }
    let headless_without_selector = service.part("spec").text("clusterIP") == NONE && !has_selector(service);
    default_family_policy(service, old, headless_without_selector);
    refuse(service, &cluster_ip_errors(service, old))?;

    let mut errors = FieldErrors::new();
    let policy = service.part("spec").text("ipFamilyPolicy").to_owned();
    if let Some(old) = old {
        release_secondary(service, old, &policy, &mut errors);
    }
    if policy == "SingleStack" {
        single_stack_has_one(service, &mut errors);
    }
    let mut families = families_with_those_of_addresses(service, allocator, &mut errors);
    refuse(service, &errors)?;

    let is_dual_stack_cluster = allocator.has(Family::V4) && allocator.has(Family::V6);
    if !headless_without_selector {
        refuse(service, &unconfigured_families(&policy, &families, is_dual_stack_cluster, allocator))?;
    }
    if families.is_empty() {
        families.push(allocator.default_family());
    }
    if let [only] = families[..]
        && policy != "SingleStack"
        && (headless_without_selector || is_dual_stack_cluster)
    {
        families.push(only.other());
    }
    set_families(service, &families);
    Ok(())
}

const IP_FAMILY_POLICY: At<'static> = At::new("spec.ipFamilyPolicy");

/// Sets an absent `ipFamilyPolicy`: that of the old service, or the default of a new one.
fn default_family_policy(service: &mut Value, old: Option<&Value>, headless_without_selector: bool) {
    if service.part("spec").part("ipFamilyPolicy").is_some() {
        return;
    }
    let policy = match old.and_then(|old| old.part("spec").text_if_set("ipFamilyPolicy")) {
        Some(policy) => policy.to_owned(),
        None if headless_without_selector => "RequireDualStack".to_owned(),
        None => "SingleStack".to_owned(),
    };
    service.set_at(&["spec", "ipFamilyPolicy"], policy);
}

/// Drops the secondary cluster IP and family that a change to `SingleStack` releases; any other policy must retain them.
fn release_secondary(service: &mut Value, old: &Value, policy: &str, errors: &mut FieldErrors) {
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (now, before) = (service.list_at(&["spec", field]), old.list_at(&["spec", field]));
        if policy == "SingleStack" {
            if now == before && now.len() > 1 {
                let first = now.first().cloned().into_iter().collect::<Vec<Value>>();
                service.set_at(&["spec", field], first);
            }
        } else if !now.is_empty() && now.len() < before.len() {
            let detail = format!("must be 'SingleStack' to release the secondary {what}");
            errors.invalid(&IP_FAMILY_POLICY, policy, detail);
        }
    }
}

fn single_stack_has_one(service: &Value, errors: &mut FieldErrors) {
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if service.list_at(&["spec", field]).len() == 2 {
            let detail =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid(&IP_FAMILY_POLICY, "SingleStack", detail);
        }
    }
}

/// Returns `ipFamilies`, extended by the families of further cluster IPs.
fn families_with_those_of_addresses(
    service: &Value,
    allocator: &dyn Allocator,
    errors: &mut FieldErrors,
) -> Vec<Family> {
    let mut families = families_of(service);
    let addresses: Vec<&str> = service.part("spec").texts("clusterIPs").collect();
    for (i, address) in addresses.iter().enumerate().skip(families.len()) {
        if *address == NONE {
            break;
        }
        match parse_ip_sloppy(address).map(family_of) {
            Some(family) if allocator.has(family) => families.push(family),
            family => {
                let at = At::new("spec.clusterIPs");
                let all = Value::list(addresses.iter().copied());
                let name = family.map_or("unknown", Family::as_str);
                errors.invalid(&at.index(i), all, format!("{name} is not configured on this cluster"));
            }
        }
    }
    families
}

fn unconfigured_families(
    policy: &str,
    families: &[Family],
    is_dual_stack_cluster: bool,
    allocator: &dyn Allocator,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if policy == "RequireDualStack" && !is_dual_stack_cluster {
        let detail = "this cluster is not configured for dual-stack services";
        errors.invalid(&IP_FAMILY_POLICY, policy, detail);
    }
    let list = At::new("spec.ipFamilies");
    for (i, family) in families.iter().enumerate() {
        if !allocator.has(*family) {
            errors.invalid(&list.index(i), family.as_str(), "not configured on this cluster");
        }
    }
    errors
}

pub(super) fn allocate_cluster_ips(
    service: &mut Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<(), Status> {
    if is_external_name(service) || first_ip(service) == NONE {
        return Ok(());
    }
    let wanted: Vec<String> = service.part("spec").texts("clusterIPs").map(str::to_owned).collect();
    let mut addresses = wanted.clone();
    for (i, family) in families_of(service).into_iter().enumerate() {
        let address = take_ip(service, family, wanted.get(i).map_or("", String::as_str), allocator, taken)?;
        match addresses.get_mut(i) {
            Some(slot) => *slot = address,
            None => addresses.push(address),
        }
    }
    set_cluster_ips(service, &addresses);
    Ok(())
}

pub(super) fn update_cluster_ips(
    new: &mut Value,
    old: &Value,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<(), Status> {
    if keeps_dual_stack(new, old) {
        return Ok(());
    }
    if is_external_name(old) && !is_external_name(new) {
        return allocate_cluster_ips(new, allocator, taken);
    }
    if first_ip(old) == NONE {
        return Ok(());
    }
    let old_families = families_of(old);
    let old_addresses = old.part("spec").items("clusterIPs");
    let release = |i: usize| -> Option<(Family, IpAddr)> {
        let address = parse_ip_sloppy(old_addresses.get(i)?.as_str()?)?;
        Some((*old_families.get(i)?, address))
    };
    if !is_external_name(old) && is_external_name(new) {
        taken.to_release.addresses.extend((0..old_families.len()).filter_map(release));
        return Ok(());
    }
    let families = families_of(new);
    match (old_families.as_slice(), families.as_slice()) {
        ([_], [_, second]) => {
            let mut addresses: Vec<String> =
                new.part("spec").texts("clusterIPs").map(str::to_owned).collect();
            let wanted = addresses.get(1).cloned().unwrap_or_default();
            let address = take_ip(new, *second, &wanted, allocator, taken)?;
            addresses.truncate(1);
            addresses.push(address);
            set_cluster_ips(new, &addresses);
        }
        ([_, _], [_]) => taken.to_release.addresses.extend(release(1)),
        _ => {}
    }
    Ok(())
}

/// Allocates `wanted`, or any address if it is empty.
fn take_ip(
    service: &Value,
    family: Family,
    wanted: &str,
    allocator: &mut dyn Allocator,
    taken: &mut ServiceAllocation,
) -> Result<String, Status> {
    let refusal = |detail: String| {
        let mut errors = FieldErrors::new();
        let mut all: Vec<Value> = service.list_at(&["spec", "clusterIPs"]).to_vec();
        while all.len() < families_of(service).len() {
            all.push("".into()); // as Go prints items not filled in yet
        }
        errors.invalid(&At::new("spec.clusterIPs"), Value::List(all), detail);
        invalid(service, &errors)
    };
    if wanted.is_empty() {
        let address = allocator.allocate_next(family).map_err(|error| match error {
            AddressError::Full => Status::internal(format!(
                "failed to allocate a serviceIP for Service {}: {error}",
                api::field::quote(api::meta::name(service))
            )),
            error => refusal(format!("failed to allocate IP: {error}")),
        })?;
        taken.to_revert.addresses.push((family, address));
        return Ok(address.to_string());
    }
    let Some(address) = parse_ip_sloppy(wanted) else {
        return Err(Status::internal(format!("failed to parse service IP {}", api::field::quote(wanted))));
    };
    allocator
        .allocate(family, address)
        .map_err(|error| refusal(format!("failed to allocate IP {wanted}: {error}")))?;
    taken.to_revert.addresses.push((family, address));
    Ok(wanted.to_owned())
}

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
    if service.part("spec").part("ipFamilyPolicy").is_none() {
        let policy = match old.and_then(|old| old.part("spec").text_if_set("ipFamilyPolicy")) {
            Some(policy) => policy.to_owned(),
            None if headless_without_selector => "RequireDualStack".to_owned(),
            None => "SingleStack".to_owned(),
        };
        service.set_at(&["spec", "ipFamilyPolicy"], policy);
    }
    refuse(service, &cluster_ip_errors(service, old))?;

    let mut errors = FieldErrors::new();
    let policy = service.part("spec").text("ipFamilyPolicy").to_owned();
    let policy_at = At::new("spec.ipFamilyPolicy");
    if let Some(old) = old {
        for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
            let (now, before) = (service.list_at(&["spec", field]), old.list_at(&["spec", field]));
            if policy == "SingleStack" {
                if now == before && now.len() > 1 {
                    let first = now.first().cloned().into_iter().collect::<Vec<Value>>();
                    service.set_at(&["spec", field], first);
                }
            } else if !now.is_empty() && now.len() < before.len() {
                let detail = format!("must be 'SingleStack' to release the secondary {what}");
                errors.invalid(&policy_at, policy.as_str(), detail);
            }
        }
    }
    if policy == "SingleStack" {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if service.list_at(&["spec", field]).len() == 2 {
                let detail = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                errors.invalid(&policy_at, policy.as_str(), detail);
            }
        }
    }
    let mut families = families_of(service);
    let addresses: Vec<String> = service.part("spec").texts("clusterIPs").map(str::to_owned).collect();
    for (i, address) in addresses.iter().enumerate().skip(families.len()) {
        if address == NONE {
            break;
        }
        let family = parse_ip_sloppy(address).map(family_of);
        match family {
            Some(family) if allocator.has(family) => families.push(family),
            family => {
                let at = At::new("spec.clusterIPs");
                let all = Value::list(addresses.iter().map(String::as_str));
                let name = family.map_or("unknown", Family::as_str);
                errors.invalid(&at.index(i), all, format!("{name} is not configured on this cluster"));
            }
        }
    }
    refuse(service, &errors)?;

    if headless_without_selector {
        if families.is_empty() {
            families.push(allocator.default_family());
        }
        if let [only] = families[..]
            && policy != "SingleStack"
        {
            families.push(only.other());
        }
        set_families(service, &families);
        return Ok(());
    }
    let mut errors = FieldErrors::new();
    let dual = allocator.has(Family::V4) && allocator.has(Family::V6);
    if policy == "RequireDualStack" && !dual {
        errors.invalid(&policy_at, policy.as_str(), "this cluster is not configured for dual-stack services");
    }
    for (i, family) in families.iter().enumerate() {
        if !allocator.has(*family) {
            errors.invalid(
                &At::new("spec.ipFamilies").index(i),
                family.as_str(),
                "not configured on this cluster",
            );
        }
    }
    refuse(service, &errors)?;
    if families.is_empty() {
        families.push(allocator.default_family());
    }
    if let [only] = families[..]
        && policy != "SingleStack"
        && dual
    {
        families.push(only.other());
    }
    set_families(service, &families);
    Ok(())
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
            Some(place) => *place = address,
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

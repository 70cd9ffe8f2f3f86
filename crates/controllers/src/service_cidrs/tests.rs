use std::time::Duration;

use value::Value;

use super::{CidrStep, FINALIZER, step};
use crate::fake::parse;

fn cidr(name: &str, cidrs: &str, deleted: bool) -> Value {
    let mut cidr = parse(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"cidrs":{cidrs}}}}}"#));
    cidr.set_at(&["metadata", "finalizers"], Value::list([FINALIZER]));
    if deleted {
        cidr.set_at(&["metadata", "deletionTimestamp"], "1970-01-01T00:01:40Z");
    }
    cidr
}

fn address(name: &str, manager: &str) -> Value {
    parse(&format!(
        r#"{{"metadata":{{"name":"{name}","labels":{{"ipaddress.kubernetes.io/managed-by":"{manager}"}}}}}}"#
    ))
}

/// The step for the first ServiceCIDR, 110 seconds after the epoch.
fn decide(all: &[Value], addresses: &[Value], now: i64) -> CidrStep {
    step(&all[0], all, || Ok(addresses.to_vec()), now).unwrap()
}

const OWN: &str = "ipallocator.k8s.io";

#[test]
fn a_service_cidr_is_protected_until_it_is_deleted() {
    assert_eq!(decide(&[cidr("a", r#"["10.0.0.0/24"]"#, false)], &[], 110), CidrStep::Protect);
}

#[test]
fn an_address_in_no_other_range_blocks_the_deletion() {
    let deleted = cidr("a", r#"["10.0.0.0/24"]"#, true);
    let used = [address("10.0.0.9", OWN)];
    assert_eq!(decide(std::slice::from_ref(&deleted), &used, 200), CidrStep::Block);
    assert_eq!(decide(std::slice::from_ref(&deleted), &[address("10.0.0.9", "me")], 200), CidrStep::Release);
    assert_eq!(decide(std::slice::from_ref(&deleted), &[address("10.0.1.9", OWN)], 200), CidrStep::Release);
    let wider = cidr("b", r#"["10.0.0.0/16"]"#, false);
    assert_eq!(decide(&[deleted.clone(), wider], &used, 200), CidrStep::Release);
    let same = cidr("b", r#"["10.0.0.0/24"]"#, false);
    assert_eq!(decide(&[deleted.clone(), same], &used, 200), CidrStep::Release);
    let part = cidr("b", r#"["10.0.0.0/28"]"#, false);
    assert_eq!(decide(&[deleted.clone(), part.clone()], &used, 200), CidrStep::Release, "in the part");
    assert_eq!(decide(&[deleted, part], &[address("10.0.0.99", OWN)], 200), CidrStep::Block);
}

#[test]
fn the_finalizer_stays_for_ten_seconds_so_that_every_server_knows_of_the_deletion() {
    let deleted = [cidr("a", r#"["10.0.0.0/24"]"#, true)];
    assert_eq!(decide(&deleted, &[], 103), CidrStep::Wait(Duration::from_secs(7)));
    assert_eq!(decide(&deleted, &[], 110), CidrStep::Release);
}

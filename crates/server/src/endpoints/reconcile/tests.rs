use std::collections::BTreeSet;

use value::{Value, json};

use super::{Ports, SliceAction, counted, endpoints_of, slice_action, slice_of};

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn set(ips: &[&str]) -> BTreeSet<String> {
    ips.iter().map(|ip| (*ip).to_owned()).collect()
}

fn ips(endpoints: &Value) -> Vec<&str> {
    let subsets = endpoints.list_at(&["subsets"]).iter();
    subsets.flat_map(|subset| subset.list_at(&["addresses"])).filter_map(|a| a.str_at(&["ip"])).collect()
}

#[test]
fn endpoints_have_the_addresses_of_all_servers_and_are_not_rewritten() {
    let both = endpoints_of(None, &set(&["10.1.0.2", "10.1.0.1"]), 6443, Ports::Keep).unwrap();
    assert_eq!(ips(&both), ["10.1.0.1", "10.1.0.2"]);
    assert_eq!(both.str_at(&super::SKIP_MIRROR), Some("true"));
    assert_eq!(endpoints_of(Some(&both), &set(&["10.1.0.1", "10.1.0.2"]), 6443, Ports::Reset), None);
    let one = endpoints_of(Some(&both), &set(&["10.1.0.2"]), 6443, Ports::Keep).unwrap();
    assert_eq!(ips(&one), ["10.1.0.2"]);
    let none = endpoints_of(Some(&one), &set(&[]), 6443, Ports::Reset).unwrap();
    assert!(none.list_at(&["subsets"]).is_empty());
    assert_eq!(endpoints_of(Some(&none), &set(&[]), 6443, Ports::Reset), None);
}

#[test]
fn a_server_with_another_port_leaves_the_port_alone_until_it_stops() {
    let theirs = endpoints_of(None, &set(&["10.1.0.1"]), 6443, Ports::Keep).unwrap();
    assert_eq!(endpoints_of(Some(&theirs), &set(&["10.1.0.1"]), 7443, Ports::Keep), None);
    let reset = endpoints_of(Some(&theirs), &set(&["10.1.0.1"]), 7443, Ports::Reset).unwrap();
    let subset = reset.list_at(&["subsets"]).first().unwrap();
    assert_eq!(subset.list_at(&["ports"])[0].int_at(&["port"]), Some(7443));
}

#[test]
fn malformed_endpoints_and_a_missing_label_are_corrected() {
    let two = parse(r#"{"subsets":[{"addresses":[{"ip":"1.1.1.1"}]},{"addresses":[{"ip":"2.2.2.2"}]}]}"#);
    assert_eq!(ips(&endpoints_of(Some(&two), &set(&["10.1.0.1"]), 1, Ports::Keep).unwrap()), ["10.1.0.1"]);
    let unlabeled = parse(r#"{"subsets":[{"addresses":[{"ip":"10.1.0.1"}]}]}"#);
    let labeled = endpoints_of(Some(&unlabeled), &set(&["10.1.0.1"]), 1, Ports::Keep).unwrap();
    assert_eq!(labeled.str_at(&super::SKIP_MIRROR), Some("true"));
    let twice = parse(r#"{"subsets":[{"addresses":[{"ip":"10.1.0.1"},{"ip":"10.1.0.1"}]}]}"#);
    assert_eq!(ips(&endpoints_of(Some(&twice), &set(&["10.1.0.1"]), 1, Ports::Keep).unwrap()), ["10.1.0.1"]);
}

#[test]
fn a_count_of_servers_keeps_the_own_address_and_drops_those_after_it() {
    let stored =
        parse(r#"{"subsets":[{"addresses":[{"ip":"10.1.0.1"},{"ip":"10.1.0.2"},{"ip":"10.1.0.4"}]}]}"#);
    assert_eq!(counted(Some(&stored), "10.1.0.2", 3), set(&["10.1.0.1", "10.1.0.2", "10.1.0.4"]));
    assert_eq!(counted(Some(&stored), "10.1.0.3", 3), set(&["10.1.0.1", "10.1.0.2", "10.1.0.3"]));
    assert_eq!(counted(Some(&stored), "10.1.0.5", 3), set(&["10.1.0.2", "10.1.0.4", "10.1.0.5"]));
    assert_eq!(counted(None, "10.1.0.5", 1), set(&["10.1.0.5"]));
}

#[test]
fn the_slice_has_the_addresses_of_one_family() {
    let of = |ips: &[&str]| slice_of(&endpoints_of(None, &set(ips), 6443, Ports::Keep).unwrap());
    let mixed = of(&["10.1.0.1", "fd00::1"]);
    assert_eq!(mixed.str_at(&["addressType"]), Some("IPv4"));
    assert_eq!(mixed.list_at(&["endpoints"]).len(), 1);
    let six = of(&["fd00::1"]);
    assert_eq!(six.str_at(&["addressType"]), Some("IPv6"));
    assert_eq!(slice_action(None, &six), SliceAction::Create);
    assert_eq!(slice_action(Some(&mixed), &six), SliceAction::Recreate);
    assert_eq!(slice_action(Some(&six), &six), SliceAction::Keep);
    let two = of(&["fd00::1", "fd00::2"]);
    let SliceAction::Update(updated) = slice_action(Some(&six), &two) else { panic!("not updated") };
    assert_eq!(updated, two);
}

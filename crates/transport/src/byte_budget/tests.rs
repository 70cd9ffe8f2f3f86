use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use authn::User;

use super::{Account, ByteBudget, ByteCharge, LogLimit, MINIMUM, STEP};

const MIB: u64 = 1 << 20;

fn budget(total: u64) -> Arc<ByteBudget> {
    Arc::new(ByteBudget {
        total,
        what: "bodies",
        in_use: AtomicU64::new(0),
        held: Mutex::default(),
        metrics: None,
        log: LogLimit::default(),
    })
}

/// The account of a user at address `10.0.0.{address}`.
fn at(user: &User, address: u8) -> Account {
    Account::of(user, IpAddr::from([10, 0, 0, address]))
}

/// Opens bodies of one [`STEP`] for `user` until one is refused.
fn fill(budget: &Arc<ByteBudget>, user: &User) -> Vec<ByteCharge> {
    let body = || {
        let mut charge = budget.open(at(user, 1)).ok()?;
        charge.grow_to(STEP).ok()?;
        Some(charge)
    };
    std::iter::from_fn(body).collect()
}

fn held(charges: &[ByteCharge]) -> u64 {
    charges.iter().map(|charge| charge.reserved).sum()
}

#[test]
fn a_body_is_charged_in_steps_for_what_arrived_and_given_back_when_dropped() {
    let budget = budget(16 * MIB);
    let mut charge = budget.open(at(&User::named("u"), 1)).unwrap();
    assert_eq!(charge.reserved, MINIMUM);
    charge.grow_to(MINIMUM).unwrap();
    assert_eq!(charge.reserved, MINIMUM);
    charge.grow_to(MINIMUM + 1).unwrap();
    assert_eq!(charge.reserved, STEP);
    charge.grow_to(3 * MIB).unwrap();
    assert_eq!(budget.lock().total, 3 * MIB);
    drop(charge);
    assert_eq!(budget.lock().total, 0);
    assert!(budget.lock().owners.is_empty());
}

#[test]
fn a_user_gets_half_of_the_byte_budget_alone_and_a_quarter_under_contention() {
    let budget = budget(16 * MIB);
    let alone = fill(&budget, &User::named("greedy"));
    assert_eq!(held(&alone), 8 * MIB);
    let other = fill(&budget, &User::named("other"));
    assert_eq!(held(&other), 4 * MIB);
    let status = budget.open(at(&User::named("greedy"), 1)).unwrap_err();
    assert_eq!((status.code(), status.details().unwrap().retry_after_seconds), (429, 1));
    drop(alone);
    assert_eq!(held(&fill(&budget, &User::named("greedy"))), 4 * MIB);
}

#[test]
fn the_byte_budget_reserves_room_for_components_and_for_administrators() {
    let budget = budget(16 * MIB);
    let users: Vec<_> = (0..8).flat_map(|n| fill(&budget, &User::named(format!("u{n}")))).collect();
    assert_eq!(held(&users), 14 * MIB);
    for name in ["system:anonymous", "system:serviceaccount:default:a", "late"] {
        assert!(budget.open(at(&User::named(name), 1)).is_err(), "{name}");
    }
    let node = fill(&budget, &User::named("system:node:n1"));
    assert_eq!(held(&node), MIB);
    assert!(budget.open(at(&User::named("system:serviceaccount:kube-system:c"), 1)).is_err());
    let master = fill(&budget, &User::named("m").in_groups([authn::names::MASTERS]));
    assert_eq!(held(&master), MIB);
}

#[test]
fn anonymous_clients_and_the_accounts_of_a_namespace_leave_room_for_others() {
    let budget = budget(16 * MIB);
    let anonymous = User::named(authn::names::ANONYMOUS);
    let charges = (1..=8).map_while(|address| budget.charge(at(&anonymous, address), 2 * MIB).ok());
    let charges: Vec<_> = charges.collect();
    assert_eq!(charges.len(), 5, "all addresses together");
    let account = |namespace: &str, n: u8| User::named(format!("system:serviceaccount:{namespace}:a{n}"));
    let _own = budget.charge(at(&account("one", 1), 1), 3 * MIB).unwrap();
    assert!(
        budget.charge(at(&account("one", 2), 2), 2 * MIB).is_err(),
        "the accounts of a namespace are one"
    );
    assert!(budget.charge(at(&account("two", 1), 1), MIB).is_ok());
}

#[test]
fn anonymous_clients_are_accounted_for_by_their_addresses_and_others_by_their_names() {
    let budget = budget(16 * MIB);
    let charge = |user: &User, address, bytes| budget.charge(at(user, address), bytes);
    let (anonymous, named) = (User::named(authn::names::ANONYMOUS), User::named("u"));
    let _half = [charge(&anonymous, 1, 5 * MIB).unwrap(), charge(&named, 1, 4 * MIB).unwrap()];
    assert!(charge(&anonymous, 1, 1).is_err());
    assert!(budget.check_room(&at(&anonymous, 1)).is_err());
    assert!(budget.check_room(&at(&anonymous, 2)).is_ok());
    assert!(charge(&named, 2, 1).is_err(), "another address is no other user");
    // Bytes charged beyond the limit count against later charges.
    let there = budget.charge_anyway(at(&named, 2), 16 * MIB);
    assert!(charge(&anonymous, 2, 1).is_err());
    drop(there);
    assert!(charge(&anonymous, 2, 1).is_ok());
}

use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use authn::User;

use super::{BudgetAccount, ByteBudget, ByteCharge, LogLimit, MINIMUM, STEP};

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
fn at(user: &User, address: u8) -> BudgetAccount {
    BudgetAccount::of(user, IpAddr::from([10, 0, 0, address]))
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
fn a_charge_that_shrinks_gives_back_the_rest() {
    let budget = budget(16 * MIB);
    let mut charge = budget.charge(at(&User::named("u"), 1), MIB).unwrap();
    charge.shrink_to(2 * MIB);
    assert_eq!(budget.lock().total, MIB);
    charge.shrink_to(1000);
    assert_eq!(budget.lock().total, 1000);
    let empty = budget.charge(at(&User::named("v"), 1), 0).unwrap();
    drop((charge, empty));
    assert_eq!(budget.lock().total, 0);
    assert!(budget.lock().owners.is_empty());
}

#[test]
fn a_user_gets_half_of_the_byte_budget_alone_and_leaves_room_for_the_next() {
    let budget = budget(16 * MIB);
    let alone = fill(&budget, &User::named("greedy"));
    assert_eq!(held(&alone), 8 * MIB);
    let other = fill(&budget, &User::named("other"));
    assert!((3 * MIB..4 * MIB).contains(&held(&other)), "{}", held(&other));
    let third = fill(&budget, &User::named("third"));
    assert!((MIB..2 * MIB).contains(&held(&third)), "{}", held(&third));
    let status = budget.open(at(&User::named("greedy"), 1)).unwrap_err();
    assert_eq!((status.code(), status.details().unwrap().retry_after_seconds), (429, 1));
    drop(alone);
    let again = held(&fill(&budget, &User::named("greedy")));
    assert!((5 * MIB..6 * MIB).contains(&again), "{again}");
}

#[test]
fn the_byte_budget_reserves_room_for_components_and_for_administrators() {
    let budget = budget(16 * MIB);
    let users: Vec<_> = (0..16).flat_map(|n| fill(&budget, &User::named(format!("u{n}")))).collect();
    assert!((14 * MIB - STEP..=14 * MIB).contains(&held(&users)), "{}", held(&users));
    for name in ["system:anonymous", "system:serviceaccount:default:a", "system:bootstrap:abcdef", "late"] {
        assert!(budget.charge(at(&User::named(name), 1), STEP).is_err(), "{name}");
    }
    let node = fill(&budget, &User::named("system:node:n1"));
    assert!((MIB / 2..MIB).contains(&held(&node)), "{}", held(&node));
    let controller = fill(&budget, &User::named("system:serviceaccount:kube-system:c"));
    assert!((MIB / 8..MIB / 2).contains(&held(&controller)), "{}", held(&controller));
    let used = budget.lock().total;
    let master = fill(&budget, &User::named("m").in_groups([authn::names::MASTERS]));
    assert_eq!(held(&master), (16 * MIB - used) / STEP * STEP);
    assert!(held(&master) >= MIB);
}

/// Fills the budget with the service accounts of namespaces `0..namespaces`.
fn fill_namespaces(budget: &Arc<ByteBudget>, namespaces: u32) -> Vec<ByteCharge> {
    let account = |n| User::named(format!("system:serviceaccount:ns{n}:a"));
    (0..namespaces).flat_map(|n| fill(budget, &account(n))).collect()
}

#[test]
fn service_accounts_of_many_namespaces_leave_room_for_users_and_components() {
    for namespaces in [1, 3, 8, 100] {
        let budget = budget(16 * MIB);
        let accounts = fill_namespaces(&budget, namespaces);
        assert!(held(&accounts) <= 10 * MIB, "{namespaces}: {}", held(&accounts));
        let [user, other] = ["user", "other"].map(|name| fill(&budget, &User::named(name)));
        assert!(held(&user) >= 2 * MIB, "{namespaces}: {}", held(&user));
        assert!(held(&other) >= MIB / 2, "{namespaces}: {}", held(&other));
        let component = fill(&budget, &User::named("system:serviceaccount:kube-system:c"));
        assert!(held(&component) >= MIB / 2, "{namespaces}: {}", held(&component));
        drop(accounts);
        assert_eq!(budget.lock().service_accounts, 0);
    }
}

#[test]
fn a_namespace_finds_room_beside_a_few_others_and_beside_anonymous_clients() {
    let budget = budget(16 * MIB);
    let few = fill_namespaces(&budget, 2);
    let late = fill(&budget, &User::named("system:serviceaccount:late:a"));
    assert!(held(&late) >= MIB, "{}", held(&late));
    drop((few, late));
    let anonymous = User::named(authn::names::ANONYMOUS);
    let clients: Vec<_> = (1..=200).map_while(|n| budget.charge(at(&anonymous, n), MIB / 8).ok()).collect();
    assert!(held(&clients) > 9 * MIB, "{}", held(&clients));
    let accounts = fill_namespaces(&budget, 50);
    assert!((MIB..=3 * MIB).contains(&held(&accounts)), "{}", held(&accounts));
    let user = fill(&budget, &User::named("user"));
    assert!(held(&user) >= MIB, "{}", held(&user));
}

#[test]
fn anonymous_clients_and_the_accounts_of_a_namespace_leave_room_for_others() {
    let budget = budget(16 * MIB);
    let anonymous = User::named(authn::names::ANONYMOUS);
    let charges = (1..=200).map_while(|address| budget.charge(at(&anonymous, address), MIB / 8).ok());
    let charges: Vec<_> = charges.collect();
    assert!((9 * MIB..=10 * MIB).contains(&held(&charges)), "all addresses together");
    let account = |namespace: &str, n: u8| User::named(format!("system:serviceaccount:{namespace}:a{n}"));
    let _own = budget.charge(at(&account("one", 1), 1), MIB).unwrap();
    assert!(
        budget.charge(at(&account("one", 2), 2), MIB / 2).is_err(),
        "the accounts of a namespace are one"
    );
    assert!(budget.charge(at(&account("two", 1), 1), MIB / 2).is_ok());
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
    assert!(charge(&named, 2, 2 * MIB).is_err(), "another address is no other user");
    assert!(charge(&User::named("v"), 2, 2 * MIB).is_ok());
    // Bytes charged beyond the limit count against later charges.
    let there = budget.charge_anyway(at(&named, 2), 16 * MIB);
    assert!(charge(&anonymous, 2, 1).is_err());
    drop(there);
    assert!(charge(&anonymous, 2, 1).is_ok());
}

#[test]
fn service_accounts_and_anonymous_clients_are_limited_as_a_class() {
    let class = |name: &str| at(&User::named(name), 1).class();
    assert_eq!(class("system:anonymous"), Some("anonymous clients"));
    assert_eq!(class("system:serviceaccount:default:a"), Some("service accounts"));
    for name in ["alice", "system:node:n1", "system:serviceaccount:kube-system:a", "system:bootstrap:abcdef"]
    {
        assert_eq!(class(name), None, "{name}");
    }
}

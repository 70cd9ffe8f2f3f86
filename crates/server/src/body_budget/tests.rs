use std::sync::{Arc, Mutex};

use authn::User;

use super::{BodyBudget, BodyCharge, MINIMUM, STEP};

const MIB: u64 = 1 << 20;

fn budget(total: u64) -> Arc<BodyBudget> {
    Arc::new(BodyBudget { total, held: Mutex::default(), metrics: None })
}

/// Opens bodies of one step for `user` until one is refused.
fn fill(budget: &Arc<BodyBudget>, user: &User) -> Vec<BodyCharge> {
    let body = || {
        let mut charge = budget.open(user).ok()?;
        charge.grow_to(STEP).ok()?;
        Some(charge)
    };
    std::iter::from_fn(body).collect()
}

fn held(charges: &[BodyCharge]) -> u64 {
    charges.iter().map(|charge| charge.reserved).sum()
}

#[test]
fn a_body_is_charged_in_steps_for_what_arrived_and_given_back_when_dropped() {
    let budget = budget(16 * MIB);
    let mut charge = budget.open(&User::named("u")).unwrap();
    assert_eq!(charge.reserved, MINIMUM);
    charge.grow_to(MINIMUM).unwrap();
    assert_eq!(charge.reserved, MINIMUM);
    charge.grow_to(MINIMUM + 1).unwrap();
    assert_eq!(charge.reserved, STEP);
    charge.grow_to(3 * MIB).unwrap();
    assert_eq!(budget.lock().total, 3 * MIB);
    drop(charge);
    assert_eq!(budget.lock().total, 0);
    assert!(budget.lock().users.is_empty());
}

#[test]
fn one_user_gets_half_when_alone_and_a_quarter_when_others_need_room() {
    let budget = budget(16 * MIB);
    let alone = fill(&budget, &User::named("greedy"));
    assert_eq!(held(&alone), 8 * MIB);
    let other = fill(&budget, &User::named("other"));
    assert_eq!(held(&other), 4 * MIB);
    let status = budget.open(&User::named("greedy")).unwrap_err();
    assert_eq!((status.code(), status.details().unwrap().retry_after_seconds), (429, 1));
    drop(alone);
    assert_eq!(held(&fill(&budget, &User::named("greedy"))), 4 * MIB);
}

#[test]
fn users_together_leave_room_for_components_and_those_for_administrators() {
    let budget = budget(16 * MIB);
    let users: Vec<_> = (0..8).flat_map(|n| fill(&budget, &User::named(format!("u{n}")))).collect();
    assert_eq!(held(&users), 14 * MIB);
    for name in ["system:anonymous", "system:serviceaccount:default:a", "late"] {
        assert!(budget.open(&User::named(name)).is_err(), "{name}");
    }
    let node = fill(&budget, &User::named("system:node:n1"));
    assert_eq!(held(&node), MIB);
    assert!(budget.open(&User::named("system:serviceaccount:kube-system:c")).is_err());
    let master = fill(&budget, &User::named("m").in_groups([authn::names::MASTERS]));
    assert_eq!(held(&master), MIB);
}

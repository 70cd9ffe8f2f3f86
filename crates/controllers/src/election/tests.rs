use std::time::Duration;

use api::time::Timestamp;
use tokio::time::Instant;
use value::{Value, json};

use super::{
    Election, ElectionWrite, LEASE_DURATION, MAX_DURATION, ObservedLease, RENEW_DEADLINE, RETRY_JITTER,
    RETRY_PERIOD,
};
use crate::leadership::STOP_LIMIT;

const SECOND: Duration = Duration::from_secs(1);

fn candidate(identity: &str) -> Election {
    Election::new("kube-system", "l", identity.to_owned())
}

fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn lease(spec: &str) -> Value {
    json::parse(format!(r#"{{"metadata":{{"name":"l","resourceVersion":"7"}},"spec":{spec}}}"#).as_bytes())
        .unwrap()
}

#[test]
fn a_leader_ends_its_work_before_others_begin() {
    assert!(RENEW_DEADLINE + STOP_LIMIT < LEASE_DURATION);
    assert!(RETRY_PERIOD.mul_f64(RETRY_JITTER) < RENEW_DEADLINE);
}

#[test]
fn an_absent_lease_is_created() {
    let Some(ElectionWrite::Create(lease)) = candidate("a").attempt(None, Instant::now(), wall(1)) else {
        panic!("not created")
    };
    let expected = json::parse(
        br#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l","namespace":"kube-system"},
            "spec":{"acquireTime":"1970-01-01T00:00:01.000000Z","holderIdentity":"a","leaseDurationSeconds":15,
            "leaseTransitions":0,"renewTime":"1970-01-01T00:00:01.000000Z"}}"#,
    );
    assert_eq!(lease, expected.unwrap());
}

#[test]
fn a_lease_of_another_is_taken_when_it_has_not_changed_for_its_duration() {
    let start = Instant::now();
    // Its times are an hour off in either direction: they are not compared with any clock.
    for time in ["1969-12-31T23:00:00.000000Z", "1970-01-01T01:00:00.000000Z"] {
        let held = lease(&format!(
            r#"{{"holderIdentity":"b","leaseDurationSeconds":15,"leaseTransitions":3,"renewTime":"{time}"}}"#
        ));
        let mut election = candidate("a");
        assert_eq!(election.attempt(Some(&held), start, wall(0)), None);
        assert_eq!(election.attempt(Some(&held), start + SECOND * 14, wall(14)), None);
        let Some(ElectionWrite::Update(taken)) = election.attempt(Some(&held), start + SECOND * 15, wall(15))
        else {
            panic!("not taken")
        };
        assert_eq!(taken.str_at(&["spec", "holderIdentity"]), Some("a"));
        assert_eq!(taken.int_at(&["spec", "leaseTransitions"]), Some(4));
        assert_eq!(taken.str_at(&["spec", "acquireTime"]), Some("1970-01-01T00:00:15.000000Z"));
        assert_eq!(taken.str_at(&["metadata", "resourceVersion"]), Some("7"), "the write is conditional");
    }
}

#[test]
fn a_lease_that_is_too_long_is_reported_once_for_each_holder_and_duration() {
    let mut observed = ObservedLease::default();
    let mut report = |holder: &str, seconds: i64, time: i64| {
        let spec = format!(
            r#"{{"holderIdentity":"{holder}","leaseDurationSeconds":{seconds},"renewTime":"{time}"}}"#
        );
        let spec = json::parse(spec.as_bytes()).unwrap();
        observed.unreported_excess(&spec).map(|(holder, duration)| (holder.to_owned(), duration.as_secs()))
    };
    assert_eq!(report("b", 60, 0), None);
    assert_eq!(report("b", 3600, 0), Some(("b".to_owned(), 3600)));
    for time in 1..100 {
        assert_eq!(report("b", 3600, time * 2), None, "a renewal");
    }
    assert_eq!(report("b", 7200, 200), Some(("b".to_owned(), 7200)));
    assert_eq!(report("c", 7200, 202), Some(("c".to_owned(), 7200)));
}

#[test]
fn a_lease_expires_after_a_limit_whatever_its_duration() {
    let start = Instant::now();
    for (seconds, expires) in [(15, SECOND * 15), (60, SECOND * 60), (2_000_000_000, MAX_DURATION)] {
        let held = lease(&format!(r#"{{"holderIdentity":"b","leaseDurationSeconds":{seconds}}}"#));
        let mut observed = ObservedLease::default();
        observed.observe(Some(&held), start);
        assert_eq!(observed.holder(start + expires - SECOND), Some("b"), "{seconds}");
        assert_eq!(observed.holder(start + expires), None, "{seconds}");
    }
}

#[test]
fn a_renewal_by_another_starts_the_wait_again() {
    let start = Instant::now();
    let renewed_at = |time: &str| {
        lease(&format!(r#"{{"holderIdentity":"b","leaseDurationSeconds":15,"renewTime":"{time}"}}"#))
    };
    let mut election = candidate("a");
    assert_eq!(election.attempt(Some(&renewed_at("x")), start, wall(0)), None);
    assert_eq!(election.attempt(Some(&renewed_at("y")), start + SECOND * 14, wall(14)), None);
    assert_eq!(election.attempt(Some(&renewed_at("y")), start + SECOND * 28, wall(28)), None);
    assert!(election.attempt(Some(&renewed_at("y")), start + SECOND * 29, wall(29)).is_some());
}

#[test]
fn a_renewal_keeps_the_time_of_acquisition_and_extends_the_deadline() {
    let start = Instant::now();
    let mut election = candidate("a");
    let Some(ElectionWrite::Create(created)) = election.attempt(None, start, wall(0)) else { panic!() };
    assert!(!election.is_leader(start), "the write may still fail");
    election.written(start);
    assert!(election.is_leader(start + SECOND * 9));
    let Some(ElectionWrite::Update(renewed)) = election.attempt(Some(&created), start + SECOND * 9, wall(9))
    else {
        panic!("not renewed")
    };
    assert_eq!(renewed.at(&["spec", "acquireTime"]), created.at(&["spec", "acquireTime"]));
    assert_eq!(renewed.int_at(&["spec", "leaseTransitions"]), Some(0));
    election.written(start + SECOND * 9);
    assert!(election.is_leader(start + SECOND * 18));
    assert!(!election.is_leader(start + SECOND * 19), "it has not renewed for 10 seconds");
    assert!(!election.is_leader(start + SECOND * 18), "leadership does not come back without a write");
}

#[test]
fn a_leader_whose_lease_another_has_taken_stops_leading() {
    let start = Instant::now();
    let mut election = candidate("a");
    election.attempt(None, start, wall(0));
    election.written(start);
    let taken = lease(r#"{"holderIdentity":"b","leaseDurationSeconds":15}"#);
    assert_eq!(election.attempt(Some(&taken), start + SECOND, wall(1)), None);
    assert!(!election.is_leader(start + SECOND));
}

#[test]
fn a_released_lease_is_taken_at_once_and_only_its_holder_releases_it() {
    let held = lease(r#"{"holderIdentity":"a","leaseDurationSeconds":15,"leaseTransitions":2}"#);
    assert_eq!(candidate("b").released(&held, wall(5)), None);
    let released = candidate("a").released(&held, wall(5)).unwrap();
    assert_eq!(
        released,
        lease(
            r#"{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":2,
                "acquireTime":"1970-01-01T00:00:05.000000Z","renewTime":"1970-01-01T00:00:05.000000Z"}"#
        )
    );
    assert!(candidate("b").attempt(Some(&released), Instant::now(), wall(5)).is_some());
}

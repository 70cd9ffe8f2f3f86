use value::steps;

use super::creation::{base_name, from_template, own_claim_names};
use super::{ClaimStatuses, PodClaimIndex, UnresolvedClaim, is_done, is_owned_by_pod};
use crate::fake::parse;

#[test]
fn a_claim_created_from_a_template_is_owned_by_its_pod() {
    let pod = parse(r#"{"metadata":{"name":"web","namespace":"n","uid":"u"}}"#);
    let template = parse(
        r#"{"metadata":{"name":"t","labels":{"of":"template"}},"spec":{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}},
        "spec":{"devices":{"requests":[{"name":"r"}]}}}}"#,
    );
    let claim = from_template(&pod, "gpu", &template);
    assert_eq!(
        claim,
        parse(
            r#"{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"generateName":"web-gpu-","labels":{"a":"b"},
            "annotations":{"c":"d","resource.kubernetes.io/pod-claim-name":"gpu"},
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"web","uid":"u","controller":true}]},
            "spec":{"devices":{"requests":[{"name":"r"}]}}}"#
        )
    );
    assert!(is_owned_by_pod(&pod, &claim));
    assert!(!is_owned_by_pod(&parse(r#"{"metadata":{"name":"web","uid":"other"}}"#), &claim));
}

#[test]
fn long_pod_and_claim_names_are_truncated_in_proportion() {
    assert_eq!(base_name("web", "gpu"), "web-gpu-");
    let cut = base_name(&"p".repeat(100), &"c".repeat(20));
    assert_eq!(cut, format!("{}-{}", "p".repeat(46), "c".repeat(9)));
    assert!(base_name(&"p".repeat(253), &"c".repeat(63)).len() <= 58);
}

#[test]
fn a_pods_resource_claim_is_resolved_from_its_spec_or_its_status() {
    let pod = parse(
        r#"{"status":{"resourceClaimStatuses":[{"name":"made","resourceClaimName":"x"},{"name":"needless"}]}}"#,
    );
    let statuses = ClaimStatuses::of(&pod);
    let entry = |text: &str| {
        let found = statuses.resolve(&parse(text));
        found.map(|found| found.map(|n| (n.name.to_string(), n.created_for_pod)))
    };
    assert_eq!(entry(r#"{"name":"a","resourceClaimName":"c"}"#), Ok(Some(("c".to_owned(), false))));
    let templated = r#"{"name":"made","resourceClaimTemplateName":"t"}"#;
    assert_eq!(entry(templated), Ok(Some(("x".to_owned(), true))));
    assert_eq!(entry(r#"{"name":"needless","resourceClaimTemplateName":"t"}"#), Ok(None));
    assert_eq!(entry(r#"{"name":"new","resourceClaimTemplateName":"t"}"#), Err(UnresolvedClaim::NotYet));
    assert_eq!(entry(r#"{"name":"odd","somethingNew":"t"}"#), Err(UnresolvedClaim::Unknown));
}

#[test]
fn finished_and_deleted_unscheduled_pods_need_no_resource_claims() {
    for (pod, done) in [
        (r#"{"status":{"phase":"Succeeded"}}"#, true),
        (r#"{"status":{"phase":"Failed"}}"#, true),
        (r#"{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"}}"#, true),
        (r#"{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{"nodeName":"n"}}"#, false),
        (r#"{"status":{"phase":"Running"},"spec":{"nodeName":"n"}}"#, false),
    ] {
        assert_eq!(is_done(&parse(pod)), done, "{pod}");
    }
}

#[test]
fn reservations_for_unobserved_pods_are_detected() {
    let mut pod_claims = PodClaimIndex::default();
    let claim = |pods: &[&str]| {
        let all: Vec<String> =
            pods.iter().map(|pod| format!(r#"{{"resource":"pods","name":"{pod}","uid":"u"}}"#)).collect();
        parse(&format!(r#"{{"status":{{"reservedFor":[{}]}}}}"#, all.join(",")))
    };
    let namespace = "n".into();
    assert!(pod_claims.has_all_reserving_pods(&namespace, &claim(&[])));
    assert!(!pod_claims.has_all_reserving_pods(&namespace, &claim(&["web"])));
    let other =
        parse(r#"{"status":{"reservedFor":[{"apiGroup":"example.com","resource":"jobs","name":"j"}]}}"#);
    assert!(pod_claims.has_all_reserving_pods(&namespace, &other));
    let pod = parse(r#"{"spec":{"resourceClaims":[{"name":"a","resourceClaimName":"c"}]}}"#);
    pod_claims.remember(&namespace, &"web".into(), &pod);
    assert!(pod_claims.has_all_reserving_pods(&namespace, &claim(&["web"])));
    assert!(!pod_claims.has_all_reserving_pods(&namespace, &claim(&["web", "ghost"])));
    pod_claims.forget(&namespace, &"web".into());
    assert!(!pod_claims.has_all_reserving_pods(&namespace, &claim(&["web"])));
}

#[test]
fn extended_resource_claims_are_removed_from_the_index_with_their_pod() {
    let mut pod_claims = PodClaimIndex::default();
    let pod = parse(r#"{"status":{"extendedResourceClaimStatus":{"resourceClaimName":"x"}}}"#);
    pod_claims.remember(&"n".into(), &"web".into(), &pod);
    assert!(pod_claims.by_claim.contains_key(&("n".into(), "x".into())));
    pod_claims.forget(&"n".into(), &"web".into());
    assert!(pod_claims.by_claim.is_empty());
}

#[test]
fn ten_times_as_many_claims_of_a_pod_take_ten_times_as_many_steps_to_index() {
    let steps_of = |count: usize| {
        let list = |item: &dyn Fn(usize) -> String| (0..count).map(item).collect::<Vec<_>>().join(",");
        let entries = list(&|i| format!(r#"{{"name":"n{i}","resourceClaimTemplateName":"t"}}"#));
        // In the reverse order, so that a search would not end at once.
        let statuses = list(&|i| format!(r#"{{"name":"n{}","resourceClaimName":"c{i}"}}"#, count - 1 - i));
        let pod = parse(&format!(
            r#"{{"spec":{{"resourceClaims":[{entries}]}},"status":{{"resourceClaimStatuses":[{statuses}]}}}}"#
        ));
        let mut pod_claims = PodClaimIndex::default();
        let steps = steps::of(|| pod_claims.remember(&"n".into(), &"web".into(), &pod));
        assert_eq!(pod_claims.by_claim.len(), count);
        steps
    };
    let (short, long) = (steps_of(1000), steps_of(10_000));
    assert!(long <= 11 * short, "{short} steps, then {long}");
}

#[test]
fn claims_of_a_pod_are_found_by_their_annotation() {
    let pod = parse(r#"{"metadata":{"name":"web","uid":"u"}}"#);
    let claim = |name: &str, entry: &str, uid: &str, more: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}","annotations":{{"resource.kubernetes.io/pod-claim-name":"{entry}"}},
            "ownerReferences":[{{"apiVersion":"v1","kind":"Pod","name":"web","uid":"{uid}","controller":true}}]{more}}}}}"#
        ))
    };
    let claims = [
        claim("going", "gpu", "u", r#","deletionTimestamp":"2020-01-01T00:00:00Z""#),
        claim("other", "gpu", "v", ""),
        claim("first", "gpu", "u", ""),
        claim("second", "gpu", "u", ""),
        claim("net", "nic", "u", ""),
    ];
    let names = own_claim_names(&pod, &claims);
    let name = |entry: &str| names.get(entry).map(ToString::to_string);
    assert_eq!(name("gpu").as_deref(), Some("first"));
    assert_eq!(name("nic").as_deref(), Some("net"));
    assert_eq!((name("fpga"), names.len()), (None, 2));
}

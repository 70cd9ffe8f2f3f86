//! The API groups of a token, in both dialects.

use serde_json::{Value, json};
use webhook_auth::verify::Dialect;
use webhook_auth::{AdmissionRequest, Reason};

use super::{check, check_changed, pods, turtles};
use crate::issuer::{UID, changed, claims};

#[test]
fn token_for_one_group_is_valid_for_that_group_only() {
    let named = "ninja.turtles.ai";
    assert_eq!(check(&claims(named), &turtles()), Ok(()));
    assert_eq!(check(&claims(named), &pods()), Err(Reason::Group));
    let similar = AdmissionRequest::about("turtles.ai", "v1", "ninjaturtles", "NinjaTurtle");
    assert_eq!(check(&claims(named), &similar), Err(Reason::Group));
    let shouted = AdmissionRequest::about("Ninja.Turtles.ai", "v1", "ninjaturtles", "NinjaTurtle");
    assert_eq!(check(&claims(named), &shouted), Err(Reason::Group));
    let star = AdmissionRequest::about("*", "v1", "pods", "Pod");
    assert_eq!(check(&claims(named), &star), Err(Reason::Group));
    // A token for `*` is valid for every group.
    for request in [pods(), turtles(), star] {
        assert_eq!(check(&claims("*"), &request), Ok(()));
    }
}

#[test]
fn token_for_the_core_group_is_valid_only_for_the_core_group() {
    assert_eq!(check(&claims(""), &pods()), Ok(()));
    assert_eq!(check(&claims(""), &turtles()), Err(Reason::Group));
    // Kubernetes 1.37 cannot attest the core group, so such a claim in its dialect is rejected.
    let only_ours =
        changed("", |c| drop(c["kubernetes.io"].as_object_mut().unwrap().remove("attestationClaims")));
    assert_eq!(check(&only_ours, &pods()), Err(Reason::NoGroup));
    let only_kep = changed("", |c| drop(c["kubernetes.io"].as_object_mut().unwrap().remove("attestations")));
    assert_eq!(check(&only_kep, &pods()), Ok(()));
}

#[test]
fn review_whose_kind_and_resource_are_in_different_groups_is_rejected() {
    let mut request = turtles();
    request.kind = pods().kind;
    assert_eq!(check(&claims("ninja.turtles.ai"), &request), Err(Reason::Group));
    assert_eq!(check(&claims("*"), &request), Ok(()));
    // The kind of a subresource may belong to another group: `Scale` is in `autoscaling`.
    request.sub_resource = Some("scale".to_owned());
    assert_eq!(check(&claims("ninja.turtles.ai"), &request), Err(Reason::Group));
    request.kind.group = "autoscaling".to_owned();
    request.kind.kind = "Scale".to_owned();
    assert_eq!(check(&claims("ninja.turtles.ai"), &request), Ok(()));
    request.resource.group = "apps".to_owned();
    assert_eq!(check(&claims("ninja.turtles.ai"), &request), Err(Reason::Group));
}

#[test]
fn claims_of_either_dialect_are_accepted_and_must_agree_if_both_are_set() {
    let without = |fields: [&str; 2]| {
        changed("apps", |claims| {
            for field in fields {
                claims["kubernetes.io"].as_object_mut().unwrap().remove(field).unwrap();
            }
        })
    };
    let request = AdmissionRequest::about("apps", "v1", "deployments", "Deployment");
    assert_eq!(check(&without(["attestations", "validatingwebhookconfiguration"]), &request), Ok(()));
    assert_eq!(check(&without(["attestationClaims", "validatingWebhookConfiguration"]), &request), Ok(()));
    let none = without(["attestationClaims", "attestations"]);
    assert_eq!(check(&none, &request), Err(Reason::NoGroup));
    let none = without(["validatingwebhookconfiguration", "validatingWebhookConfiguration"]);
    assert_eq!(check(&none, &request), Err(Reason::NotBound));

    let group = Dialect::Attestations.group_key();
    let disagreement = Err(Reason::Disagreement);
    assert_eq!(check_changed(|c| c["kubernetes.io"]["attestations"][group] = json!(["*"])), disagreement);
    assert_eq!(check_changed(|c| c["kubernetes.io"]["attestations"][group] = json!([""])), disagreement);
    let group = Dialect::AttestationClaims.group_key();
    assert_eq!(
        check_changed(|c| c["kubernetes.io"]["attestationClaims"][group] = json!(["*"])),
        disagreement
    );
    let other = json!({"name": "guard", "uid": "another"});
    assert_eq!(check_changed(|c| c["kubernetes.io"]["validatingWebhookConfiguration"] = other), disagreement);
    let other = json!({"name": "another", "uid": UID});
    assert_eq!(check_changed(|c| c["kubernetes.io"]["validatingwebhookconfiguration"] = other), disagreement);
}

#[test]
fn token_must_attest_exactly_one_group() {
    for dialect in [Dialect::Attestations, Dialect::AttestationClaims] {
        let set = |value: Value| {
            check_changed(|c| c["kubernetes.io"][dialect.field()][dialect.group_key()] = value)
        };
        assert_eq!(set(json!(["apps"])), Ok(()));
        assert_eq!(set(json!([])), Err(Reason::NoGroup));
        assert_eq!(set(json!(["apps", "apps"])), Err(Reason::NoGroup));
        assert_eq!(set(json!(["apps", "*"])), Err(Reason::NoGroup));
        assert_eq!(set(json!("apps")), Err(Reason::Malformed));
        assert_eq!(set(json!([1])), Err(Reason::Malformed));
        assert_eq!(check_changed(|c| c["kubernetes.io"][dialect.field()] = json!({})), Err(Reason::NoGroup));
        let other = json!({"somethingElse": ["apps"]});
        assert_eq!(check_changed(|c| c["kubernetes.io"][dialect.field()] = other), Err(Reason::NoGroup));
        let more = json!({dialect.group_key(): ["apps"], "somethingElse": ["x", "y"]});
        assert_eq!(check_changed(|c| c["kubernetes.io"][dialect.field()] = more), Ok(()));
    }
}

use serde_json::{Value, json};

use super::{NONE, PREFIX, Story};
use crate::checker::Rule;
use crate::history::{Expiration, QuotaLimit};

const LEASES: &str = "/registry/masterleases/";

fn service(ip: &str, node_port: u64) -> Value {
    json!({"spec": {"clusterIPs": [ip], "ports": [{"port": 80, "nodePort": node_port}]}})
}

/// The broken rules if two Services exist, and if the first one is deleted before the second is created.
fn with_services(first: Value, second: Value) -> [Vec<Rule>; 2] {
    let keys = ["/registry/services/specs/torture/a", "/registry/services/specs/torture/b"];
    let mut together = Story::default();
    together.change(2, keys[0], Some(first.clone()), 0).change(3, keys[1], Some(second.clone()), 0);
    let mut in_turn = Story::default();
    in_turn.change(2, keys[0], Some(first), 0).change(3, keys[0], None, 0).change(
        4,
        keys[1],
        Some(second),
        0,
    );
    [together.broken(), in_turn.broken()]
}

#[test]
fn two_services_must_not_have_one_cluster_ip() {
    assert_eq!(with_services(service("10.0.0.1", 0), service("10.0.0.2", 0)), [vec![], vec![]]);
    let [together, in_turn] = with_services(service("10.0.0.1", 0), service("10.0.0.1", 0));
    assert_eq!((together, in_turn), (vec![Rule::UniqueClusterIp], vec![]));
    assert_eq!(with_services(service("None", 0), service("None", 0)), [vec![], vec![]], "headless");
}

#[test]
fn two_services_must_not_have_one_node_port() {
    assert_eq!(with_services(service("10.0.0.1", 30000), service("10.0.0.2", 30001)), [vec![], vec![]]);
    let [together, in_turn] = with_services(service("10.0.0.1", 30000), service("10.0.0.2", 30000));
    assert_eq!((together, in_turn), (vec![Rule::UniqueNodePort], vec![]));
    let health = json!({"spec": {"healthCheckNodePort": 30000}});
    assert_eq!(with_services(service("10.0.0.1", 30000), health)[0], [Rule::UniqueNodePort]);
}

#[test]
fn a_quota_must_not_be_exceeded_at_any_revision() {
    let mut story = Story::default();
    story.history.limits.quotas = vec![QuotaLimit { prefix: PREFIX.to_owned(), hard: 2, since: 2 }];
    story.put(2, "a", &json!({})).put(3, "b", &json!({})).put(4, "b", &json!({"data": {}}));
    story.remove(5, "a").put(6, "c", &json!({}));
    assert_eq!(story.broken(), NONE);
    story.put(7, "d", &json!({})).remove(8, "c");
    assert_eq!(story.broken(), [Rule::Quota]);
}

#[test]
fn objects_that_were_there_before_the_quota_are_allowed() {
    let mut story = Story::default();
    story.history.limits.quotas = vec![QuotaLimit { prefix: PREFIX.to_owned(), hard: 0, since: 3 }];
    story.put(2, "a", &json!({}));
    assert_eq!(story.broken(), NONE);
    story.put(3, "b", &json!({}));
    assert_eq!(story.broken(), [Rule::Quota]);
}

#[test]
fn an_object_that_the_static_policy_denies_must_not_be_stored() {
    let mut story = Story::default();
    story.history.limits.forbidden_data = Some("forbidden".to_owned());
    story.put(2, "a", &json!({"data": {"allowed": "x"}}));
    assert_eq!(story.broken(), NONE);
    story.put(3, "b", &json!({"data": {"forbidden": "x"}}));
    assert_eq!(story.broken(), [Rule::StaticPolicy]);
}

#[test]
fn keys_that_must_expire_need_a_lease() {
    let mut story = Story::default();
    story.history.limits.leased_prefixes = vec![LEASES.to_owned()];
    story.change(2, &format!("{LEASES}192.0.2.1"), Some(Value::Null), 7).put(3, "a", &json!({}));
    assert_eq!(story.broken(), NONE);
    story.change(4, &format!("{LEASES}192.0.2.2"), Some(Value::Null), 0);
    assert_eq!(story.broken(), [Rule::Lease]);
}

#[test]
fn the_key_of_a_server_that_ended_must_expire() {
    let key = format!("{LEASES}192.0.2.1");
    let mut story = Story::default();
    story.change(2, &key, Some(Value::Null), 7);
    story.history.limits.expirations = vec![Expiration { key: key.clone(), gone_by: 1000 }];
    assert_eq!(story.broken(), [Rule::Lease]);
    story.change(3, &key, None, 0);
    assert_eq!(story.broken(), NONE);
}

//! The bugs of [`crate::planted`], as the histories that they cause.

use serde_json::{Value, json};

use super::{PREFIX, Story, config_map, key, refused, seen, update};
use crate::checker::Rule;
use crate::history::{ClientRequest, Outcome, QuotaLimit, ReadAt, WatchBegin, WatchMessage};
use crate::planted::PLANTED_BUGS;

fn service_key(name: &str) -> String {
    format!("/registry/services/specs/torture/{name}")
}

fn story_of(bug: &str) -> Story {
    let mut story = Story::default();
    let first = story.created(2, "t-a", 1);
    match bug {
        // The server answers from memory, which lacks the update.
        "skip-freshness" => {
            story.updated(3, "t-a", (2, 2));
            let request = ClientRequest::Get { key: key("t-a"), at: ReadAt::Latest };
            story.operation(request, Outcome::Object(Some(seen(2, &first))));
        }
        // The server's watch lost an event, so its own watches lack it too.
        "resume-late" => {
            story.updated(3, "t-a", (2, 2));
            let last = story.updated(4, "t-a", (3, 3));
            let event = |kind: &str, revision, object: &Value| WatchMessage::Event {
                at: 1000,
                kind: kind.to_owned(),
                key: key("t-a"),
                seen: seen(revision, object),
            };
            let messages = vec![event("ADDED", 2, &first), event("MODIFIED", 4, &last)];
            story.watch(WatchBegin::After { revision: 1, is_resumed: false }, messages);
        }
        // The first attempt was stored, and the second one refused.
        "retry-write" => {
            story.put(3, "t-a", &config_map(2, 1, "next"));
            story.operation(update("t-a", 2, 2), refused(409, "Conflict"));
        }
        // The server did not know of the first update.
        "stale-compare" => {
            story.updated(3, "t-a", (2, 2));
            story.updated(4, "t-a", (3, 2));
        }
        "lost-lease" => {
            story.history.limits.leased_prefixes = vec!["/registry/masterleases/".to_owned()];
            story.change(3, "/registry/masterleases/192.0.2.1", Some(Value::Null), 0);
        }
        // Two servers admit an object each although the quota has room for one.
        "skip-charge" => {
            story.history.limits.quotas = vec![QuotaLimit { prefix: PREFIX.to_owned(), hard: 2, since: 2 }];
            story.created(3, "t-b", 2);
            story.created(4, "t-c", 3);
        }
        // The second server finds the addresses in use, and takes them nevertheless: the IPv6 address is the same.
        "shared-address" => {
            let service = |ips: [&str; 2]| json!({"spec": {"clusterIPs": ips}});
            story.change(3, &service_key("t-a"), Some(service(["10.0.0.1", "fd00:10::1"])), 0);
            story.change(4, &service_key("t-b"), Some(service(["10.0.0.2", "fd00:10::1"])), 0);
        }
        // The ports of the first Service count as free.
        "lost-ports" => {
            let service = json!({"spec": {"ports": [{"port": 80, "nodePort": 30001}]}});
            story.change(3, &service_key("t-a"), Some(service.clone()), 0);
            story.change(4, &service_key("t-b"), Some(service), 0);
        }
        other => panic!("no history for {other}"),
    }
    story
}

#[test]
fn the_checker_finds_every_planted_bug_in_a_written_history() {
    for bug in PLANTED_BUGS {
        assert_eq!(story_of(bug.name).broken(), [bug.breaks], "{}", bug.name);
    }
    let rules: Vec<Rule> = PLANTED_BUGS.iter().map(|bug| bug.breaks).collect();
    assert_eq!(rules.len(), 8);
}

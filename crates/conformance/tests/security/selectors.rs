//! Selectors with thousands of requirements, which each object would be compared with.

use std::time::{Duration, Instant};

use conformance::{Server, accepts, rejects};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::callers::{MAPS, SOON, alice_and_bob, metric};
use crate::descriptors::{http2, watch_on};

/// Much more than a request takes even on a busy machine, and much less than comparing takes without the limit.
const QUICKLY: Duration = Duration::from_secs(10);

#[tokio::test]
async fn selectors_of_more_than_a_thousand_requirements_are_refused() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let map = json!({"metadata": {"name": "m", "labels": {"app": "web"}}});
    accepts(client.post(MAPS, &map).await).unwrap();
    for (parameter, requirement) in [("labelSelector", "!k"), ("fieldSelector", "metadata.name!=n")] {
        let path = |times: usize| {
            let requirements = vec![requirement.replace('!', "%21").replace('=', "%3D"); times].join("%2C");
            format!("{MAPS}?{parameter}={requirements}")
        };
        let listed = accepts(client.get(&path(1000)).await).unwrap();
        let names: Vec<&str> = listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|map| map["metadata"]["name"].as_str())
            .collect();
        assert!(names.contains(&"m"), "{parameter}: {names:?}");
        for times in [1001, 2500] {
            for (method, further) in
                [(Method::GET, ""), (Method::GET, "&watch=1&timeoutSeconds=1"), (Method::DELETE, "")]
            {
                let began = Instant::now();
                let answer = client.send(method.clone(), &(path(times) + further), &[], "".into()).await;
                let status = rejects(answer, 400, "BadRequest").unwrap();
                let message = status["message"].as_str().unwrap();
                assert!(message.contains("at most 1000 requirements"), "{method} {parameter}: {message}");
                assert!(
                    message.len() < 1000,
                    "{method} {parameter}: the message has {} bytes",
                    message.len()
                );
                assert!(began.elapsed() < QUICKLY, "{method} {parameter}: {:?}", began.elapsed());
            }
        }
    }
    accepts(client.get(&format!("{MAPS}/m")).await).unwrap();
}

/// A selector for the values `v0` to `vN`, in two requirements.
fn values(count: usize) -> String {
    let listed = |from: usize, to: usize| {
        let values: Vec<String> = (from..to).map(|number| format!("v{number}")).collect();
        format!("in%20({})", values.join(","))
    };
    format!("a%20{},b%20not{}", listed(0, count / 2), listed(count / 2, count))
}

#[tokio::test]
async fn selectors_of_more_than_five_thousand_values_are_refused() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let map = json!({"metadata": {"name": "m", "labels": {"a": "v2499", "b": "v0"}}});
    accepts(client.post(MAPS, &map).await).unwrap();
    let path = |count: usize| format!("{MAPS}?labelSelector={}", values(count));
    let listed = accepts(client.get(&path(5000)).await).unwrap();
    assert_eq!(listed["items"][0]["metadata"]["name"], "m");
    for count in [5001, 9000] {
        for (method, further) in
            [(Method::GET, ""), (Method::GET, "&watch=1&timeoutSeconds=1"), (Method::DELETE, "")]
        {
            let answer = client.send(method.clone(), &(path(count) + further), &[], "".into()).await;
            let status = rejects(answer, 400, "BadRequest").unwrap();
            let message = status["message"].as_str().unwrap();
            assert!(message.contains("at most 5000 values"), "{method}: {message}");
            assert!(message.len() < 1000, "{method}: the message has {} bytes", message.len());
        }
    }
    accepts(client.get(&format!("{MAPS}/m")).await).unwrap();
}

/// The limit is 46 connections, each for 32 watches. A watch that holds 120 KB counts as several.
#[tokio::test]
async fn watches_with_large_selectors_count_as_several() {
    const WATCHES: usize = 180;
    let server = Server::serve_after("ulimit -Sn 100 && ulimit -Hn 126", &[]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = alice_and_bob(&admin).await;
    let authority = admin.authority().to_owned();
    let mut own = bob.events(&format!("{MAPS}?watch=1"), &[]).await.unwrap();
    let (small, large) = (String::new(), format!("&labelSelector={}", values(5000)));
    let mut held = Vec::new();
    for (selector, ends) in [(small, false), (large, true)] {
        let mut watches = Vec::new();
        for _ in 0..2 {
            let (mut sender, connection) = http2(&authority, "127.0.0.1").await;
            for _ in 0..WATCHES / 2 {
                watches.push(watch_on(&mut sender, &authority, alice.token().unwrap(), &selector).await);
            }
            held.push((sender, connection));
        }
        let ended = metric(&admin, "apiserver_long_running_requests_ended_total", "limit").await;
        assert_eq!(ended.unwrap_or(0.0) > 0.0, ends, "{ended:?} watches were ended");
        if ends {
            let oldest = tokio::time::timeout(SOON, watches.remove(0).into_body().collect()).await;
            oldest.expect("the oldest watch goes on").expect("a watch ends without an error");
        }
    }
    accepts(bob.post(MAPS, &json!({"metadata": {"name": "news"}})).await).unwrap();
    while own.within(SOON).await.unwrap().unwrap()["object"]["metadata"]["name"] != "news" {}
}

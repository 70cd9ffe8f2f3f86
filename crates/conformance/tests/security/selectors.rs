//! Selectors with thousands of requirements, which each object would be compared with.

use std::time::{Duration, Instant};

use conformance::{Server, accepts, rejects};
use http::Method;
use serde_json::json;

use crate::callers::MAPS;

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

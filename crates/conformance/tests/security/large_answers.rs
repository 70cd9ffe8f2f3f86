//! Answers that take long to encode do not delay other clients.

use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::json;

use crate::callers::{MAPS, SOON, metric};

const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The number of requests that moved to the heavy lane.
async fn heavy_lane_requests(admin: &Client) -> i64 {
    let count = metric(admin, "portcullis_large_requests_total", "").await.unwrap_or(0.0);
    format!("{count}").parse().unwrap()
}

async fn fill(admin: &Client) {
    for number in 0..4 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(300_000)}});
        accepts(admin.post(MAPS, &map).await).unwrap();
    }
}

#[tokio::test]
async fn large_answers_are_encoded_on_the_heavy_lane() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    fill(&admin).await;
    let one = format!("{MAPS}/m0");
    let pretty = [format!("{MAPS}?pretty=true"), format!("{one}?pretty=true")];
    let cases: &[(&str, (&str, &str))] = &[
        (MAPS, ("accept", TABLE)),
        (MAPS, ("accept", METADATA)),
        (MAPS, ("accept", "application/yaml")),
        (MAPS, ("accept-encoding", "gzip")),
        (&pretty[0], ("accept", "application/json")),
        (&pretty[1], ("accept", "application/json")),
        (&one, ("accept", "application/yaml")),
        (&one, ("accept", TABLE)),
        (&one, ("accept-encoding", "gzip")),
        ("/openapi/v2", ("accept-encoding", "gzip")),
    ];
    for (path, header) in cases {
        let before = heavy_lane_requests(&admin).await;
        let answer = admin.send(Method::GET, path, &[*header], bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.code, 200, "{path}");
        assert_eq!(heavy_lane_requests(&admin).await, before + 1, "{path} {header:?}");
    }
    // A watch with tables encodes each large object on the lane.
    let before = heavy_lane_requests(&admin).await;
    let mut watch = admin.events(&format!("{MAPS}?watch=1"), &[("accept", TABLE)]).await.unwrap();
    let event = watch.within(SOON).await.unwrap().unwrap();
    assert_eq!(event["object"]["kind"], "Table");
    eventually(SOON, async || match heavy_lane_requests(&admin).await {
        count if count == before + 4 => Ok(()),
        count => Err(Problem::new(format!("{count} instead of four more than {before}"))),
    })
    .await
    .unwrap();
    // Answers that are sent as stored, and small ones, stay on the normal threads.
    let before = heavy_lane_requests(&admin).await;
    for (path, accept) in
        [(MAPS, "application/json"), (&one, "application/json"), ("/api/v1/namespaces/default", TABLE)]
    {
        let answer = admin.send(Method::GET, path, &[("accept", accept)], bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.code, 200, "{path}");
    }
    assert_eq!(heavy_lane_requests(&admin).await, before);
}

#[tokio::test]
async fn rules_of_large_roles_are_listed_on_the_heavy_lane() {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let server = Server::serve(&["--authorization-mode=RBAC"]).await.unwrap();
    let admin = server.client().unwrap();
    for (user, count, is_large) in [("bob", 10, false), ("alice", 50_000, true)] {
        let names: Vec<String> = (0..count).map(|number| format!("name-{number}")).collect();
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": names}]);
        accepts(
            admin.post(&format!("{RBAC}/roles"), &json!({"metadata": {"name": user}, "rules": rules})).await,
        )
        .unwrap();
        let binding = json!({"metadata": {"name": user}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}});
        accepts(admin.post(&format!("{RBAC}/rolebindings"), &binding).await).unwrap();
        let client = admin.as_token(Some(&format!("{user}token")));
        let before = heavy_lane_requests(&admin).await;
        let review = accepts(client.post(REVIEWS, &json!({"spec": {"namespace": "default"}})).await).unwrap();
        let listed = review["status"]["resourceRules"].as_array().unwrap();
        assert!(listed.iter().any(|rule| rule["resourceNames"].as_array().is_some_and(|n| n.len() == count)));
        assert_eq!(heavy_lane_requests(&admin).await > before, is_large, "{user}");
    }
}

/// The most memory that a process had since [`forget_peak`], in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Sets the peak to the memory that the process has now.
fn forget_peak(pid: u32) {
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Objects with many small values, which take several times as much memory as trees.
#[tokio::test]
async fn lists_in_other_forms_are_built_in_parts() {
    const OBJECTS: usize = 48;
    /// The stored bytes are about 30 MiB, and trees of all objects take several times as much.
    const MOST_KIB: u64 = 20 * 1024;
    let folder = tempfile::TempDir::new().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let admin = server.client().unwrap();
    let data: serde_json::Map<String, serde_json::Value> =
        (0..12_000).map(|number| (format!("key-{number:06}"), json!("v".repeat(20)))).collect();
    for number in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": data});
        accepts(admin.post(MAPS, &map).await).unwrap();
    }
    drop((admin, server));
    // After a restart no memory is left over from the writes.
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let admin = server.client().unwrap();
    let path = format!("{MAPS}?includeObject=None");
    for (path, header) in [(path.as_str(), ("accept", TABLE)), (MAPS, ("accept-encoding", "gzip"))] {
        forget_peak(server.pid());
        let before = server.resident_kib().unwrap();
        let answer = admin.send(Method::GET, path, &[header], bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.code, 200, "{header:?}");
        let more = peak_kib(server.pid()).saturating_sub(before);
        assert!(
            more < MOST_KIB,
            "{header:?}: the server took {more} KiB for a response of {}",
            answer.body.len()
        );
    }
}

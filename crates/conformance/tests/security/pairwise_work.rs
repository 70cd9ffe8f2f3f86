//! Requests whose parts would be compared pairwise: groups of a review with subjects of a binding, lines of a pod before
//! and after an update, secrets of a pod with those of its service account.

use std::time::{Duration, Instant};

use conformance::{Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const PATIENCE: Duration = Duration::from_secs(30);
/// Much more than a request takes even on a busy machine, and much less than comparing pairwise takes.
const QUICKLY: Duration = Duration::from_secs(8);

#[tokio::test]
async fn groups_of_a_review_are_not_compared_with_each_subject_of_a_binding() {
    const SUBJECTS: usize = 36_000;
    let server = Server::serve(&["--authorization-mode=RBAC"]).await.unwrap();
    let (client, alice) = (server.client().unwrap(), server.client().unwrap().as_token(Some("alicetoken")));
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let role = |name: String| json!({"metadata": {"name": name}, "rules": rules});
    accepts(client.post(&format!("{RBAC}/roles"), &role("r".into())).await).unwrap();
    let subjects: Value = (0..SUBJECTS)
        .map(
            |i| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": format!("s{i:06}")}),
        )
        .collect();
    let binding = json!({"metadata": {"name": "b"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}});
    accepts(client.post(&format!("{RBAC}/rolebindings"), &binding).await).unwrap();

    let last = format!("s{:06}", SUBJECTS - 1);
    let groups: Vec<String> = (0..250_000).map(|i| format!("t{i:06}")).chain([last]).collect();
    let review = json!({"metadata": {"namespace": "default"}, "spec": {"user": "x", "groups": groups,
        "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
    let reviewer = client.as_token(client.token());
    let reviewed = tokio::spawn(async move {
        let reviews = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
        accepts(reviewer.post(reviews, &review).await)
    });
    // While the index changes, other requests are authorized.
    let mut i = 0;
    while !reviewed.is_finished() {
        let began = Instant::now();
        accepts(client.post(&format!("{RBAC}/roles"), &role(format!("w{i}"))).await).unwrap();
        rejects(alice.get(PODS).await, 403, "Forbidden").unwrap();
        assert!(began.elapsed() < QUICKLY, "a request waited {:?} for its authorization", began.elapsed());
        i += 1;
    }
    let status = reviewed.await.unwrap().unwrap()["status"].clone();
    assert_eq!(status["allowed"], true);
    let reason = format!("RoleBinding \"b/default\" of Role \"r\" to Group \"s{:06}\"", SUBJECTS - 1);
    assert!(status["reason"].as_str().unwrap().ends_with(&reason), "{status}");
}

#[tokio::test]
async fn changed_lines_of_a_pod_are_compared_within_a_bounded_time() {
    const LINES: usize = 8000;
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let pod = |args: Vec<String>| json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "args": args}]}});
    // Most lines occur often enough to start a run in many others, and each run is one line long.
    let different = 50;
    let old = (0..LINES).map(|i| format!("s{}", i % different)).collect();
    let line = |i| if i % 2 == 0 { format!("s{}", i / 2 % different) } else { format!("x{i}") };
    let new = pod((0..LINES).map(line).collect());
    let old = pod(old);
    // The service account of the pod must exist, too.
    eventually(PATIENCE, async || accepts(client.post(PODS, &old).await)).await.unwrap();
    let began = Instant::now();
    let status = rejects(client.json(Method::PUT, &format!("{PODS}/p"), &new).await, 422, "Invalid").unwrap();
    assert!(began.elapsed() < QUICKLY, "the update took {:?}", began.elapsed());
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("pod updates may not change fields other than"), "{message:.200}");
}

#[tokio::test]
async fn secrets_of_a_pod_are_not_compared_with_each_secret_of_its_service_account() {
    const SECRETS: usize = 30_000;
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let secrets: Value = (0..SECRETS).map(|i| json!({"name": format!("s{i:06}")})).collect();
    let account = json!({"metadata": {"name": "many", "annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "imagePullSecrets": secrets});
    accepts(client.post("/api/v1/namespaces/default/serviceaccounts", &account).await).unwrap();
    let mut pod = json!({"metadata": {"name": "p"},
        "spec": {"serviceAccountName": "many", "containers": [{"name": "c", "image": "i"}]}});
    let began = Instant::now();
    // Admission adds all secrets of the account to the pod.
    accepts(client.post(PODS, &pod).await).unwrap();
    assert!(began.elapsed() < QUICKLY, "the pod took {:?}", began.elapsed());
    pod["metadata"]["name"] = json!("q");
    pod["spec"]["imagePullSecrets"] = json!([{"name": "other"}]);
    let status = rejects(client.post(PODS, &pod).await, 403, "Forbidden").unwrap();
    assert!(
        status["message"].as_str().unwrap().contains("does not reference that imagePullSecret"),
        "{status}"
    );
}

//! Fields of SubjectAccessReviews that only the server may set.

use conformance::{Server, rejects};
use serde_json::json;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[tokio::test]
async fn metadata_set_by_the_server_is_dropped_before_a_review_is_validated() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let sent = json!({"metadata": {"uid": "mine", "creationTimestamp": "2020-01-01T00:00:00Z", "resourceVersion": "5"},
        "spec": {"user": "a", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let refused = rejects(client.post(REVIEWS, &sent).await, 422, "Invalid").unwrap().to_string();
    assert!(
        refused.contains("resourceVersion") && !refused.contains("mine") && !refused.contains("2020"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_review_in_a_removed_version_gets_a_different_error_than_in_an_unknown_version() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let of =
        |version: &str| json!({"apiVersion": version, "kind": "SubjectAccessReview", "spec": {"user": "a"}});
    let old =
        rejects(client.post(REVIEWS, &of("authorization.k8s.io/v1beta1")).await, 400, "BadRequest").unwrap();
    let wanted = "the API version in the data (authorization.k8s.io/v1beta1) does not match the expected API version (authorization.k8s.io/v1)";
    assert!(old.to_string().contains(wanted), "{old}");
    let odd = rejects(client.post(REVIEWS, &of("authorization.k8s.io/v7")).await, 400, "BadRequest").unwrap();
    assert!(odd.to_string().contains("no kind"), "{odd}");
}

//! The size quota of the store.

use bytes::Bytes;
use conformance::{Client, HttpResponse, Problem, Result, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::callers::{MAPS, SOON, alice_and_bob, metric};

const QUOTA: f64 = 8.0 * 1024.0 * 1024.0;
const FLAGS: [&str; 1] = ["--quota-backend-bytes=8388608"];
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(bytes)}})
}

fn check_full_store_error(answer: Result<HttpResponse>) -> Result<()> {
    let status = rejects(answer, 500, "")?;
    let message = status["message"].as_str().unwrap_or_default();
    if message.starts_with("etcdserver: mvcc: database space exceeded") {
        return Ok(());
    }
    Err(Problem::new(format!("refused for another reason: {message}")))
}

/// Creates config maps of half a megabyte until one is rejected.
async fn fill(client: &Client) -> usize {
    for number in 0..64 {
        let answer = client.post(MAPS, &map(&format!("fill{number}"), 500_000)).await;
        if answer.as_ref().is_ok_and(|answer| answer.code == 500) {
            check_full_store_error(answer).unwrap();
            return number;
        }
        accepts(answer).unwrap();
    }
    panic!("nothing was refused");
}

async fn patch(client: &Client, path: &str, patch: &Value) -> Result<HttpResponse> {
    let merge = [("content-type", "application/merge-patch+json")];
    client.send(Method::PATCH, path, &merge, Bytes::from(patch.to_string())).await
}

#[tokio::test]
async fn a_full_store_refuses_growth_and_recovers_by_deletions() {
    let server = Server::serve(&FLAGS).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, _) = alice_and_bob(&admin).await;
    let lease = |holder: &str| json!({"metadata": {"name": "leader"}, "spec": {"holderIdentity": holder}});
    accepts(admin.post(LEASES, &lease("a")).await).unwrap();
    accepts(admin.post("/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}})).await).unwrap();
    accepts(admin.post("/api/v1/namespaces/doomed/configmaps", &map("inside", 10)).await).unwrap();
    let guarded = json!({"metadata": {"name": "guarded", "finalizers": ["example.com/guard"]}});
    accepts(admin.post(MAPS, &guarded).await).unwrap();
    accepts(admin.post(MAPS, &map("small", 100)).await).unwrap();
    let filled = fill(&alice).await;

    // Writes that need space are rejected, for administrators too: new objects, larger ones, status, events.
    check_full_store_error(alice.post(MAPS, &map("another", 1)).await).unwrap();
    check_full_store_error(admin.post(MAPS, &map("another", 1)).await).unwrap();
    check_full_store_error(
        patch(&admin, &format!("{MAPS}/small"), &json!({"data": {"more": "x".repeat(1000)}})).await,
    )
    .unwrap();
    check_full_store_error(admin.post(LEASES, &json!({"metadata": {"name": "new"}})).await).unwrap();
    let condition = json!({"status": {"conditions": [{"type": "T", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z", "reason": "R", "message": "M"}]}});
    check_full_store_error(patch(&admin, "/api/v1/namespaces/kube-public/status", &condition).await).unwrap();
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    check_full_store_error(admin.post("/api/v1/namespaces/default/events", &event).await).unwrap();

    // Reads, dry runs, smaller updates and leases work.
    accepts(admin.get(&format!("{MAPS}/fill0")).await).unwrap();
    accepts(admin.get(MAPS).await).unwrap();
    accepts(admin.post(&format!("{MAPS}?dryRun=All"), &map("dry", 1)).await).unwrap();
    accepts(patch(&admin, &format!("{MAPS}/small"), &json!({"data": {"k": "y"}})).await).unwrap();
    accepts(patch(&admin, &format!("{LEASES}/leader"), &lease("another-holder")).await).unwrap();
    // Operators can see the alarm, and it is no reason to restart the server.
    let ready = admin.get("/readyz").await.unwrap();
    assert_eq!(ready.code, 500);
    assert!(ready.text().contains("[-]storage-quota failed"), "{}", ready.text());
    assert_eq!(admin.get("/readyz?exclude=storage-quota").await.unwrap().code, 200);
    assert_eq!(admin.get("/livez").await.unwrap().code, 200);
    assert_eq!(metric(&admin, "apiserver_storage_quota_alarm", "").await, Some(1.0));
    assert_eq!(metric(&admin, "apiserver_storage_quota_bytes", "").await, Some(QUOTA));
    assert!(metric(&admin, "apiserver_storage_size_bytes", "etcd-0").await.unwrap() > 0.0);
    assert!(server.log().contains("--quota-backend-bytes"), "{}", server.log());

    // Deletions work: with a finalizer, which first marks the object, and of namespaces, which the server empties.
    accepts(admin.delete(&format!("{MAPS}/guarded")).await).unwrap();
    accepts(patch(&admin, &format!("{MAPS}/guarded"), &json!({"metadata": {"finalizers": null}})).await)
        .unwrap();
    rejects(admin.get(&format!("{MAPS}/guarded")).await, 404, "NotFound").unwrap();
    accepts(admin.delete("/api/v1/namespaces/doomed").await).unwrap();
    eventually(SOON, async || rejects(admin.get("/api/v1/namespaces/doomed").await, 404, "NotFound"))
        .await
        .unwrap();
    check_full_store_error(alice.post(MAPS, &map("another", 1)).await).unwrap();

    // Enough deletions end the alarm.
    for number in 0..filled / 2 {
        accepts(alice.delete(&format!("{MAPS}/fill{number}")).await).unwrap();
    }
    accepts(alice.post(MAPS, &map("another", 1)).await).unwrap();
    assert_eq!(admin.get("/readyz").await.unwrap().code, 200);
    assert_eq!(metric(&admin, "apiserver_storage_quota_alarm", "").await, Some(0.0));
}

#[tokio::test]
async fn a_burst_of_concurrent_writes_does_not_exceed_the_quota() {
    let server = Server::serve(&FLAGS).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, _) = alice_and_bob(&admin).await;
    let writers: Vec<_> = (0..40)
        .map(|number| {
            let writer = alice.as_token(alice.token());
            tokio::spawn(async move {
                let answer = writer.post(MAPS, &map(&format!("b{number}"), 500_000)).await;
                answer.map(|answer| answer.code)
            })
        })
        .collect();
    let mut refused = 0;
    for writer in writers {
        match writer.await.unwrap().unwrap() {
            201 => {}
            500 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(refused >= 24, "{refused}");
    assert!(metric(&admin, "apiserver_storage_live_bytes", "").await.unwrap() <= QUOTA);
}

#[tokio::test]
async fn a_negative_quota_flag_disables_the_store_quota_and_the_default_is_2_gib() {
    let server = Server::serve(&["--quota-backend-bytes=-1"]).await.unwrap();
    let admin = server.client().unwrap();
    assert_eq!(metric(&admin, "apiserver_storage_quota_bytes", "").await, Some(0.0));
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    let two_gib = f64::from(1 << 30) * 2.0;
    assert_eq!(metric(&admin, "apiserver_storage_quota_bytes", "").await, Some(two_gib));
}

#[tokio::test]
async fn claims_from_templates_do_not_use_the_headroom_of_a_full_store() {
    const RESOURCE: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    let server = Server::serve(&FLAGS).await.unwrap();
    let admin = server.client().unwrap();
    let default = "/api/v1/namespaces/default";
    eventually(SOON, async || accepts(admin.get(&format!("{default}/serviceaccounts/default")).await))
        .await
        .unwrap();
    let annotations = json!({"example.com/large": "x".repeat(200_000)});
    let template = json!({"metadata": {"name": "large"}, "spec": {
        "metadata": {"annotations": annotations},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    }});
    accepts(admin.post(RESOURCE, &template).await).unwrap();
    // One small pod with claims of 20 MB.
    let claims: Vec<Value> =
        (0..100).map(|i| json!({"name": format!("c{i}"), "resourceClaimTemplateName": "large"})).collect();
    let pod = json!({"metadata": {"name": "many"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "resourceClaims": claims}});
    accepts(admin.post(&format!("{default}/pods"), &pod).await).unwrap();
    eventually(SOON, async || {
        match metric(&admin, "resourceclaim_controller_create_failures_total", "").await {
            Some(failures) if failures > 0.0 => Ok(()),
            failures => Err(Problem::new(format!("{failures:?} claims were refused"))),
        }
    })
    .await
    .unwrap();
    let live = metric(&admin, "apiserver_storage_live_bytes", "").await.unwrap();
    assert!(live < QUOTA + 500_000.0, "the claims use {live} bytes");
}

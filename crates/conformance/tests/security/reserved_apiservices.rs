//! No APIService gives a built-in group version to another server, and none leads requests back to this server.

use std::time::Duration;

use bytes::Bytes;
use conformance::aggregated_server::{AggregatedReply, AggregatedServer, Received};
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const PATIENCE: Duration = Duration::from_secs(30);

fn registration(group: &str, version: &str, port: u16) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}")},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": 2000, "versionPriority": 200,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "evil", "port": port}}})
}

/// A Service whose endpoint is this machine.
async fn create_service(client: &Client) {
    let service =
        json!({"metadata": {"name": "evil"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    accepts(client.post("/api/v1/namespaces/default/services", &service).await).unwrap();
}

#[tokio::test]
async fn no_apiservice_gives_a_built_in_group_version_to_another_server() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let built_in = [("", "v1"), ("rbac.authorization.k8s.io", "v1"), ("apps", "v1")];
    for (group, version) in built_in {
        let wanted = registration(group, version, 443);
        let path = format!("{SERVICES}/{version}.{group}");
        let mut stored = accepts(client.get(&path).await).unwrap();
        stored["spec"] = wanted["spec"].clone();
        let patch = json!({"spec": wanted["spec"]}).to_string();
        let merge = [("content-type", "application/merge-patch+json")];
        let apply = [("content-type", "application/apply-patch+yaml")];
        let applied = format!("{path}?fieldManager=m&force=true");
        for (what, answer) in [
            ("update", client.json(Method::PUT, &path, &stored).await),
            ("patch", client.send(Method::PATCH, &path, &merge, patch.into()).await),
            ("apply", client.send(Method::PATCH, &applied, &apply, wanted.to_string().into()).await),
        ] {
            let refused =
                rejects(answer, 422, "Invalid").unwrap_or_else(|why| panic!("{what} {group}: {why}"));
            let cause = &refused["details"]["causes"][0];
            assert_eq!(cause["field"], "spec.service", "{refused}");
            assert!(
                cause["message"].as_str().unwrap().contains("is served by this server itself"),
                "{refused}"
            );
        }
        accepts(client.delete(&path).await).unwrap();
        rejects(client.post(SERVICES, &wanted).await, 422, "Invalid").unwrap();
    }
    let own = registration("apiregistration.k8s.io", "v1", 443);
    rejects(client.post(SERVICES, &own).await, 422, "Invalid").unwrap();
    // Without a Service, and for a version that is not built in, an APIService is accepted.
    let mut local = registration("apps", "v1", 443);
    local["spec"].as_object_mut().unwrap().remove("service");
    local["spec"].as_object_mut().unwrap().remove("insecureSkipTLSVerify");
    accepts(client.post(SERVICES, &local).await).unwrap();
    accepts(client.post(SERVICES, &registration("apps", "v9", 443)).await).unwrap();
}

/// An APIService that was stored while the server did not serve its group version captures nothing when the server does.
#[tokio::test]
async fn a_stored_apiservice_of_a_built_in_group_version_captures_no_requests() {
    let folder = tempfile::tempdir().unwrap();
    let without_v1 = ["--runtime-config=resource.k8s.io/v1=false"];
    let mut server = Server::serve_at(folder.path(), &without_v1).await.unwrap();
    let client = server.client().unwrap();
    let evil = AggregatedServer::start("evil.default.svc", None, |_| {
        AggregatedReply::Json(200, json!({"kind": "Evil"}))
    });
    let evil = evil.await.unwrap();
    create_service(&client).await;
    accepts(client.post(SERVICES, &registration("resource.k8s.io", "v1", evil.port)).await).unwrap();
    let classes = "/apis/resource.k8s.io/v1/deviceclasses";
    let is_captured = async || match accepts(client.get(classes).await)?["kind"].as_str() {
        Some("Evil") => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    };
    eventually(PATIENCE, is_captured).await.unwrap();

    server.kill().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let path = format!("{SERVICES}/v1.resource.k8s.io");
    let condition = eventually(PATIENCE, async || {
        let stored = accepts(client.get(&path).await)?;
        let condition = stored["status"]["conditions"][0].clone();
        if condition["reason"] == "ServiceIgnored" {
            Ok(condition)
        } else {
            Err(Problem::new(condition.to_string()))
        }
    });
    assert_eq!(condition.await.unwrap()["status"], "False");
    let list = accepts(client.get(classes).await).unwrap();
    assert_eq!(list["kind"], "DeviceClassList");
    assert!(server.log().contains("spec.service of an APIService is ignored"), "{}", server.log());
    // Other fields of it can be changed, and the Service can be removed.
    let patch = async |body: Value| {
        let headers = [("content-type", "application/merge-patch+json")];
        client.send(Method::PATCH, &path, &headers, body.to_string().into()).await
    };
    accepts(patch(json!({"metadata": {"labels": {"a": "b"}}})).await).unwrap();
    rejects(patch(json!({"spec": {"service": {"port": 1}}})).await, 422, "Invalid").unwrap();
    accepts(patch(json!({"spec": {"service": null, "insecureSkipTLSVerify": null}})).await).unwrap();
    eventually(PATIENCE, async || {
        let stored = accepts(client.get(&path).await)?;
        let condition = stored["status"]["conditions"][0].clone();
        if condition["reason"] == "Local" { Ok(()) } else { Err(Problem::new(condition.to_string())) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_request_that_an_apiservice_leads_back_to_this_server_is_refused() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let (_, port) = client.authority().rsplit_once(':').unwrap();
    create_service(&client).await;
    let own = registration("loops.example.com", "v1", port.parse().unwrap());
    accepts(client.post(SERVICES, &own).await).unwrap();
    let path = format!("{SERVICES}/v1.loops.example.com");
    let condition = eventually(PATIENCE, async || {
        let stored = accepts(client.get(&path).await)?;
        let condition = stored["status"]["conditions"][0].clone();
        if condition["reason"] == "FailedDiscoveryCheck" {
            Ok(condition)
        } else {
            Err(Problem::new(condition.to_string()))
        }
    });
    let condition = condition.await.unwrap();
    assert!(condition["message"].as_str().unwrap().contains("508"), "{condition}");
    // The status is forged until a request is proxied.
    let forged = json!({"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed",
        "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    let headers = [("content-type", "application/merge-patch+json")];
    let answer = eventually(PATIENCE, async || {
        let at = format!("{path}/status");
        accepts(client.send(Method::PATCH, &at, &headers, forged.to_string().into()).await)?;
        let answer = client.get("/apis/loops.example.com/v1/things").await?;
        if answer.text().contains("loop detected") { Ok(answer) } else { Err(Problem::new(answer.text())) }
    });
    assert_eq!(answer.await.unwrap().code, 508);
}

/// A request for group `b` may cause one for group `a` that keeps its headers, but not one for group `b` again.
#[tokio::test]
async fn an_aggregated_server_may_pass_a_request_back_for_another_apiservice() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let discovery = |received: &Received| match received.path().trim_end_matches("/things") {
        path if path == received.path() => {
            let (group, _) = path.trim_start_matches("/apis/").split_once('/').unwrap_or_default();
            let list =
                json!({"kind": "APIResourceList", "groupVersion": format!("{group}/v1"), "resources": []});
            AggregatedReply::Json(200, list)
        }
        _ => AggregatedReply::Json(200, json!({"from": received.path()})),
    };
    let extension = AggregatedServer::start("outer.default.svc", None, discovery).await.unwrap();
    extension.register(&client, "outer", "b.example.com").await.unwrap();
    let inner = AggregatedServer::start("inner.default.svc", None, discovery).await.unwrap();
    inner.register(&client, "inner", "a.example.com").await.unwrap();
    let things = |group: &str| format!("/apis/{group}.example.com/v1/things");
    accepts(client.get(&things("b")).await).unwrap();
    let received = extension.received_for_others();
    let hops =
        received.iter().rfind(|received| received.path() == things("b")).unwrap().all("x-portcullis-hop");
    let [hop] = hops.as_slice() else { panic!("{hops:?}") };
    let passed = [("x-portcullis-hop", *hop)];
    let second = client.send(Method::GET, &things("a"), &passed, Bytes::new()).await.unwrap();
    assert_eq!((second.code, second.json()["from"].as_str()), (200, Some(things("a").as_str())));
    let hops = inner
        .received_for_others()
        .iter()
        .rfind(|of| of.path() == things("a"))
        .unwrap()
        .all("x-portcullis-hop")
        .len();
    assert_eq!(hops, 2, "both are marked");
    let again = client.send(Method::GET, &things("b"), &passed, Bytes::new()).await.unwrap();
    assert_eq!(again.code, 508, "{}", again.text());
}

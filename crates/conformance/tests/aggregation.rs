//! API aggregation with a real API server behind the one under test, over real TLS.
//!
//! Who is calling is decided here and believed there; what is wrong there stays there.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use conformance::extension::{Does, Extension, Received};
use conformance::server::{free_port, run_to_end};
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const GROUP: &str = "wardle.example.com";
const ROOT: &str = "/apis/wardle.example.com/v1alpha1";
const FISCHERS: &str = "/apis/wardle.example.com/v1alpha1/fischers";
const NAME: &str = "v1alpha1.wardle.example.com";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PATIENCE: Duration = Duration::from_secs(20);

fn resource_list() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "wardle.example.com/v1alpha1", "resources": [
        {"name": "fischers", "singularName": "fischer", "namespaced": false, "kind": "Fischer", "verbs": ["get", "list", "watch", "create"]}
    ]})
}

fn fischers() -> Value {
    let item = json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Fischer", "metadata": {"name": "fritz", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "FischerList", "metadata": {"resourceVersion": "7"}, "items": [item]})
}

/// What an API server does that knows the old form of discovery only.
fn wardle(received: &Received) -> Does {
    match (received.path(), received.target.contains("watch=")) {
        (ROOT, _) => Does::Json(200, resource_list()),
        (FISCHERS, true) => Does::Stream,
        (FISCHERS, false) => Does::Json(200, fischers()),
        _ => Does::Json(
            404,
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
        ),
    }
}

/// The same, with everything that is new.
fn modern(received: &Received) -> Does {
    match received.path() {
        "/apis" => {
            let verbs = ["get", "list", "watch", "create"];
            let resource = json!({"resource": "fischers", "responseKind": {"group": "", "version": "", "kind": "Fischer"}, "scope": "Cluster", "singularResource": "fischer", "verbs": verbs, "shortNames": ["fi"]});
            let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
                {"metadata": {"name": GROUP}, "versions": [{"version": "v1alpha1", "freshness": "Current", "resources": [resource]}]}]});
            Does::Raw(200, AGGREGATED, Vec::new(), list.to_string())
        }
        "/openapi/v3" => Does::Json(
            200,
            json!({"paths": {
                "apis/wardle.example.com/v1alpha1": {"serverRelativeURL": "/openapi/v3/apis/wardle.example.com/v1alpha1?hash=1"},
                "api/v1": {"serverRelativeURL": "https://evil.example.com/"},
            }}),
        ),
        "/openapi/v3/apis/wardle.example.com/v1alpha1" => {
            Does::Json(200, json!({"openapi": "3.0.0", "info": {"title": "wardle"}}))
        }
        "/openapi/v2" => Does::Json(
            200,
            json!({"swagger": "2.0", "info": {}, "paths": {
                "/apis/wardle.example.com/v1alpha1/fischers": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/com.example.Fischer"}}}}},
                "/api/v1/namespaces/{namespace}/configmaps": {"get": {"description": "not theirs"}},
            }, "definitions": {
                "com.example.Fischer": {"type": "object", "properties": {"metadata": {"$ref": "#/definitions/io.k8s.api.core.v1.ConfigMap"}}},
                "io.k8s.api.core.v1.ConfigMap": {"type": "string"},
                "unused": {"type": "object"},
            }}),
        ),
        _ => wardle(received),
    }
}

fn service(port: u16, ca_bundle: &str) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME}, "spec": {
        "group": GROUP, "version": "v1alpha1", "groupPriorityMinimum": 2000, "versionPriority": 200, "caBundle": ca_bundle,
        "service": {"namespace": "default", "name": "wardle", "port": port}}})
}

/// A service that leads to this machine.
async fn place(client: &Client) {
    let service = json!({"metadata": {"name": "wardle"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    accepts(client.post("/api/v1/namespaces/default/services", &service).await).unwrap();
}

/// The authority of front proxies, where API servers look for it.
async fn proxies(client: &Client) -> String {
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let map = accepts(client.get(path).await).unwrap();
    map["data"]["requestheader-client-ca-file"].as_str().unwrap().to_owned()
}

/// Waits until the condition of an APIService says this.
async fn says(client: &Client, name: &str, status: &str, reason: &str) -> Value {
    eventually(PATIENCE, async || {
        let service = accepts(client.get(&format!("{SERVICES}/{name}")).await)?;
        let condition = service["status"]["conditions"][0].clone();
        if condition["status"] == status && condition["reason"] == reason {
            Ok(condition)
        } else {
            Err(Problem::new(format!("{condition}")))
        }
    })
    .await
    .unwrap()
}

/// A server without any configuration, and an API server behind it.
async fn behind(does: impl Fn(&Received) -> Does + Send + Sync + 'static) -> (Server, Client, Extension) {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let authority = proxies(&client).await;
    let extension = Extension::start("wardle.default.svc", Some(&authority), does).await.unwrap();
    place(&client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    says(&client, NAME, "True", "Passed").await;
    (server, client, extension)
}

#[tokio::test]
async fn callers_are_told_in_headers_and_what_they_claim_is_not() {
    let (_server, client, extension) = behind(wardle).await;
    let claimed = [
        ("x-remote-user", "somebody"),
        ("x-remote-group", "somebodies"),
        ("X-Remote-Extra-Scopes", "everything"),
        ("x-forwarded-for", "198.51.100.1"),
        ("x-own", "kept"),
        ("audit-id", "an-audit-id"),
    ];
    let target = format!("{FISCHERS}?labelSelector=b%3D2&limit=5&allowWatchBookmarks=true");
    let answer = client.send(Method::GET, &target, &claimed, Bytes::new()).await.unwrap();
    assert_eq!((answer.code, answer.json()), (200, fischers()));
    assert_eq!(answer.header("audit-id"), "an-audit-id");
    let received = extension.received_for_others();
    let [received] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!(received.target, format!("{FISCHERS}?allowWatchBookmarks=true&labelSelector=b%3D2&limit=5"));
    assert_eq!(received.all("x-remote-user"), ["kubernetes-admin"]);
    assert_eq!(received.all("x-remote-group"), ["system:masters", "system:authenticated"]);
    assert!(received.all("x-remote-extra-scopes").is_empty());
    assert_eq!(received.header("x-forwarded-for"), "198.51.100.1, 127.0.0.1");
    assert_eq!(received.header("x-forwarded-uri"), FISCHERS);
    assert_eq!(received.header("x-own"), "kept");
    assert_eq!(received.header("audit-id"), "an-audit-id");
    assert!(received.header("authorization").is_empty());
}

#[tokio::test]
async fn requests_are_authorized_here_under_the_name_they_arrive_under() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let extension = Extension::start("wardle.default.svc", None, wardle).await.unwrap();
    place(&client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    says(&client, NAME, "True", "Passed").await;

    let as_alice =
        [("impersonate-user", "alice"), ("impersonate-group", "devs"), ("impersonate-extra-scopes", "a b")];
    let ask = async |path: &str| client.send(Method::GET, path, &as_alice, Bytes::new()).await;
    let status = rejects(ask(FISCHERS).await, 403, "Forbidden").unwrap();
    let words = "fischers.wardle.example.com is forbidden: User \"alice\" cannot list resource \"fischers\" in API group \"wardle.example.com\" at the cluster scope";
    assert_eq!(status["message"], words);
    assert!(extension.received_for_others().is_empty(), "a request that nobody allowed went on");

    let rules = json!([{"apiGroups": [GROUP], "resources": ["fischers"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "fischers"}, "rules": rules});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await).unwrap();
    let binding = json!({"metadata": {"name": "fischers"}, "subjects": [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "fischers", "apiGroup": "rbac.authorization.k8s.io"}});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await).unwrap();
    accepts(ask(FISCHERS).await).unwrap();
    let received = extension.received_for_others();
    let received = received.last().unwrap();
    assert_eq!(received.all("x-remote-user"), ["alice"]);
    assert_eq!(received.all("x-remote-group"), ["devs", "system:authenticated"]);
    assert_eq!(received.all("x-remote-extra-scopes"), ["a b"]);
    assert!(received.headers.keys().all(|name| !name.as_str().starts_with("impersonate-")));
    assert!(received.header("authorization").is_empty());
    // A path that another server would understand in another way is authorized as it is passed on.
    rejects(ask("/apis/wardle.example.com/v1alpha1/namespaces%2Fdefault%2Fsecrets").await, 403, "Forbidden")
        .unwrap();
    // Nobody without credentials gets through to see what is there.
    rejects(client.as_token(Some("wrong")).get(FISCHERS).await, 401, "Unauthorized").unwrap();
}

#[tokio::test]
async fn conditions_say_what_is_missing_and_requests_are_refused_meanwhile() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let (port, guard) = free_port().unwrap();
    let mut object = service(443, "");
    object["spec"]["insecureSkipTLSVerify"] = json!(true);
    accepts(client.post(SERVICES, &object).await).unwrap();
    let said = says(&client, NAME, "False", "ServiceNotFound").await;
    assert_eq!(said["message"], "service/wardle in \"default\" is not present");

    let refused = client.get(FISCHERS).await.unwrap();
    assert_eq!((refused.code, refused.text().as_str()), (503, "service unavailable\n"));
    assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(refused.header("x-content-type-options"), "nosniff");
    assert_eq!(client.get(ROOT).await.unwrap().text(), "service unavailable\n");

    let spec = json!({"metadata": {"name": "wardle"}, "spec": {"ports": [{"name": "https", "port": 8443, "targetPort": 1}]}});
    accepts(client.post("/api/v1/namespaces/default/services", &spec).await).unwrap();
    let said = says(&client, NAME, "False", "ServicePortError").await;
    assert_eq!(said["message"], "service/wardle in \"default\" is not listening on port 443");

    let patch = json!({"spec": {"service": {"port": 8443}}});
    let patched = client
        .send(
            Method::PATCH,
            &format!("{SERVICES}/{NAME}"),
            &[("content-type", "application/merge-patch+json")],
            patch.to_string().into(),
        )
        .await;
    accepts(patched).unwrap();
    let said = says(&client, NAME, "False", "EndpointsNotFound").await;
    assert_eq!(said["message"], "cannot find endpointslices for service/wardle in \"default\"");

    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let mut slice = json!({"metadata": {"name": "wardle-1", "labels": {"kubernetes.io/service-name": "wardle"}}, "addressType": "IPv4",
        "ports": [{"name": "other", "port": port}], "endpoints": [{"addresses": [own_address()]}]});
    accepts(client.post(slices, &slice).await).unwrap();
    let said = says(&client, NAME, "False", "MissingEndpoints").await;
    assert_eq!(
        said["message"],
        "endpointslices for service/wardle in \"default\" have no addresses with port name \"https\""
    );

    drop(guard);
    slice["ports"][0]["name"] = json!("https");
    accepts(client.json(Method::PUT, &format!("{slices}/wardle-1"), &slice).await).unwrap();
    let said = says(&client, NAME, "False", "FailedDiscoveryCheck").await;
    let url = format!("https://{}:{port}{ROOT}", own_address());
    let words = format!(
        "failing or missing response from {url}: Get \"{url}\": dial tcp {}:{port}: connect: ",
        own_address()
    );
    assert!(said["message"].as_str().unwrap().starts_with(&words), "{said}");

    let page = client.get("/metrics").await.unwrap().text();
    assert!(page.contains(&format!("aggregator_unavailable_apiservice{{name=\"{NAME}\"}} 1")), "{page}");
    assert!(page.contains("aggregator_unavailable_apiservice{name=\"v1.apps\"} 0"), "{page}");
    // Everything else goes on.
    accepts(client.get("/api/v1/namespaces").await).unwrap();
    accepts(client.get("/apis/apps/v1").await).unwrap();
}

/// An address that endpoints may have: one of this machine, if it has any but the loopback.
fn own_address() -> String {
    let asked = || -> Option<std::net::IpAddr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        // Nothing is sent: this only asks which address would be used.
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    asked()
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
        .map_or("192.0.2.1".to_owned(), |ip| ip.to_string())
}

#[tokio::test]
async fn a_server_that_does_not_prove_its_name_is_told_nothing() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    place(&client).await;
    let extension = Extension::start("wardle.default.svc", None, wardle).await.unwrap();
    let other = Extension::start("wardle.default.svc", None, wardle).await.unwrap();
    accepts(client.post(SERVICES, &service(extension.port, &other.ca_bundle)).await).unwrap();
    let said = says(&client, NAME, "False", "FailedDiscoveryCheck").await;
    assert!(
        said["message"]
            .as_str()
            .unwrap()
            .contains("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{said}"
    );
    assert_eq!(client.get(FISCHERS).await.unwrap().text(), "service unavailable\n");
    assert!(extension.received().is_empty());

    // Another name, the right authority.
    let elsewhere = Extension::start("elsewhere.default.svc", None, wardle).await.unwrap();
    let put = async |object: &Value| {
        let path = format!("{SERVICES}/{NAME}");
        let stored = accepts(client.get(&path).await).unwrap();
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"].clone();
        client.json(Method::PUT, &path, &object).await.map(|answer| answer.code)
    };
    let change = async |object: Value| {
        eventually(PATIENCE, async || match put(&object).await? {
            200 => Ok(()),
            code => Err(Problem::new(format!("{code}"))),
        })
        .await
        .unwrap();
    };
    change(service(elsewhere.port, &elsewhere.ca_bundle)).await;
    eventually(PATIENCE, async || {
        let said = says(&client, NAME, "False", "FailedDiscoveryCheck").await;
        let words = "x509: certificate is valid for elsewhere.default.svc, not wardle.default.svc";
        if said["message"].as_str().unwrap().ends_with(words) {
            Ok(())
        } else {
            Err(Problem::new(said.to_string()))
        }
    })
    .await
    .unwrap();
    assert!(elsewhere.received().is_empty());

    // Whoever says that it does not matter is believed.
    let mut insecure = service(elsewhere.port, "");
    insecure["spec"]["insecureSkipTLSVerify"] = json!(true);
    change(insecure).await;
    says(&client, NAME, "True", "Passed").await;
    accepts(client.get(FISCHERS).await).unwrap();
}

#[tokio::test]
async fn watches_stream_and_end_with_either_side() {
    let (_server, client, extension) = behind(wardle).await;
    let target = format!("{FISCHERS}?watch=true");
    let mut events = client.events(&target, &[]).await.unwrap();
    assert_eq!(events.code, 200);
    for number in 1..=3 {
        extension.feed(&format!("{{\"type\":\"ADDED\",\"object\":{{\"number\":{number}}}}}\n"));
        // Each arrives before the next is sent: nothing waits for the end.
        let event = events.within(PATIENCE).await.unwrap().unwrap();
        assert_eq!(event["object"]["number"], number);
    }
    extension.finish();
    assert!(events.within(PATIENCE).await.unwrap().is_none());

    let events = client.events(&target, &[]).await.unwrap();
    assert_eq!(extension.open_streams(), 1);
    drop(events);
    eventually(PATIENCE, async || match extension.open_streams() {
        0 => Ok(()),
        open => Err(Problem::new(format!("{open} streams are open"))),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn bodies_pass_in_both_directions_without_being_held() {
    let (_server, client, extension) = behind(|received| match (&received.method, received.path()) {
        (&Method::POST, FISCHERS) => {
            Does::Raw(201, "application/json", vec![("warning", "299 - \"theirs\"")], "x".repeat(8 << 20))
        }
        (_, "/apis/wardle.example.com/v1alpha1/fischers/broken") => Does::StreamOf("1000"),
        (_, "/apis/wardle.example.com/v1alpha1/fischers/moved") => {
            Does::Raw(307, "text/plain", vec![("location", "https://evil.example.com/")], String::new())
        }
        (_, "/apis/wardle.example.com/v1alpha1/fischers/refused") => {
            Does::Raw(418, "text/plain", vec![("access-control-allow-origin", "*")], "teapot".to_owned())
        }
        _ => wardle(received),
    })
    .await;
    // Longer than any object that is kept here may be.
    let body = Bytes::from(vec![b'x'; 5 << 20]);
    let answer =
        client.send(Method::POST, FISCHERS, &[("content-type", "application/json")], body).await.unwrap();
    assert_eq!((answer.code, answer.body.len()), (201, 8 << 20));
    assert_eq!(answer.header("warning"), "299 - \"theirs\"");
    assert_eq!(extension.received_for_others().last().unwrap().length, 5 << 20);

    let refused = client.get(&format!("{FISCHERS}/refused")).await.unwrap();
    assert_eq!((refused.code, refused.text().as_str()), (418, "teapot"));
    assert!(refused.header("access-control-allow-origin").is_empty());

    let moved = client.get(&format!("{FISCHERS}/moved")).await.unwrap();
    assert_eq!(moved.code, 502);
    assert_eq!(moved.text(), "the backend attempted to redirect this request, which is not permitted");
    assert!(moved.header("location").is_empty());

    // What breaks off there does not look complete here.
    let mut broken = client.events(&format!("{FISCHERS}/broken"), &[]).await.unwrap();
    extension.feed("{}\n");
    assert_eq!(broken.within(PATIENCE).await.unwrap(), Some(json!({})));
    extension.finish();
    let end = broken.within(PATIENCE).await;
    assert!(end.is_err(), "{end:?}");
    accepts(client.get(FISCHERS).await).unwrap();
}

#[tokio::test]
async fn connections_become_those_of_another_protocol() {
    let (_server, client, extension) = behind(|received| match received.path() {
        "/apis/wardle.example.com/v1alpha1/fischers/fritz/exec" => Does::Echo("SPDY/3.1"),
        "/apis/wardle.example.com/v1alpha1/fischers/fritz/attach" => {
            Does::Json(403, json!({"kind": "Status", "code": 403}))
        }
        "/apis/wardle.example.com/v1alpha1/fischers/fritz/portforward" => Does::Json(200, json!({})),
        _ => wardle(received),
    })
    .await;
    let ask = async |below: &str| {
        let mut stream = client.tls_stream().await.unwrap();
        let request = format!(
            "POST {FISCHERS}/fritz/{below}?command=ls HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Remote-User: somebody\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        (stream, String::from_utf8(head).unwrap().to_lowercase())
    };
    let (mut stream, head) = ask("exec").await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: spdy/3.1\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
    for text in ["hello", "and on"] {
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, text.as_bytes());
    }
    let received = extension.received_for_others();
    let received = received.last().unwrap();
    assert_eq!(received.target, format!("{FISCHERS}/fritz/exec?command=ls"));
    assert_eq!(received.all("x-remote-user"), ["kubernetes-admin"]);
    drop(stream);

    let (_, head) = ask("attach").await;
    assert!(head.starts_with("http/1.1 403 "), "{head}");
    let (_, head) = ask("portforward").await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
}

fn group<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name)
}

async fn aggregated(client: &Client) -> Value {
    let answer = client.send(Method::GET, "/apis", &[("accept", AGGREGATED)], Bytes::new()).await;
    accepts(answer).unwrap()
}

async fn kubectl(server: &Server, args: &[&str]) -> String {
    let home = TempDir::new().unwrap();
    let program = std::env::var_os("PORTCULLIS_KUBECTL").unwrap_or("kubectl".into());
    let mut command = Command::new(program);
    command.env("KUBECONFIG", server.kubeconfig().unwrap()).env("HOME", home.path()).args(args);
    // The API server behind lives in this process, and must go on meanwhile.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_served_there_is_discovered_here() {
    for (does, short) in [(wardle as fn(&Received) -> Does, false), (modern, true)] {
        let (server, client, extension) = behind(does).await;
        let list = accepts(client.get("/apis").await).unwrap();
        let groups = list["groups"].as_array().unwrap();
        assert_eq!(groups[0]["name"], "apiregistration.k8s.io");
        assert_eq!(groups.last().unwrap()["name"], GROUP);
        let one = accepts(client.get(&format!("/apis/{GROUP}")).await).unwrap();
        assert_eq!(one["preferredVersion"]["groupVersion"], format!("{GROUP}/v1alpha1"));
        assert_eq!(accepts(client.get(ROOT).await).unwrap(), resource_list());
        eventually(PATIENCE, async || {
            let list = aggregated(&client).await;
            let version = group(&list, GROUP).map(|group| group["versions"][0].clone()).unwrap_or_default();
            if version["freshness"] == "Current" && version["resources"][0]["resource"] == "fischers" {
                Ok(())
            } else {
                Err(Problem::new(version.to_string()))
            }
        })
        .await
        .unwrap();
        assert!(kubectl(&server, &["api-resources", "--api-group", GROUP]).await.contains("Fischer"));
        let name = if short { "fi" } else { "fischers" };
        assert!(kubectl(&server, &["get", name]).await.contains("fritz"));
        assert!(kubectl(&server, &["get", "apiservices"]).await.contains("default/wardle"));

        // When it is gone it stays listed, and is said to be stale.
        drop(extension);
        // It would be noticed within half a minute; a change of its service makes it sooner.
        let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
        let merge = [("content-type", "application/merge-patch+json")];
        accepts(
            client
                .send(
                    Method::PATCH,
                    "/api/v1/namespaces/default/services/wardle",
                    &merge,
                    patch.to_string().into(),
                )
                .await,
        )
        .unwrap();
        says(&client, NAME, "False", "FailedDiscoveryCheck").await;
        let stale = json!({"version": "v1alpha1", "freshness": "Stale"});
        eventually(PATIENCE, async || {
            let list = aggregated(&client).await;
            let version = group(&list, GROUP).map(|group| group["versions"][0].clone()).unwrap_or_default();
            if version == stale { Ok(()) } else { Err(Problem::new(version.to_string())) }
        })
        .await
        .unwrap();
        assert!(
            accepts(client.get("/apis").await).unwrap()["groups"]
                .as_array()
                .unwrap()
                .iter()
                .any(|g| g["name"] == GROUP)
        );
        accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
        eventually(PATIENCE, async || match group(&aggregated(&client).await, GROUP) {
            None => Ok(()),
            Some(group) => Err(Problem::new(group.to_string())),
        })
        .await
        .unwrap();
        assert_eq!(client.get(FISCHERS).await.unwrap().text(), "404 page not found\n");
    }
}

#[tokio::test]
async fn documents_of_other_servers_are_found_and_claim_nothing_of_ours() {
    let (_server, client, extension) = behind(modern).await;
    let path = "apis/wardle.example.com/v1alpha1";
    eventually(PATIENCE, async || {
        let index = accepts(client.get("/openapi/v3").await)?;
        if index["paths"][path]["serverRelativeURL"] == format!("/openapi/v3/{path}?hash=1") {
            Ok(())
        } else {
            Err(Problem::new("not listed"))
        }
    })
    .await
    .unwrap();
    let index = accepts(client.get("/openapi/v3").await).unwrap();
    assert!(
        index["paths"]["api/v1"]["serverRelativeURL"]
            .as_str()
            .unwrap()
            .starts_with("/openapi/v3/api/v1?hash=")
    );
    let document = accepts(client.get(&format!("/openapi/v3/{path}?hash=1")).await).unwrap();
    assert_eq!(document["info"]["title"], "wardle");
    assert_eq!(extension.received_for_others().last().unwrap().all("x-remote-user"), ["kubernetes-admin"]);

    let document = eventually(PATIENCE, async || {
        let document = accepts(
            client.send(Method::GET, "/openapi/v2", &[("accept", "application/json")], Bytes::new()).await,
        )?;
        if document["paths"].get(FISCHERS).is_some() { Ok(document) } else { Err(Problem::new("not merged")) }
    })
    .await
    .unwrap();
    let definitions = &document["definitions"];
    assert_eq!(
        definitions["com.example.Fischer"]["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.ConfigMap_v2"
    );
    assert_eq!(definitions["io.k8s.api.core.v1.ConfigMap_v2"]["type"], "string");
    assert_eq!(definitions["io.k8s.api.core.v1.ConfigMap"]["type"], "object");
    assert!(definitions.get("unused").is_none());
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/configmaps"]["post"].is_object());
}

#[tokio::test]
async fn a_server_that_hangs_holds_nobody_up() {
    let server = Server::serve(&["--request-timeout=2s"]).await.unwrap();
    let client = server.client().unwrap();
    place(&client).await;
    // It answers until it is believed to be there, and never again.
    let hangs = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = std::sync::Arc::clone(&hangs);
    let extension = Extension::start("wardle.default.svc", None, move |received| {
        if asked.load(std::sync::atomic::Ordering::SeqCst) { Does::Hang } else { wardle(received) }
    })
    .await
    .unwrap();
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    says(&client, NAME, "True", "Passed").await;
    hangs.store(true, std::sync::atomic::Ordering::SeqCst);

    let begun = Instant::now();
    let answer = client.get(&format!("{FISCHERS}/fritz")).await.unwrap();
    assert_eq!(answer.code, 504, "{}", answer.text());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    // Nor is who asks it to speak another protocol.
    let begun = Instant::now();
    let mut stream = client.tls_stream().await.unwrap();
    let request = format!(
        "POST {FISCHERS}/fritz/odd HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
        client.token().unwrap_or_default()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    tokio::time::timeout(Duration::from_secs(4), stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(&head, b"HTTP/1.1 504", "{}", String::from_utf8_lossy(&head));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    let begun = Instant::now();
    for _ in 0..20 {
        aggregated(&client).await;
        accepts(client.get("/apis").await).unwrap();
        accepts(client.get("/apis/apps/v1").await).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_is_served_here_is_registered_and_follows_definitions() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let list = accepts(client.get(SERVICES).await).unwrap();
    let names: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 22, "{names:?}");
    for item in list["items"].as_array().unwrap() {
        assert_eq!(item["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
        assert_eq!(item["status"]["conditions"][0]["reason"], "Local");
        assert_eq!(item["status"]["conditions"][0]["message"], "Local APIServices are always available");
    }

    let definition = json!({"metadata": {"name": "crontabs.stable.example.com"}, "spec": {"group": "stable.example.com", "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {"name": "v2", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    accepts(client.post(definitions, &definition).await).unwrap();
    let own = format!("{SERVICES}/v1.stable.example.com");
    let there = async || eventually(PATIENCE, async || accepts(client.get(&own).await)).await.unwrap();
    let first = there().await;
    assert_eq!(first["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
    assert_eq!(
        first["spec"],
        json!({"group": "stable.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    rejects(client.get(&format!("{SERVICES}/v2.stable.example.com")).await, 404, "NotFound").unwrap();

    // Deleted, it comes back; changed, it is changed back.
    accepts(client.delete(&own).await).unwrap();
    assert_ne!(there().await["metadata"]["uid"], first["metadata"]["uid"]);
    let patch = json!({"spec": {"groupPriorityMinimum": 7}});
    accepts(
        client
            .send(
                Method::PATCH,
                &own,
                &[("content-type", "application/merge-patch+json")],
                patch.to_string().into(),
            )
            .await,
    )
    .unwrap();
    eventually(PATIENCE, async || match there().await["spec"]["groupPriorityMinimum"].as_i64() {
        Some(1000) => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    accepts(client.delete(&format!("{definitions}/crontabs.stable.example.com")).await).unwrap();
    eventually(PATIENCE, async || rejects(client.get(&own).await, 404, "NotFound")).await.unwrap();

    // Those of the table are restored by the next start alone; what they stand for is served all the same.
    accepts(client.delete(&format!("{SERVICES}/v1.apps")).await).unwrap();
    eventually(PATIENCE, async || {
        let list = accepts(client.get("/apis").await)?;
        if list["groups"].as_array().unwrap().iter().all(|group| group["name"] != "apps") {
            Ok(())
        } else {
            Err(Problem::new("listed"))
        }
    })
    .await
    .unwrap();
    accepts(client.get("/apis/apps").await).unwrap();
    accepts(client.get("/apis/apps/v1/deployments").await).unwrap();
    server.kill().unwrap();
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.get(&format!("{SERVICES}/v1.apps")).await).unwrap();
}

#[tokio::test]
async fn whoever_registers_a_group_serves_it_even_if_a_definition_does() {
    let (_server, client, extension) = behind(wardle).await;
    let definition = json!({"metadata": {"name": "fischers.wardle.example.com"}, "spec": {"group": GROUP, "scope": "Cluster",
        "names": {"plural": "fischers", "kind": "Fischer"}, "versions": [
            {"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    accepts(client.post(definitions, &definition).await).unwrap();
    eventually(PATIENCE, async || {
        let stored = accepts(client.get(&format!("{definitions}/fischers.wardle.example.com")).await)?;
        let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
            Ok(())
        } else {
            Err(Problem::new("not established"))
        }
    })
    .await
    .unwrap();
    assert_eq!(accepts(client.get(FISCHERS).await).unwrap(), fischers());
    assert!(!extension.received_for_others().is_empty());
    // Without the registration it is the definition's, and that registers itself.
    accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
    let list = eventually(PATIENCE, async || {
        let list = accepts(client.get(FISCHERS).await)?;
        if list["items"].as_array().is_some_and(Vec::is_empty) {
            Ok(list)
        } else {
            Err(Problem::new(list.to_string()))
        }
    })
    .await
    .unwrap();
    assert_eq!(list["kind"], "FischerList");
    says(&client, NAME, "True", "Local").await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_a_start_up_error() {
    let folder = TempDir::new().unwrap();
    let (one, two) = (Server::up().await.unwrap(), Server::up().await.unwrap());
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let cert = format!("--proxy-client-cert-file={}", one.data().join("front-proxy-client.crt").display());
    let key = format!("--proxy-client-key-file={}", two.data().join("front-proxy-client.key").display());
    let patience = Duration::from_secs(20);
    let (code, said) = run_to_end(&["serve", &data, &cert], patience).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("belong together"), "{said}");
    let (code, said) = run_to_end(&["serve", &data, "--secure-port=0", &cert, &key], patience).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--proxy-client-cert-file"), "{said}");
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(one.data().join(name)).unwrap().permissions().mode() & 0o777
    };
    for name in
        ["front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-client.crt", "front-proxy-client.key"]
    {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

/// An authority, and a client certificate that it signed.
fn front_proxy() -> (String, String, String) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let client = CertificateParams::default().signed_by(&key, &authority).unwrap();
    (authority.pem(), client.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart() {
    let folder = TempDir::new().unwrap();
    let (cert, key) = (folder.path().join("proxy.crt"), folder.path().join("proxy.key"));
    let ((_, old_cert, old_key), (authority, new_cert, new_key)) = (front_proxy(), front_proxy());
    fs::write(&cert, old_cert).unwrap();
    fs::write(&key, old_key).unwrap();
    let flags = [
        format!("--proxy-client-cert-file={}", cert.display()),
        format!("--proxy-client-key-file={}", key.display()),
    ];
    let server = Server::serve(&[&flags[0], &flags[1]]).await.unwrap();
    let client = server.client().unwrap();
    let extension = Extension::start("wardle.default.svc", Some(&authority), wardle).await.unwrap();
    place(&client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    says(&client, NAME, "False", "FailedDiscoveryCheck").await;
    assert!(extension.received().is_empty());
    // The key first: a pair that does not fit is not used.
    fs::write(&key, new_key).unwrap();
    fs::write(&cert, new_cert).unwrap();
    says(&client, NAME, "True", "Passed").await;
    accepts(client.get(FISCHERS).await).unwrap();
}

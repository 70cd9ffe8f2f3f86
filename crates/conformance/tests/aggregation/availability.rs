//! Availability of aggregated API servers: conditions of the APIService, and errors that affect no other request.

use conformance::aggregated_server::{AggregatedReply, AggregatedServer};
use conformance::server::free_port;
use conformance::{Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::both_servers::{
    FISCHERS, NAME, PATIENCE, ROOT, SERVICES, create_service, service, wait_for_condition,
    without_aggregated_discovery,
};
use crate::discovery::aggregated;

#[tokio::test]
async fn apiservice_conditions_name_the_missing_part_and_requests_get_503() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let (port, guard) = free_port().unwrap();
    let mut object = service(443, "");
    object["spec"]["insecureSkipTLSVerify"] = json!(true);
    accepts(client.post(SERVICES, &object).await).unwrap();
    let said = wait_for_condition(&client, NAME, "False", "ServiceNotFound").await;
    assert_eq!(said["message"], "service/wardle in \"default\" is not present");

    let refused = client.get(FISCHERS).await.unwrap();
    assert_eq!((refused.code, refused.text().as_str()), (503, "service unavailable\n"));
    assert_eq!(refused.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(refused.header("x-content-type-options"), "nosniff");
    assert_eq!(client.get(ROOT).await.unwrap().text(), "service unavailable\n");

    let spec = json!({"metadata": {"name": "wardle"}, "spec": {"ports": [{"name": "https", "port": 8443, "targetPort": 1}]}});
    accepts(client.post("/api/v1/namespaces/default/services", &spec).await).unwrap();
    let said = wait_for_condition(&client, NAME, "False", "ServicePortError").await;
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
    let said = wait_for_condition(&client, NAME, "False", "EndpointsNotFound").await;
    assert_eq!(said["message"], "cannot find endpointslices for service/wardle in \"default\"");

    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let mut slice = json!({"metadata": {"name": "wardle-1", "labels": {"kubernetes.io/service-name": "wardle"}}, "addressType": "IPv4",
        "ports": [{"name": "other", "port": port}], "endpoints": [{"addresses": [own_address()]}]});
    accepts(client.post(slices, &slice).await).unwrap();
    let said = wait_for_condition(&client, NAME, "False", "MissingEndpoints").await;
    assert_eq!(
        said["message"],
        "endpointslices for service/wardle in \"default\" have no addresses with port name \"https\""
    );

    drop(guard);
    slice["ports"][0]["name"] = json!("https");
    accepts(client.json(Method::PUT, &format!("{slices}/wardle-1"), &slice).await).unwrap();
    let said = wait_for_condition(&client, NAME, "False", "FailedDiscoveryCheck").await;
    let url = format!("https://{}:{port}{ROOT}", own_address());
    let words = format!(
        "failing or missing response from {url}: Get \"{url}\": dial tcp {}:{port}: connect: ",
        own_address()
    );
    assert!(said["message"].as_str().unwrap().starts_with(&words), "{said}");

    let page = client.get("/metrics").await.unwrap().text();
    assert!(page.contains(&format!("aggregator_unavailable_apiservice{{name=\"{NAME}\"}} 1")), "{page}");
    assert!(page.contains("aggregator_unavailable_apiservice{name=\"v1.apps\"} 0"), "{page}");
    // All other paths are served.
    accepts(client.get("/api/v1/namespaces").await).unwrap();
    accepts(client.get("/apis/apps/v1").await).unwrap();
}

/// An address of this machine that endpoints may have: not a loopback address. `None` if there is none.
fn own_address() -> String {
    let asked = || -> Option<std::net::IpAddr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        // No packet is sent: connecting a UDP socket only selects the local address.
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    asked()
        .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
        .map_or("192.0.2.1".to_owned(), |ip| ip.to_string())
}

#[tokio::test]
async fn no_request_is_sent_to_a_server_with_a_wrong_certificate() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    create_service(&client).await;
    let extension =
        AggregatedServer::start("wardle.default.svc", None, without_aggregated_discovery).await.unwrap();
    let other =
        AggregatedServer::start("wardle.default.svc", None, without_aggregated_discovery).await.unwrap();
    accepts(client.post(SERVICES, &service(extension.port, &other.ca_bundle)).await).unwrap();
    let said = wait_for_condition(&client, NAME, "False", "FailedDiscoveryCheck").await;
    assert!(
        said["message"]
            .as_str()
            .unwrap()
            .contains("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{said}"
    );
    assert_eq!(client.get(FISCHERS).await.unwrap().text(), "service unavailable\n");
    assert!(extension.received().is_empty());

    // A certificate for another name, signed by the right CA.
    let elsewhere =
        AggregatedServer::start("elsewhere.default.svc", None, without_aggregated_discovery).await.unwrap();
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
        let said = wait_for_condition(&client, NAME, "False", "FailedDiscoveryCheck").await;
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

    // insecureSkipTLSVerify accepts any certificate.
    let mut insecure = service(elsewhere.port, "");
    insecure["spec"]["insecureSkipTLSVerify"] = json!(true);
    change(insecure).await;
    wait_for_condition(&client, NAME, "True", "Passed").await;
    accepts(client.get(FISCHERS).await).unwrap();
}

#[tokio::test]
async fn a_server_that_hangs_delays_no_other_request() {
    let server = Server::serve(&["--request-timeout=2s"]).await.unwrap();
    let client = server.client().unwrap();
    create_service(&client).await;
    // It answers until it counts as available, and never again.
    let hangs = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = std::sync::Arc::clone(&hangs);
    let extension = AggregatedServer::start("wardle.default.svc", None, move |received| {
        if asked.load(std::sync::atomic::Ordering::SeqCst) {
            AggregatedReply::Hang
        } else {
            without_aggregated_discovery(received)
        }
    })
    .await
    .unwrap();
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    wait_for_condition(&client, NAME, "True", "Passed").await;
    hangs.store(true, std::sync::atomic::Ordering::SeqCst);

    let answer = client.get(&format!("{FISCHERS}/fritz")).await.unwrap();
    assert_eq!(answer.code, 504, "{}", answer.text());

    // A request to switch protocols does not wait either.
    let mut stream = client.tls_stream().await.unwrap();
    let request = format!(
        "POST {FISCHERS}/fritz/odd HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n",
        client.token().unwrap_or_default()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(&head, b"HTTP/1.1 504", "{}", String::from_utf8_lossy(&head));

    // A client that waited for the server would get a timeout.
    for _ in 0..20 {
        aggregated(&client).await;
        accepts(client.get("/apis").await).unwrap();
        accepts(client.get("/apis/apps/v1").await).unwrap();
    }
}

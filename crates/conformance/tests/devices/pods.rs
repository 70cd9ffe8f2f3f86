//! Pods get claims, devices and nodes; shared claims are released when no pod uses them.

use conformance::{Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::claims::{
    PODS, REFUSED, SOON, V1, allocation, claim, label, node, pod, request, template, wait_for_node,
    wait_for_refused_claim,
};

#[tokio::test]
async fn pods_get_claims_devices_and_nodes_and_admin_access_shares_allocated_devices() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    let class = json!({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    accepts(client.post("/apis/resource.k8s.io/v1/deviceclasses", &class).await).unwrap();
    node(&client, "one").await;
    let plain = json!({"metadata": {"name": "plain"}, "spec": {"spec": request(false)}});
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &plain).await).unwrap();
    let from = |template: &str| json!({"resourceClaimTemplateName": template});

    accepts(client.post(PODS, &pod("first", &from("plain"))).await).unwrap();
    assert_eq!(wait_for_node(&client, "first").await, Ok("one".to_owned()));
    let claim = allocation(&client, "first").await;
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/device"), Some(&json!("gpu-0")));
    assert_eq!(claim.pointer("/status/reservedFor/0/name"), Some(&json!("first")));
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "first");
    assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "gpu");

    // The only device is allocated; the second pod waits and reports why.
    accepts(client.post(PODS, &pod("second", &from("plain"))).await).unwrap();
    assert_eq!(
        wait_for_node(&client, "second").await,
        Err("0/1 nodes are available: 1 cannot allocate all claims.".to_owned())
    );
    // A claim with admin access gets the device anyway, and its result is marked.
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    accepts(client.post(&format!("{V1}/resourceclaimtemplates"), &template("admin")).await).unwrap();
    accepts(client.post(PODS, &pod("monitor", &from("admin"))).await).unwrap();
    assert_eq!(wait_for_node(&client, "monitor").await, Ok("one".to_owned()));
    let claim = allocation(&client, "monitor").await;
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/device"), Some(&json!("gpu-0")));
    assert_eq!(claim.pointer("/status/allocation/devices/results/0/adminAccess"), Some(&json!(true)));
    // The second pod is scheduled to another node.
    node(&client, "two").await;
    eventually(SOON, async || match wait_for_node(&client, "second").await {
        Ok(node) if node == "two" => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    // A finished pod releases its device, and its claim is deleted.
    let claim = allocation(&client, "first").await["metadata"]["name"].as_str().unwrap().to_owned();
    let headers = [("content-type", "application/merge-patch+json")];
    let body = serde_json::to_vec(&json!({"status": {"phase": "Succeeded"}})).unwrap();
    accepts(client.send(Method::PATCH, &format!("{PODS}/first/status"), &headers, body.into()).await)
        .unwrap();
    eventually(SOON, async || {
        rejects(client.get(&format!("{V1}/resourceclaims/{claim}")).await, 404, "NotFound")
    })
    .await
    .unwrap();
    accepts(client.post(PODS, &pod("third", &from("plain"))).await).unwrap();
    assert_eq!(wait_for_node(&client, "third").await, Ok("one".to_owned()));

    // The label is removed before a template becomes a claim: it is checked again.
    label(&client, json!({"resource.kubernetes.io/admin-access": null})).await;
    accepts(client.post(PODS, &pod("late", &from("admin"))).await).unwrap();
    let said = wait_for_refused_claim(&client).await;
    assert!(said["message"].as_str().unwrap().contains(REFUSED), "{said}");
}

#[tokio::test]
async fn a_shared_claim_stays_allocated_while_one_of_its_pods_runs() {
    let server = Server::serve(&["--enable-scheduler"]).await.unwrap();
    let client = server.client().unwrap();
    accepts(
        client
            .post("/apis/resource.k8s.io/v1/deviceclasses", &json!({"metadata": {"name": "gpu"}, "spec": {}}))
            .await,
    )
    .unwrap();
    node(&client, "one").await;
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("shared", false)).await).unwrap();
    for name in ["a", "b"] {
        accepts(client.post(PODS, &pod(name, &json!({"resourceClaimName": "shared"}))).await).unwrap();
        assert_eq!(wait_for_node(&client, name).await, Ok("one".to_owned()));
    }
    let path = format!("{V1}/resourceclaims/shared");
    let reserved = async || -> Result<Vec<String>, Problem> {
        let claim = accepts(client.get(&path).await)?;
        let all = claim.pointer("/status/reservedFor").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect())
    };
    assert_eq!(reserved().await.unwrap(), ["a", "b"]);
    let gone = async |pod: &str, left: &[&str]| {
        let path = format!("{PODS}/{pod}?gracePeriodSeconds=0");
        accepts(client.delete(&path).await).unwrap();
        eventually(SOON, async || {
            let now = reserved().await?;
            if now == left { Ok(()) } else { Err(Problem::new(format!("{now:?}"))) }
        })
        .await
        .unwrap();
    };
    gone("a", &["b"]).await;
    assert!(accepts(client.get(&path).await).unwrap().pointer("/status/allocation").is_some());
    gone("b", &[]).await;
    // No pod uses the claim: its devices are released, and the claim stays.
    eventually(SOON, async || {
        let claim = accepts(client.get(&path).await)?;
        let held =
            claim.pointer("/status/allocation").is_some() || claim.pointer("/metadata/finalizers").is_some();
        if held { Err(Problem::new(claim.to_string())) } else { Ok(()) }
    })
    .await
    .unwrap();
}

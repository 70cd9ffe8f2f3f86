//! NodeRestriction in `portcullis up`: the Node authorizer lets every node create pods and request tokens, and only this plugin
//! checks whose.

use std::time::Duration;

use conformance::client::{Credentials, Trust};
use conformance::{Client, Server, accepts, eventually, rejects};
use http::Method;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const NODES: &str = "/api/v1/nodes";
const PATIENCE: Duration = Duration::from_secs(20);

/// A client with the certificate of a node, signed by the server's CA.
fn node(server: &Server, name: &str) -> Client {
    let read = |file: &str| std::fs::read_to_string(server.data().join(file)).unwrap();
    let (authority, authority_key) = (read("ca.crt"), KeyPair::from_pem(&read("ca.key")).unwrap());
    let issuer = Issuer::from_ca_cert_pem(&authority, authority_key).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{name}"));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let credentials =
        Credentials::Certificate(certificate.pem().into_bytes(), key.serialize_pem().into_bytes());
    Client::new(&server.url, Trust::Authorities(authority.into_bytes()), credentials).unwrap()
}

fn pod(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
        "automountServiceAccountToken": false}})
}

/// A mirror pod as a node creates it for a static pod.
fn mirror(name: &str, node: &Value) -> Value {
    let mut pod = pod(name, node["metadata"]["name"].as_str().unwrap());
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "controller": true,
        "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}]);
    pod
}

async fn make_node(client: &Client, name: &str) -> Value {
    accepts(client.post(NODES, &json!({"metadata": {"name": name}})).await).unwrap()
}

#[tokio::test]
async fn a_node_may_create_only_its_own_mirror_pods() {
    let server = Server::up().await.unwrap();
    let admin = server.client().unwrap();
    let one = node(&server, "one");
    let own = make_node(&one, "one").await;
    let other = make_node(&admin, "two").await;
    accepts(one.post(PODS, &mirror("mirror", &own)).await).unwrap();
    accepts(one.delete(&format!("{PODS}/mirror?gracePeriodSeconds=0")).await).unwrap();

    // The attack: a pod with a service account, whose token the node could then request.
    let account = json!({"metadata": {"name": "powerful"}});
    accepts(admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await).unwrap();
    let mut attack = pod("attack", "one");
    attack["spec"]["serviceAccountName"] = json!("powerful");
    rejects(one.post(PODS, &attack).await, 403, "Forbidden").unwrap();
    let mut disguised = mirror("attack", &own);
    disguised["spec"]["serviceAccountName"] = json!("powerful");
    rejects(one.post(PODS, &disguised).await, 403, "Forbidden").unwrap();

    rejects(one.post(PODS, &pod("plain", "one")).await, 403, "Forbidden").unwrap();
    rejects(one.post(PODS, &mirror("elsewhere", &other)).await, 403, "Forbidden").unwrap();
    let mut unowned = mirror("unowned", &own);
    unowned["metadata"]["ownerReferences"] = json!([]);
    rejects(one.post(PODS, &unowned).await, 403, "Forbidden").unwrap();
    let mut reading = mirror("reading", &own);
    reading["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    rejects(one.post(PODS, &reading).await, 403, "Forbidden").unwrap();
    let listed = accepts(admin.get(PODS).await).unwrap();
    assert_eq!(listed["items"], json!([]), "a pod came through");
}

#[tokio::test]
async fn a_node_may_request_tokens_only_for_its_pods() {
    let server = Server::up().await.unwrap();
    let admin = server.client().unwrap();
    let [one, two] = ["one", "two"].map(|name| node(&server, name));
    make_node(&one, "one").await;
    make_node(&two, "two").await;
    let account = json!({"metadata": {"name": "worker"}});
    accepts(admin.post("/api/v1/namespaces/default/serviceaccounts", &account).await).unwrap();
    let mut placed = pod("placed", "one");
    placed["spec"]["serviceAccountName"] = json!("worker");
    placed["spec"]["volumes"] = json!([{"name": "token", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault"}}]}}]);
    let placed = accepts(admin.post(PODS, &placed).await).unwrap();

    let tokens = "/api/v1/namespaces/default/serviceaccounts/worker/token";
    let request = |audiences: Value, uid: &Value| {
        json!({"spec": {"audiences": audiences,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "placed", "uid": uid}}})
    };
    let uid = &placed["metadata"]["uid"];
    // The Node authorizer allows the request once it has seen this pod.
    eventually(PATIENCE, async || accepts(one.post(tokens, &request(json!([]), uid)).await)).await.unwrap();
    accepts(one.post(tokens, &request(json!(["vault"]), uid)).await).unwrap();
    // Rejected: the pod is on another node.
    rejects(two.post(tokens, &request(json!([]), uid)).await, 403, "Forbidden").unwrap();
    // Rejected: not bound to a pod, bound to another pod, or for an audience that the pod does not use.
    rejects(one.post(tokens, &json!({"spec": {"audiences": []}})).await, 403, "Forbidden").unwrap();
    rejects(one.post(tokens, &request(json!([]), &json!("other"))).await, 403, "Forbidden").unwrap();
    rejects(one.post(tokens, &request(json!(["bank"]), uid)).await, 403, "Forbidden").unwrap();
    rejects(one.post(tokens, &request(json!(["vault", "bank"]), uid)).await, 403, "Forbidden").unwrap();
}

#[tokio::test]
async fn a_node_cannot_attract_pods_or_change_other_nodes() {
    let server = Server::up().await.unwrap();
    let admin = server.client().unwrap();
    let one = node(&server, "one");
    make_node(&one, "one").await;
    make_node(&admin, "two").await;
    let merge = async |path: &str, patch: Value| {
        let body = patch.to_string().into();
        one.send(Method::PATCH, path, &[("content-type", "application/merge-patch+json")], body).await
    };
    let own = format!("{NODES}/one");
    accepts(
        merge(&own, json!({"metadata": {"labels": {"kubernetes.io/hostname": "one", "mine": "1"}}})).await,
    )
    .unwrap();
    for label in [
        "node-role.kubernetes.io/control-plane",
        "example.node-restriction.kubernetes.io/pci",
        "app.k8s.io/x",
    ] {
        rejects(merge(&own, json!({"metadata": {"labels": {label: "1"}}})).await, 403, "Forbidden").unwrap();
    }
    let taints = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    rejects(merge(&own, taints).await, 403, "Forbidden").unwrap();
    rejects(
        merge(&format!("{NODES}/two"), json!({"metadata": {"labels": {"mine": "1"}}})).await,
        403,
        "Forbidden",
    )
    .unwrap();

    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    accepts(one.post(leases, &json!({"metadata": {"name": "one"}})).await).unwrap();
    rejects(one.post(leases, &json!({"metadata": {"name": "two"}})).await, 403, "Forbidden").unwrap();
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    rejects(one.post(elsewhere, &json!({"metadata": {"name": "one"}})).await, 403, "Forbidden").unwrap();
    let drivers = "/apis/storage.k8s.io/v1/csinodes";
    rejects(
        one.post(drivers, &json!({"metadata": {"name": "two"}, "spec": {"drivers": []}})).await,
        403,
        "Forbidden",
    )
    .unwrap();
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let slice = |node: &str| {
        json!({"metadata": {"name": node}, "spec": {"driver": "d.example.com", "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}})
    };
    accepts(one.post(slices, &slice("one")).await).unwrap();
    rejects(one.post(slices, &slice("two")).await, 403, "Forbidden").unwrap();
}

//! Validation and compilation of objects with long lists take time and memory in proportion to the object.

use std::time::Duration;

use conformance::{Problem, Server, accepts, eventually, rejects};
use serde_json::{Value, json};

use crate::defaults::peak_kib;
use crate::while_alive;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas?dryRun=All";
const PATIENCE: Duration = Duration::from_mins(1);

/// By how much one request may raise the peak memory, in KiB.
const MUCH: u64 = 100 * 1024;

/// A quota whose spec has `count` invalid scopes or, in its selector, `count` requirements that do not fit its resources.
fn quota(count: usize, in_selector: bool) -> Value {
    let spec = if in_selector {
        let requirement = json!({"scopeName": "BestEffort", "operator": "Exists"});
        let hard = (0..count).map(|i| (format!("hugepages-{i}Ki"), json!("1")));
        json!({
            "hard": hard.collect::<serde_json::Map<_, _>>(),
            "scopeSelector": {"matchExpressions": vec![requirement; count]},
        })
    } else {
        json!({"scopes": (0..count).map(|i| ["x", "y", "z"][i % 3]).collect::<Vec<_>>()})
    };
    json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "many"}, "spec": spec})
}

#[tokio::test]
async fn errors_of_a_quota_with_many_scopes_take_little_memory() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for in_selector in [false, true] {
        // The ordinary case has the errors of kube-apiserver, each of them once.
        let status = rejects(client.post(QUOTAS, &quota(3, in_selector)).await, 422, "Invalid").unwrap();
        let causes = status["details"]["causes"].as_array().unwrap();
        let why = if in_selector { "unsupported scope applied to resource" } else { "unsupported scope" };
        assert_eq!(causes.len(), 1, "{status}");
        assert!(causes[0]["message"].as_str().unwrap().ends_with(why), "{status}");
        // Few enough that a server without the defense survives this.
        for count in [3000, 10_000] {
            let count = if in_selector { count / 10 } else { count };
            let before = peak_kib(&server);
            let answer =
                tokio::time::timeout(PATIENCE, client.post(QUOTAS, &quota(count, in_selector))).await;
            rejects(answer.expect("validation takes too long"), 422, "Invalid").unwrap();
            let grown = peak_kib(&server) - before;
            assert!(grown < MUCH, "{count} scopes take {grown} KiB");
        }
    }
}

/// A CRD with `count` served versions, of which the older half is deprecated.
fn crd(count: usize) -> Value {
    let version = |i: usize| {
        json!({
            "name": format!("v{}", i + 1), "served": true, "storage": i + 1 == count, "deprecated": 2 * i < count,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "many.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "many", "kind": "Many", "listKind": "ManyList", "singular": "many"},
            "versions": (0..count).map(version).collect::<Vec<_>>(),
        },
    })
}

#[tokio::test]
async fn crd_with_many_deprecated_versions_is_served_soon() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let is_served = async {
        accepts(client.post(CRDS, &crd(16_000)).await)?;
        let path = "/apis/example.com/v1/namespaces/default/many";
        eventually(PATIENCE, async || accepts(client.get(path).await)).await?;
        let warning = client.get(path).await?.header("warning").to_owned();
        let expected = "example.com/v1 Many is deprecated; use example.com/v16000 Many";
        assert!(warning.contains(expected), "{warning:?}");
        accepts(client.delete(&format!("{CRDS}/many.example.com")).await)?;
        Ok::<(), Problem>(())
    };
    let served = while_alive(&client, tokio::time::timeout(PATIENCE, is_served)).await;
    served.expect("the CRD takes too long").unwrap();
}

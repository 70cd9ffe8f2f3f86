//! Client libraries: kube-rs and the Python client create, list, watch and delete typed objects.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::path::Path;
use std::process::Command;

use conformance::Server;
use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

async fn client(server: &Server) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig().unwrap()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

#[tokio::test]
async fn kube_rs_creates_lists_watches_and_deletes() {
    let server = Server::up().await.unwrap();
    let client = client(&server).await;
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");

    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let wanted: Deployment = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}},
        },
    }))
    .unwrap();
    let made = deployments.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(made.spec.replicas, Some(1), "defaults are filled in");

    let listed = deployments.list(&ListParams::default().labels("app=web")).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let from = listed.metadata.resource_version.unwrap();

    let patch = serde_json::json!({"spec": {"replicas": 3}});
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    let mut scale = deployments.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.as_ref().unwrap().replicas, Some(3));
    scale.spec.as_mut().unwrap().replicas = Some(4);
    deployments.replace_scale("web", &PostParams::default(), &scale).await.unwrap();
    deployments.delete("web", &DeleteParams::background()).await.unwrap();

    let events = deployments.watch(&WatchParams::default(), &from).await.unwrap();
    let mut events = std::pin::pin!(events);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match events.next().await.unwrap().unwrap() {
            WatchEvent::Modified(object) => seen.push(format!("modified {}", object.spec.replicas.unwrap())),
            WatchEvent::Deleted(object) => seen.push(format!("deleted {}", object.metadata.name.unwrap())),
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["modified 3", "modified 4", "deleted web"]);

    let error = deployments.get("web").await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
}

#[tokio::test]
async fn kube_rs_streams_a_list_and_pages() {
    let server = Server::up().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    for number in 0..5 {
        let map = serde_json::json!({"metadata": {"name": format!("m{number}"), "labels": {"set": "x"}}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
    let mut page = ListParams::default().labels("set=x").limit(2);
    let mut names = Vec::new();
    loop {
        let listed = maps.list(&page).await.unwrap();
        names.extend(listed.items.into_iter().filter_map(|map| map.metadata.name));
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["m0", "m1", "m2", "m3", "m4"]);

    let events = maps.watch(&WatchParams::default().labels("set=x").initial_events(), "0").await.unwrap();
    let mut events = std::pin::pin!(events);
    let mut added = 0;
    loop {
        match events.next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => added += 1,
            WatchEvent::Bookmark(bookmark) => {
                assert_eq!(
                    bookmark.metadata.annotations.get("k8s.io/initial-events-end").map(String::as_str),
                    Some("true")
                );
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(added, 5);
    let deleted = maps
        .delete_collection(&DeleteParams::default(), &ListParams::default().labels("set=x"))
        .await
        .unwrap();
    assert!(deleted.left().is_some_and(|list| list.items.len() == 5));
}

#[tokio::test]
async fn the_python_client_creates_lists_watches_and_deletes() {
    run_python_client_script("round.py").await;
}

#[tokio::test]
async fn the_python_client_defines_and_uses_custom_resources() {
    run_python_client_script("custom.py").await;
}

async fn run_python_client_script(script: &str) {
    let Some(python) = env::var_os("PORTCULLIS_PYTHON") else {
        println!("left out: the Python client; `cargo xtask test` sets it up");
        return;
    };
    let server = Server::up().await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let output =
        Command::new(python).arg(script).env("KUBECONFIG", server.kubeconfig().unwrap()).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.ends_with("the round is complete\n"), "{said}");
}

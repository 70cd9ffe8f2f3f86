//! An operator written with kube-rs: a CRD, finalizers, dependents and status.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use conformance::Server;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const FINALIZER: &str = "greetings.example.com/cleanup";
const PATIENCE: Duration = Duration::from_secs(30);

async fn client(server: &Server) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig().unwrap()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

fn crd() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "greetings.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "greetings", "kind": "Greeting", "shortNames": ["gr"]},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "spec": {
                            "type": "object",
                            "required": ["to"],
                            "properties": {
                                "to": {"type": "string", "minLength": 1},
                                "words": {"type": "string", "default": "hello"},
                            },
                            "x-kubernetes-validations": [{"rule": "self.to != 'nobody'", "message": "somebody must be there"}],
                        },
                        "status": {"type": "object", "properties": {"said": {"type": "string"}, "observedGeneration": {"type": "integer"}}},
                    },
                }},
            }],
        },
    }))
    .unwrap()
}

fn greetings(client: &kube::Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("example.com", "v1", "Greeting"),
        "greetings",
    );
    Api::default_namespaced_with(client.clone(), &kind)
}

/// Brings one greeting to its desired state.
async fn reconcile(client: &kube::Client, greeting: DynamicObject) {
    let greetings = greetings(client);
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let name = greeting.metadata.name.clone().unwrap();
    let finalizers = greeting.metadata.finalizers.clone().unwrap_or_default();
    if greeting.metadata.deletion_timestamp.is_some() {
        if finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            let _ = maps.delete(&name, &DeleteParams::default()).await;
            let patch = json!({"metadata": {"finalizers": null}});
            greetings.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
        return;
    }
    if finalizers.is_empty() {
        let patch = json!({"metadata": {"finalizers": [FINALIZER]}});
        greetings.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let spec = greeting.data.get("spec").cloned().unwrap_or_default();
    let said = format!("{}, {}", text(&spec, "words"), text(&spec, "to"));
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": name}, "data": {"said": said}})).unwrap();
    let apply = PatchParams::apply("greeter.example.com").force();
    maps.patch(&name, &apply, &Patch::Apply(&map)).await.unwrap();
    let status = json!({"status": {"said": said, "observedGeneration": greeting.metadata.generation}});
    if greeting.data.pointer("/status/said").and_then(Value::as_str) != Some(&said) {
        greetings.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

fn text<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_operator_reconciles_until_its_objects_and_crd_are_deleted() {
    let server = Server::up().await.unwrap();
    let client = client(&server).await;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.create(&PostParams::default(), &crd()).await.unwrap();
    wait_until("the CRD is established", async || {
        let status = crds.get("greetings.example.com").await.unwrap().status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
    .await;

    // A client that has seen the condition Established can use the CRD at once.
    let greetings = greetings(&client);
    let listed = greetings.list(&ListParams::default()).await.unwrap();
    let from = listed.metadata.resource_version.unwrap();
    let operator = tokio::spawn({
        let client = client.clone();
        async move {
            let api = self::greetings(&client);
            let events = api.watch(&WatchParams::default(), &from).await.unwrap();
            let mut events = std::pin::pin!(events);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(greeting) | WatchEvent::Modified(greeting) = event {
                    reconcile(&client, greeting).await;
                }
            }
        }
    });

    let new = |name: &str, spec: Value| -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "example.com/v1", "kind": "Greeting", "metadata": {"name": name}, "spec": spec}))
            .unwrap()
    };
    let refused = greetings.create(&PostParams::default(), &new("none", json!({"to": "nobody"}))).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("{refused:?}") };
    assert_eq!(status.code, 422);
    assert_eq!(
        status.message,
        "Greeting.example.com \"none\" is invalid: spec: Invalid value: somebody must be there"
    );
    let made = greetings.create(&PostParams::default(), &new("world", json!({"to": "world"}))).await.unwrap();
    assert_eq!(made.data.pointer("/spec/words"), Some(&json!("hello")), "defaults are filled in");

    let said = async |name: &str| {
        let greeting = greetings.get(name).await.unwrap();
        greeting.data.pointer("/status/said").and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    wait_until("the greeting was said", async || said("world").await == "hello, world").await;
    let patch = json!({"spec": {"words": "good night"}});
    greetings.patch("world", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    wait_until("the change was said", async || said("world").await == "good night, world").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert_eq!(maps.get("world").await.unwrap().data.unwrap()["said"], "good night, world");

    // Deleting the CRD deletes its objects, which wait for the operator's finalizer.
    crds.delete("greetings.example.com", &DeleteParams::default()).await.unwrap();
    wait_until("the CRD is gone", async || crds.get_opt("greetings.example.com").await.unwrap().is_none())
        .await;
    assert!(maps.get_opt("world").await.unwrap().is_none(), "the operator cleaned up");
    let error = greetings.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
    operator.abort();
}

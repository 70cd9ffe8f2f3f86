//! A custom resource that has the group and plural name of a built-in one: each is read from its own directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::plugins::resource_quota;
use admission::{ClusterView as _, RestMapping};
use api::{GroupResource, GroupVersionKind};
use authn::InternalIdentity;
use value::{Value, json};

use crate::Ephemeral;
use crate::client::LoopbackClient;
use crate::state::State;

const GROUP: &str = "coordination.k8s.io";

/// Built-in Leases are of version `v1`, custom ones of `v9`.
const CRD: &str = r#"{"metadata":{"name":"leases.coordination.k8s.io",
    "annotations":{"api-approved.kubernetes.io":"unapproved, for a test"}},
    "spec":{"group":"coordination.k8s.io","scope":"Namespaced",
    "names":{"plural":"leases","singular":"lease","kind":"Lease","listKind":"LeaseList"},
    "versions":[{"name":"v9","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
    "x-kubernetes-preserve-unknown-fields":true}}}]}}"#;

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn path(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/leases")
}

fn served(version: &str) -> RestMapping {
    RestMapping {
        resource: GroupResource::new(GROUP, "leases"),
        kind: GroupVersionKind::new(GROUP, version, "Lease"),
        namespaced: true,
    }
}

/// Creates one built-in Lease and three custom ones; a Lease `shared` exists in both directories.
async fn start() -> (Ephemeral, Arc<State>, LoopbackClient) {
    let server = Ephemeral::start().await.unwrap();
    let state = Arc::clone(server.running.state());
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &parse(CRD)).await.unwrap();
    let lease = |name: &str| {
        parse(&format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"holderIdentity":"built-in"}}}}"#))
    };
    client.create(&path("v1"), &lease("shared")).await.unwrap();
    for name in ["shared", "second", "third"] {
        let lease = parse(&format!(
            r#"{{"apiVersion":"{GROUP}/v9","kind":"Lease","metadata":{{"name":"{name}"}},"spec":{{"holderIdentity":"custom"}}}}"#
        ));
        let deadline = Instant::now() + Duration::from_secs(30);
        while let Err(status) = client.create(&path("v9"), &lease).await {
            assert!(Instant::now() < deadline, "{status}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    (server, state, client)
}

fn holder(lease: &Value) -> &str {
    lease.str_at(&["spec", "holderIdentity"]).unwrap()
}

#[tokio::test]
async fn policy_parameters_are_read_from_the_storage_directory_of_their_version() {
    let (server, state, client) = start().await;
    for (version, count, by) in [("v1", 1, "built-in"), ("v9", 3, "custom")] {
        let found = state.rest_mapping(&GroupVersionKind::new(GROUP, version, "Lease"));
        assert_eq!(found, Some(served(version)));
        let one = state.read_as(&served(version), "default", "shared").await.unwrap().unwrap();
        assert_eq!(holder(&one), by);
        let all = state.list_of(&served(version), "default");
        assert_eq!(all.iter().map(|lease| holder(lease)).collect::<Vec<_>>(), vec![by; count]);
        assert_eq!(state.names_of(&served(version), "default").len(), count);
    }
    assert_eq!(holder(&state.object(GROUP, "leases", "default", "shared").unwrap()), "built-in");
    assert!(state.read_as(&served("v1"), "default", "second").await.unwrap().is_none());

    // A policy reads its parameters from the directory of their version, too.
    for version in ["v1", "v9"] {
        let policy = parse(&format!(
            r#"{{"metadata":{{"name":"by-{version}"}},"spec":{{"paramKind":{{"apiVersion":"{GROUP}/{version}","kind":"Lease"}},
            "matchConstraints":{{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}}]}},
            "validations":[{{"expression":"params.spec.holderIdentity == object.metadata.name || object.metadata.name == 'other'","reason":"Forbidden"}}]}}}}"#
        ));
        let registration = "/apis/admissionregistration.k8s.io/v1";
        client.create(&format!("{registration}/validatingadmissionpolicies"), &policy).await.unwrap();
        let binding = parse(&format!(
            r#"{{"metadata":{{"name":"by-{version}"}},"spec":{{"policyName":"by-{version}","validationActions":["Deny"],
            "paramRef":{{"name":"shared","namespace":"default","parameterNotFoundAction":"Deny"}}}}}}"#
        ));
        let bindings = format!("{registration}/validatingadmissionpolicybindings");
        client.create(&bindings, &binding).await.unwrap();
        let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
        let map = |name: &str| parse(&format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
        let (own, other) = if version == "v1" { ("built-in", "custom") } else { ("custom", "built-in") };
        client.create(maps, &map(own)).await.unwrap();
        client.create(maps, &map("other")).await.unwrap();
        let refused = client.create(maps, &map(other)).await.unwrap_err();
        assert!(refused.message().contains(&format!("'by-{version}'")), "{refused}");
        client.delete(&format!("{bindings}/by-{version}"), &parse("{}")).await.unwrap();
    }
    server.running.stop().await;
}

#[tokio::test]
async fn a_quota_counts_objects_of_both_storage_directories_once() {
    let (server, state, _) = start().await;
    let quota = parse(
        r#"{"metadata":{"name":"q","namespace":"default"},"spec":{"hard":{"count/leases.coordination.k8s.io":"10"}}}"#,
    );
    let used = |resources: &[RestMapping]| {
        let status = resource_quota::recount(&quota, resources, &*state, 0).unwrap();
        status.str_at(&["used", "count/leases.coordination.k8s.io"]).unwrap().to_owned()
    };
    assert_eq!(used(&[served("v1")]), "1");
    assert_eq!(used(&[served("v9")]), "3");
    let kinds = state.apis.catalog.stored_in_preferred_version();
    let all: Vec<RestMapping> =
        kinds.iter().filter(|kind| kind.namespaced).map(|kind| super::rest_mapping(kind)).collect();
    assert_eq!(used(&all), "4");
    server.running.stop().await;
}

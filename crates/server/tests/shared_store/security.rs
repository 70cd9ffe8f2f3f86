//! Decisions about permissions with two servers.

use std::sync::Arc;

use authn::InternalIdentity;
use server::client::LoopbackClient;

use crate::servers::{Servers, parse};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

fn role(name: &str, group: &str, resource: &str, verb: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"rules":[{{"apiGroups":["{group}"],"resources":["{resource}"],"verbs":["{verb}"]}}]}}"#
    )
}

fn binding(role: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{role}"}},"roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"{role}"}},"subjects":[{{"kind":"ServiceAccount","name":"granter","namespace":"default"}}]}}"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_that_the_other_server_has_revoked_cannot_be_granted() {
    let servers = Servers::start().await;
    for role in [
        role("authors", "rbac.authorization.k8s.io", "roles", "create"),
        role("readers", "", "secrets", "get"),
    ] {
        servers.create_known(ROLES, &role).await;
    }
    for role in ["authors", "readers"] {
        servers.create_known(BINDINGS, &binding(role)).await;
    }
    let identity = InternalIdentity::ServiceAccount { namespace: "default", name: "granter" };
    let granter = LoopbackClient::new(Arc::clone(servers.running[1].running.state()), identity);
    granter.create(ROLES, &parse(&role("allowed", "", "secrets", "get"))).await.unwrap();
    servers.delete(&format!("{BINDINGS}/readers")).await;
    let refused = granter.create(ROLES, &parse(&role("refused", "", "secrets", "get"))).await.unwrap_err();
    assert_eq!(refused.code(), 403, "{refused}");
    assert!(
        refused.message().contains("attempting to grant RBAC permissions not currently held"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_access_to_devices_is_refused_after_the_other_server_has_removed_the_label() {
    let servers = Servers::start().await;
    let label = "resource.kubernetes.io/admin-access";
    let namespace = format!(r#"{{"metadata":{{"name":"n","labels":{{"{label}":"true"}}}}}}"#);
    servers.create_known("/api/v1/namespaces", &namespace).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims";
    let claim = |name: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"c","adminAccess":true}}}}]}}}}}}"#
        ))
    };
    servers.two.create(claims, &claim("allowed")).await.unwrap();
    servers
        .patch("/api/v1/namespaces/n", &format!(r#"{{"metadata":{{"labels":{{"{label}":null}}}}}}"#))
        .await;
    let refused = servers.two.create(claims, &claim("refused")).await.unwrap_err();
    assert_eq!(refused.code(), 422, "{refused}");
    assert!(refused.message().contains("adminAccess"), "{refused}");
}

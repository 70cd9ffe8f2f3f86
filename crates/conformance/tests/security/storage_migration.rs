//! Migration of a database of format 1 that its last version wrote. It has objects of most built-in kinds, custom resources, and
//! custom resources that were stored among built-in objects.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use conformance::{Server, accepts, eventually, rejects};
use flate2::read::GzDecoder;
use serde_json::json;
use tempfile::TempDir;

use crate::storage_keys::{CRDS, PATIENCE, condition};

/// The database does not get younger.
const LONG_EVENTS: &str = "--event-ttl=876000h";

/// The path where a server expects the database.
fn unpack(root: &Path) {
    let data = root.join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).unwrap();
    let mut bytes = Vec::new();
    let packed = include_bytes!("store-format-1.redb.gz");
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    fs::write(data.join("store.redb"), bytes).unwrap();
}

/// Every collection with an object named `a`, in the cluster or in the namespace `demo`.
const NAMESPACED: &[&str] = &[
    "/api/v1 configmaps secrets serviceaccounts pods services endpoints limitranges resourcequotas podtemplates replicationcontrollers persistentvolumeclaims events",
    "/apis/apps/v1 deployments replicasets daemonsets statefulsets controllerrevisions",
    "/apis/batch/v1 jobs cronjobs",
    "/apis/autoscaling/v2 horizontalpodautoscalers",
    "/apis/autoscaling/v1 horizontalpodautoscalers",
    "/apis/networking.k8s.io/v1 ingresses networkpolicies",
    "/apis/policy/v1 poddisruptionbudgets",
    "/apis/discovery.k8s.io/v1 endpointslices",
    "/apis/coordination.k8s.io/v1 leases",
    "/apis/rbac.authorization.k8s.io/v1 roles rolebindings",
    "/apis/storage.k8s.io/v1 csistoragecapacities",
    "/apis/resource.k8s.io/v1 resourceclaims resourceclaimtemplates",
    "/apis/events.k8s.io/v1 events",
    "/apis/example.com/v1 widgets",
    "/apis/example.com/v2 widgets",
];
const CLUSTER: &[&str] = &[
    "/api/v1 nodes persistentvolumes",
    "/apis/networking.k8s.io/v1 ingressclasses",
    "/apis/certificates.k8s.io/v1 certificatesigningrequests",
    "/apis/scheduling.k8s.io/v1 priorityclasses",
    "/apis/node.k8s.io/v1 runtimeclasses",
    "/apis/storage.k8s.io/v1 storageclasses csidrivers csinodes volumeattachments volumeattributesclasses",
    "/apis/admissionregistration.k8s.io/v1 validatingadmissionpolicies validatingadmissionpolicybindings mutatingadmissionpolicies mutatingadmissionpolicybindings validatingwebhookconfigurations mutatingwebhookconfigurations",
    "/apis/resource.k8s.io/v1 deviceclasses resourceslices",
    "/apis/flowcontrol.apiserver.k8s.io/v1 flowschemas prioritylevelconfigurations",
    "/apis/example.com/v1 globes",
];

fn paths() -> Vec<String> {
    let mut all = Vec::new();
    for (rows, namespace) in [(NAMESPACED, "/namespaces/demo"), (CLUSTER, "")] {
        for row in rows {
            let (base, plurals) = row.split_once(' ').unwrap();
            all.extend(plurals.split(' ').map(|plural| format!("{base}{namespace}/{plural}/a")));
        }
    }
    all
}

#[tokio::test]
async fn a_format_1_database_is_migrated_and_custom_resources_stay_custom_resources() {
    let root = TempDir::new().unwrap();
    unpack(root.path());
    // The files of an interrupted migration: the second name of the old file, and a part of the new one.
    let data = root.path().join("data");
    fs::hard_link(data.join("store.redb"), data.join("store.redb.v1")).unwrap();
    fs::write(data.join("store.redb.new"), [0; 5000]).unwrap();
    let mut server = Server::serve_at(root.path(), &[LONG_EVENTS]).await.unwrap();
    let admin = server.client().unwrap();
    let (alice, bob) = (admin.as_token(Some("alicetoken")), admin.as_token(Some("bobtoken")));
    assert!(data.join("store.redb.v1").exists() && !data.join("store.redb.new").exists());
    let found = paths();
    assert_eq!(found.len(), 56);
    for path in &found {
        let object = accepts(admin.get(path).await).unwrap();
        assert_eq!(object["metadata"]["name"], "a", "{path}");
    }
    // Both API groups for events show both events.
    for path in ["/api/v1", "/apis/events.k8s.io/v1"] {
        for name in ["a", "b"] {
            accepts(admin.get(&format!("{path}/namespaces/demo/events/{name}")).await).unwrap();
        }
    }
    let address = accepts(admin.get("/api/v1/namespaces/demo/services/a").await).unwrap();
    assert_eq!(address["spec"]["clusterIP"], "10.0.0.77");
    accepts(admin.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.remote.example.com").await).unwrap();
    // Roles, policies and quotas are active.
    let maps = "/api/v1/namespaces/demo/configmaps";
    accepts(alice.get(maps).await).unwrap();
    rejects(alice.get("/api/v1/namespaces/demo/secrets").await, 403, "Forbidden").unwrap();
    rejects(admin.post(maps, &json!({"metadata": {"name": "forbidden"}})).await, 422, "Invalid").unwrap();
    accepts(admin.post(maps, &json!({"metadata": {"name": "b"}})).await).unwrap();

    // Custom resources in built-in groups are served as custom resources.
    rejects(bob.get("/api/v1/secrets").await, 403, "Forbidden").unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io";
    accepts(admin.get(&format!("{rbac}/v9/namespaces/demo/clusterrolebindings/evil")).await).unwrap();
    rejects(admin.get(&format!("{rbac}/v1/clusterrolebindings/evil")).await, 404, "NotFound").unwrap();
    let bindings = accepts(admin.get(&format!("{rbac}/v1/clusterrolebindings")).await).unwrap();
    let names = bindings["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]);
    assert!(names.clone().any(|name| name == "alice-reads") && !names.clone().any(|name| name == "evil"));
    let all = accepts(admin.get(&format!("{rbac}/v1/clusterroles/cluster-admin")).await).unwrap();
    assert_eq!(all["rules"].as_array().unwrap().len(), 2);
    for (path, name) in [
        ("/apis/certificates.k8s.io/VERSION/certificatesigningrequests", "forged"),
        ("/apis/networking.k8s.io/VERSION/namespaces/demo/networkpolicies", "hidden"),
    ] {
        accepts(admin.get(&format!("{}/{name}", path.replace("VERSION", "v9"))).await).unwrap();
        let built_in = admin.get(&format!("{}/{name}", path.replace("VERSION", "v1"))).await;
        rejects(built_in, 404, "NotFound").unwrap();
    }
    // Objects of unknown resources are left out and reported.
    for path in [
        "/apis/coordination.k8s.io/v1/namespaces/demo/leases/orphan",
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.fake.example.com",
    ] {
        rejects(admin.get(path).await, 404, "NotFound").unwrap();
    }
    let log = server.log();
    for key in [
        "/registry/coordination.k8s.io/leases/demo/orphan",
        "/registry/apiregistration.k8s.io/apiservices/v1.fake.example.com",
    ] {
        assert!(log.contains(key), "{log}");
    }
    assert!(log.contains("left_out=2"), "{log}");

    // A stored CRD with the storage of a built-in resource is not served, and its deletion deletes nothing else.
    let overlapping = format!("{CRDS}/apiservices.apiregistration.k8s.io");
    eventually(PATIENCE, async || {
        let stored = accepts(admin.get(&overlapping).await)?;
        let established = condition(&stored, "Established").unwrap_or_default();
        if established["status"] == "False" && established["reason"] == "OverlappingBuiltInResource" {
            return Ok(());
        }
        Err(conformance::Problem::new(format!("{}", stored["status"])))
    })
    .await
    .unwrap();
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let unserved = admin.get("/apis/apiregistration.k8s.io/v9/apiservices").await.unwrap();
    assert_eq!(unserved.code, 404);
    accepts(admin.delete(&overlapping).await).unwrap();
    eventually(PATIENCE, async || rejects(admin.get(&overlapping).await, 404, "NotFound").map(drop))
        .await
        .unwrap();
    accepts(admin.get(&format!("{services}/v1.remote.example.com")).await).unwrap();
    accepts(admin.get(&format!("{services}/v1.apps")).await).unwrap();

    // The next start opens the new format.
    server.terminate().unwrap();
    server.wait(PATIENCE).await.unwrap();
    drop(server);
    let server = Server::serve_at(root.path(), &[LONG_EVENTS]).await.unwrap();
    let admin = server.client().unwrap();
    accepts(admin.get(&format!("{maps}/b")).await).unwrap();
    accepts(admin.get("/apis/example.com/v1/namespaces/demo/widgets/b").await).unwrap();
    assert!(!server.log().contains("migrat"), "{}", server.log());
}

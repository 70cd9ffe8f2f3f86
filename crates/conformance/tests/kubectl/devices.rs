//! The workflow of KEP-5018 for an administrator: label, claim, template, and a pod with admin access to a device that is in use.

use crate::session::Session;

const SETUP: &str = r#"
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: NS-gpu}
spec:
  selectors: [{cel: {expression: "device.driver == 'NS.example.com'"}}]
---
apiVersion: v1
kind: Node
metadata: {name: NS-node}
status:
  allocatable: {cpu: "4", memory: 8Gi, pods: "10"}
  capacity: {cpu: "4", memory: 8Gi, pods: "10"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: NS-slice}
spec:
  driver: NS.example.com
  nodeName: NS-node
  pool: {name: NS-node, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: user}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: NS-gpu}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: user}]
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
"#;

const ADMIN: &str = r"
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: monitor}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: NS-gpu, adminAccess: true}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: monitor}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: monitor}]
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
";

#[tokio::test]
async fn an_administrator_gets_access_to_a_device_in_use() {
    let session = Session::start_with(&["--enable-scheduler"]).await;
    let ns = session.namespace.clone();
    let write = |name: &str, text: &str| {
        let path = session.folder.path().join(name);
        std::fs::write(&path, text.replace("NS", &ns)).unwrap();
        path.display().to_string()
    };
    let (setup, admin) = (write("setup.yaml", SETUP), write("admin.yaml", ADMIN));
    session.ok(&["apply", "-f", &setup]);
    session.ok(&["taint", "node", &format!("{ns}-node"), "node.kubernetes.io/not-ready:NoSchedule-"]);
    let placed = |pod: &str| {
        let node = ["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"];
        session.eventually(&node, |said| said.out == format!("{ns}-node"));
    };
    placed("user");

    // Rejected in a namespace without the label.
    let refused = session.run(&["apply", "-f", &admin]);
    assert_ne!(refused.code, 0);
    let words = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    assert!(refused.err.contains(words), "{}", refused.err);
    session.ok(&["delete", "pod", "monitor", "--ignore-not-found", "--grace-period=0", "--force"]);

    session.ok(&["label", "namespace", &ns, "resource.kubernetes.io/admin-access=true"]);
    session.ok(&["apply", "-f", &admin]);
    placed("monitor");
    let device = "jsonpath={range .items[*]}{.status.allocation.devices.results[0].device} {.status.allocation.devices.results[0].adminAccess}{\"\\n\"}{end}";
    let results = session.ok(&["get", "resourceclaims", "-o", device]);
    let mut lines: Vec<&str> = results.lines().map(str::trim).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["gpu-0", "gpu-0 true"]);
    let shown = session.ok(&["get", "resourceclaims"]);
    assert_eq!(shown.matches("allocated,reserved").count(), 2, "{shown}");
    assert!(!shown.contains("ADMIN"), "{shown}");
    let wide = session.ok(&["get", "resourceclaims", "-o", "wide"]);
    assert!(wide.lines().next().unwrap().ends_with("ADMIN ACCESS"), "{wide}");
    for (pod, access) in [("user-", "false"), ("monitor-", "true")] {
        let line = wide.lines().find(|line| line.starts_with(pod)).unwrap();
        assert_eq!(line.split_whitespace().last(), Some(access), "{wide}");
    }

    // The claims are deleted with their pods.
    session.ok(&["delete", "pod", "user", "monitor", "--grace-period=0", "--force"]);
    session.eventually(&["get", "resourceclaims", "-o", "name"], |said| said.out.trim().is_empty());
}

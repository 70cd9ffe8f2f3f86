//! A real kube-controller-manager beside this server: it leads, and the built-in controllers stand back.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use conformance::server::{free_port, kubernetes_program};
use conformance::{EtcdProcess, Problem, Server, accepts, eventually};
use serde_json::{Value, json};

use super::PATIENCE;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
const APPS: &str = "/apis/apps/v1/namespaces/default";
/// Logged when the built-in controllers stop because another component has them.
const STOPPED: &str = "stopping a group of controllers";

struct ControllerManager(Child);

impl Drop for ControllerManager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts kube-controller-manager as a client of this server; `None` if such tests are left out.
fn start(server: &Server) -> Option<ControllerManager> {
    let program = kubernetes_program("kube-controller-manager").unwrap()?;
    let (port, guard) = free_port().unwrap();
    drop(guard);
    let child = Command::new(program)
        .arg("--kubeconfig")
        .arg(server.kubeconfig().unwrap())
        .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Some(ControllerManager(child))
}

/// Waits until the server has logged this message.
async fn logs(server: &Server, message: &str) {
    eventually(PATIENCE, async || {
        let log = server.log();
        if log.contains(message) {
            Ok(())
        } else {
            Err(Problem::new(format!("`{message}` is missing in: {log}")))
        }
    })
    .await
    .unwrap();
}

/// How long a kube-controller-manager may take to lead after it was started.
const LEADS_WITHIN: Duration = Duration::from_secs(20);

async fn check_progress(server: &Server) {
    let client = server.client().unwrap();
    let begin = Instant::now();
    eventually(LEADS_WITHIN, async || {
        let lease = accepts(client.get(LEASE).await)?;
        let holder = lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
        if holder.is_empty() { Err(Problem::new("kube-controller-manager does not lead")) } else { Ok(()) }
    })
    .await
    .unwrap();
    println!("kube-controller-manager leads after {:?}", begin.elapsed());
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1.29"}]}},
        },
    });
    accepts(client.post(&format!("{APPS}/deployments"), &deployment).await).unwrap();
    eventually(PATIENCE, async || {
        let web = accepts(client.get(&format!("{APPS}/deployments/web")).await)?;
        let replicas = web.pointer("/status/replicas").and_then(Value::as_u64);
        if replicas == Some(2) {
            Ok(())
        } else {
            Err(Problem::new(format!("no progress: {}", web["status"])))
        }
    })
    .await
    .unwrap();
    let pods = accepts(client.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dweb").await).unwrap();
    assert_eq!(pods["items"].as_array().unwrap().len(), 2);
}

/// The built-in controllers run, and stop when kube-controller-manager leads.
async fn check_leadership(server: &Server) {
    logs(server, "starting a group of controllers").await;
    let Some(_manager) = start(server) else { return };
    check_progress(server).await;
    logs(server, STOPPED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_controller_manager_leads_beside_a_server_on_etcd() {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    let server = Server::serve(&[&format!("--etcd-servers={}", etcd.url)]).await.unwrap();
    check_leadership(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_controller_manager_leads_beside_a_server_on_the_embedded_store() {
    let server = Server::serve(&[]).await.unwrap();
    check_leadership(&server).await;
}

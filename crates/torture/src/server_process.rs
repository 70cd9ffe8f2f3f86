//! A `portcullis serve` process on etcd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use conformance::client::{Credentials, Trust};
use conformance::server::{ADMIN_TOKEN, TOKENS, free_port, signing_key, write_private};
use conformance::{Client, Problem, Result};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::keys::MASTER_LEASES;
use crate::process::Process;

/// A key in `data` of a ConfigMap that the static policy of all servers denies.
pub const FORBIDDEN_DATA: &str = "forbidden";

const POLICY: &str = r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: forbidden.static.k8s.io
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["configmaps"]
  validations:
  - expression: "!has(object.data) || !('forbidden' in object.data)"
    message: "forbidden data"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: forbidden-binding.static.k8s.io
spec:
  policyName: forbidden.static.k8s.io
  validationActions: [Deny]
"#;

/// The files that all servers share: tokens, the signing key and the static policy.
#[derive(Debug)]
pub struct ServerFiles {
    folder: PathBuf,
}

impl ServerFiles {
    pub fn write(folder: &Path) -> Result<ServerFiles> {
        write_private(&folder.join("tokens.csv"), TOKENS)?;
        write_private(&folder.join("sa.key"), &signing_key()?)?;
        let manifests = folder.join("manifests");
        write_private(&manifests.join("policy.yaml"), POLICY)?;
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{
                "name": "ValidatingAdmissionPolicy",
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "ValidatingAdmissionPolicyConfiguration",
                    "staticManifestsDir": manifests,
                },
            }],
        });
        write_private(&folder.join("admission.json"), &configuration.to_string())?;
        Ok(ServerFiles { folder: folder.to_owned() })
    }

    fn flag(&self, flag: &str, file: &str) -> String {
        format!("--{flag}={}", self.folder.join(file).display())
    }
}

/// One server. Its process may end and be started again, at the same address.
#[derive(Debug)]
pub struct ServerProcess {
    index: usize,
    port: u16,
    command: Vec<String>,
    log: PathBuf,
    environment: Vec<(String, String)>,
    binary: PathBuf,
    pub process: Process,
}

impl ServerProcess {
    /// A server that is not started. `etcd` are the URLs of its links to the members.
    pub fn new(
        index: usize,
        binary: &Path,
        files: &ServerFiles,
        etcd: &[String],
        environment: &[(String, String)],
    ) -> Result<ServerProcess> {
        let (port, port_guard) = free_port()?;
        drop(port_guard);
        let certificates = files.folder.join(format!("certificates-{index}"));
        fs::create_dir_all(&certificates).map_err(|e| Problem::at("a folder", e))?;
        let command = vec![
            "serve".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--advertise-address={}", advertised(index)),
            format!("--etcd-servers={}", etcd.join(",")),
            "--etcd-compaction-interval=30s".to_owned(),
            "--enable-controllers".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24,fd00:10::/112".to_owned(),
            // Few ports, so that servers often want the same one.
            "--service-node-port-range=30000-30063".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            files.flag("service-account-signing-key-file", "sa.key"),
            files.flag("service-account-key-file", "sa.key"),
            files.flag("token-auth-file", "tokens.csv"),
            files.flag("admission-control-config-file", "admission.json"),
            format!("--cert-dir={}", certificates.display()),
        ];
        Ok(ServerProcess {
            index,
            port,
            command,
            log: files.folder.join(format!("server-{index}.log")),
            environment: environment.to_vec(),
            binary: binary.to_owned(),
            process: Process::default(),
        })
    }

    /// The key that this server keeps in etcd while it runs.
    pub fn master_lease(&self) -> String {
        format!("{MASTER_LEASES}{}", advertised(self.index))
    }

    pub fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(&self.command).envs(self.environment.iter().cloned());
        self.process.start(&mut command, &self.log)
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

/// An address for documentation (RFC 5737), because endpoints cannot have loopback addresses.
fn advertised(index: usize) -> String {
    format!("192.0.2.{}", index + 1)
}

/// The administrator's client of a server.
pub fn client_of(url: &str) -> Result<Client> {
    Client::new(url, Trust::Anything, Credentials::Token(ADMIN_TOKEN.to_owned()))
}

pub async fn wait_until_ready(url: &str, time: Duration) -> Result<()> {
    let client = client_of(url)?;
    let deadline = Instant::now() + time;
    loop {
        let answer = timeout(Duration::from_secs(2), client.get("/readyz")).await;
        let answer = match answer {
            Ok(Ok(answer)) if answer.code == 200 => return Ok(()),
            Ok(Ok(answer)) => answer.text(),
            Ok(Err(problem)) => problem.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if Instant::now() > deadline {
            return Err(Problem::new(format!("{url} is not ready in {time:?}: {answer}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

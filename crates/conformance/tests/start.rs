//! Start and stop: clear errors, and state that survives a restart.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::client::{Client, Credentials, Trust};
use conformance::hook::{Hook, HookReply};
use conformance::server::{ADMIN_TOKEN, free_port, run_to_end};
use conformance::{Problem, Server, accepts, eventually, rejects};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

/// The time limit for a server that cannot start.
const SOON: Duration = Duration::from_secs(20);

/// Runs a command that must fail, and returns its single error line.
async fn run_failing(args: &[&str]) -> String {
    let (code, said) = run_to_end(args, SOON).await.unwrap();
    assert!(
        code.is_some_and(|code| code != 0),
        "`portcullis {}` ended with {code:?}: {said}",
        args.join(" ")
    );
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server that is stopped completes its running requests, even if their clients disconnected.
#[tokio::test]
async fn a_running_write_is_completed_before_the_server_stops() {
    let folder = TempDir::new().unwrap();
    let mut server = Server::serve_at(folder.path(), &[]).await.unwrap();
    let client = server.client().unwrap();
    let (open, gate) = tokio::sync::watch::channel(false);
    let hook = Hook::start_slow(move |asked| {
        let mut gate = gate.clone();
        async move {
            let _ = gate.wait_for(|open| *open).await;
            let response = json!({"uid": asked.body.pointer("/request/uid"), "allowed": true});
            HookReply::Json(
                200,
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
            )
        }
    })
    .await
    .unwrap();
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let webhook = json!({"name": "slow.example.com", "rules": [rule], "sideEffects": "None", "timeoutSeconds": 20,
        "admissionReviewVersions": ["v1"], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "clientConfig": {"url": hook.url, "caBundle": BASE64_STANDARD.encode(&hook.authority)}});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(client.post(path, &json!({"metadata": {"name": "slow"}, "webhooks": [webhook]})).await).unwrap();

    let maps = "/api/v1/namespaces/default/configmaps";
    let body = r#"{"metadata":{"name":"under-way"}}"#;
    let mut hangs_up = client.tls_stream().await.unwrap();
    let request = format!(
        "POST {maps} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_TOKEN}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    hangs_up.write_all(request.as_bytes()).await.unwrap();
    hangs_up.flush().await.unwrap();
    let asked = async || if hook.asked().is_empty() { Err(Problem::new("not asked yet")) } else { Ok(()) };
    eventually(SOON, asked).await.unwrap();
    drop(hangs_up);

    server.terminate().unwrap();
    let deaf = async || match server.client()?.get("/version").await {
        Ok(_) => Err(Problem::new("it still answers")),
        Err(_) => Ok(()),
    };
    eventually(SOON, deaf).await.unwrap();
    open.send(true).unwrap();
    let ended = server.wait(SOON).await.unwrap();
    assert!(ended.success(), "{ended}: {}", server.log());
    let server = Server::serve_at(folder.path(), &[]).await.unwrap();
    accepts(server.client().unwrap().get(&format!("{maps}/under-way")).await).unwrap();
}

#[tokio::test]
async fn up_prints_three_lines_and_protects_its_secrets() {
    let server = Server::up().await.unwrap();
    let [ready, export, first] = server.greeting.as_slice() else { unreachable_greeting(&server) };
    assert_eq!(*ready, format!("Portcullis is ready at {}", server.url));
    let kubeconfig = server.kubeconfig().unwrap();
    assert_eq!(*export, format!("export KUBECONFIG={}", fs::canonicalize(&kubeconfig).unwrap().display()));
    assert!(first.contains("kubectl"), "{first}");
    assert!(server.url.starts_with("https://127.0.0.1:"), "it listens on this machine alone: {}", server.url);

    assert_eq!(mode(&server.data()), 0o700);
    assert_eq!(mode(&kubeconfig), 0o600);
    let mut keys = 0;
    for entry in fs::read_dir(server.data()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        keys += usize::from(path.extension().is_some_and(|extension| extension == "key"));
    }
    assert!(keys >= 3, "authority, serving certificate, administrator");
}

#[expect(clippy::panic, reason = "a test fails by panicking")]
fn unreachable_greeting(server: &Server) -> ! {
    panic!("{:?}", server.greeting)
}

#[tokio::test]
async fn unauthenticated_clients_get_only_health_checks_from_up() {
    let server = Server::up().await.unwrap();
    let anonymous = Client::new(&server.url, Trust::Anything, Credentials::None).unwrap();
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(anonymous.get(path).await.unwrap().text(), "ok", "{path}");
    }
    for path in ["/", "/api", "/version", "/metrics", "/openapi/v2", "/api/v1/namespaces"] {
        rejects(anonymous.get(path).await, 401, "Unauthorized").unwrap();
    }
    let wrong = anonymous.as_token(Some("wrong"));
    rejects(wrong.get("/api").await, 401, "Unauthorized").unwrap();
    accepts(server.client().unwrap().get("/api").await).unwrap();
}

#[tokio::test]
async fn objects_and_credentials_survive_a_restart() {
    let folder = TempDir::new().unwrap();
    let (port, guard) = free_port().unwrap();
    drop(guard);
    let mut server = Server::up_at_port(folder.path(), port).await.unwrap();
    let client = server.client().unwrap();
    let map = json!({"metadata": {"name": "kept"}, "data": {"k": "v"}});
    let made = accepts(client.post("/api/v1/namespaces/default/configmaps", &map).await).unwrap();
    let kubeconfig = fs::read(server.data().join("kubeconfig")).unwrap();
    server.terminate().unwrap();
    assert_eq!(server.wait(SOON).await.unwrap().code(), Some(0), "{}", server.log());
    drop(server);

    let server = Server::up_at_port(folder.path(), port).await.unwrap();
    // A client of the first run trusts the server and is authenticated.
    let found = accepts(client.get("/api/v1/namespaces/default/configmaps/kept").await).unwrap();
    assert_eq!(found, made);
    assert_eq!(fs::read(server.data().join("kubeconfig")).unwrap(), kubeconfig);
    let namespaces = accepts(client.get("/api/v1/namespaces").await).unwrap();
    let names: Vec<_> = namespaces["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test]
async fn the_kubernetes_service_has_the_address_of_the_server() {
    let folder = TempDir::new().unwrap();
    let service = "/api/v1/namespaces/default/services/kubernetes";
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let mut uid = None;
    for (address, family) in [("10.11.12.13", "IPv4"), ("10.11.12.14", "IPv4"), ("fd00::1", "IPv6")] {
        let flag = format!("--advertise-address={address}");
        let mut server = Server::serve_at(folder.path(), &[&flag]).await.unwrap();
        let client = server.client().unwrap();
        let served = accepts(client.get(service).await).unwrap();
        let known = uid.get_or_insert(served["metadata"]["uid"].clone());
        assert_eq!(*known, served["metadata"]["uid"], "it is the same service");
        let port: u16 = server.url.rsplit(':').next().unwrap().parse().unwrap();
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let subsets = json!([{"addresses": [{"ip": address}], "ports": ports}]);
        let ready = json!([{"addresses": [address], "conditions": {"ready": true}}]);
        // They are written once the server is ready.
        let slice = eventually(SOON, async || {
            let found = accepts(client.get(endpoints).await)?;
            let slice = accepts(client.get(slice).await)?;
            if found["subsets"] == subsets && slice["addressType"] == family && slice["endpoints"] == ready {
                Ok(slice)
            } else {
                Err(Problem::new(format!("{found} {slice}")))
            }
        });
        let slice = slice.await.unwrap();
        assert_eq!(slice["ports"], ports);
        server.terminate().unwrap();
        assert_eq!(server.wait(SOON).await.unwrap().code(), Some(0), "{}", server.log());
    }
}

#[tokio::test]
async fn a_port_in_use_is_an_error_with_its_number() {
    let folder = TempDir::new().unwrap();
    let (port, _guard) = free_port().unwrap();
    let said = run_failing(&[
        "up",
        "--data-dir",
        text(&folder.path().join("data")),
        "--secure-port",
        &port.to_string(),
    ])
    .await;
    assert!(said.contains(&port.to_string()) && said.contains("in use"), "{said}");
}

#[tokio::test]
async fn an_unwritable_folder_is_an_error_with_its_path() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.join("below"), file.clone(), Path::new("/proc/portcullis").to_owned()] {
        let said = run_failing(&["up", "--data-dir", text(&path), "--secure-port", "0"]).await;
        assert!(said.contains(text(&path)), "{said}");
    }
}

#[tokio::test]
async fn a_folder_in_use_by_another_server_is_an_error_with_its_path() {
    let server = Server::up().await.unwrap();
    let said = run_failing(&["up", "--data-dir", text(&server.data()), "--secure-port", "0"]).await;
    assert!(said.contains("another process"), "{said}");
    assert!(said.contains(text(&server.data())), "{said}");
    accepts(server.client().unwrap().get("/api/v1/namespaces").await).unwrap();
}

#[tokio::test]
async fn loose_file_modes_are_an_error_with_a_remedy() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let up = ["up", "--data-dir", text(&data), "--secure-port", "0"];
    drop(Server::up_at(folder.path()).await.unwrap());

    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    let said = run_failing(&up).await;
    assert!(said.contains("0755") && said.contains("chmod 700"), "{said}");
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();

    let keys: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    for key in keys.iter().filter(|path| path.extension().is_some_and(|extension| extension == "key")) {
        fs::set_permissions(key, Permissions::from_mode(0o644)).unwrap();
        let said = run_failing(&up).await;
        assert!(said.contains(text(key)) && said.contains("0644") && said.contains("chmod 600"), "{said}");
        fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
    }
    drop(Server::up_at(folder.path()).await.unwrap());
}

#[tokio::test]
async fn a_folder_of_another_owner_is_rejected() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("theirs");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&data, Some(65534), None).is_err() {
        println!("left out: only root can give a folder away");
        return;
    }
    let said = run_failing(&["up", "--data-dir", text(&data), "--secure-port=0"]).await;
    assert!(said.contains("belongs to another user, who could have put keys into it"), "{said}");
}

#[tokio::test]
async fn a_damaged_store_is_an_error_with_its_path() {
    let folder = TempDir::new().unwrap();
    drop(Server::up_at(folder.path()).await.unwrap());
    let store = folder.path().join("data/store");
    for entry in fs::read_dir(&store).unwrap() {
        let path = entry.unwrap().path();
        let length = fs::metadata(&path).unwrap().len();
        if length > 4096 {
            fs::write(&path, vec![0xa5; usize::try_from(length).unwrap()]).unwrap();
        }
    }
    let said =
        run_failing(&["up", "--data-dir", text(&folder.path().join("data")), "--secure-port", "0"]).await;
    assert!(said.contains(text(&store)), "it names the file: {said}");
}

#[tokio::test]
async fn an_unknown_flag_error_suggests_the_nearest() {
    let said = run_failing(&["serve", "--secure-prt=6443"]).await;
    assert!(said.contains("--secure-prt") && said.contains("--secure-port"), "{said}");
    let said = run_failing(&["serve", "--encryption-provider-confg=x"]).await;
    assert!(said.contains("--encryption-provider-config"), "{said}");
    let said = run_failing(&["up", "--data-dr=x"]).await;
    assert!(said.contains("--data-dir"), "{said}");
}

#[tokio::test]
async fn security_flags_that_are_not_implemented_are_rejected() {
    let folder = TempDir::new().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let certs = format!("--cert-dir={}", folder.path().join("certs").display());
    for flag in [
        "--etcd-servers=http://127.0.0.1:2379",
        "--encryption-provider-config=/x",
        "--authentication-config=/x",
        "--oidc-issuer-url=https://x",
        "--authentication-token-webhook-config-file=/x",
        "--audit-webhook-config-file=/x",
        "--egress-selector-config-file=/x",
        "--requestheader-client-ca-file=/x",
        "--feature-gates=NoSuchGate=true",
        "--feature-gates=DRAAdminAccess=false",
        "--enable-admission-plugins=NoSuchPlugin",
        "--authorization-mode=NoSuchMode",
        "--tls-min-version=VersionTLS99",
        "--runtime-config=nonsense",
        "--runtime-config=nonsense/v1=true",
        "--runtime-config=apps/v9=true",
        "--runtime-config=apps/v1/Deployments=true",
        "--runtime-config=flowcontrol.apiserver.k8s.io/v1=false",
        "--token-auth-file=/does/not/exist",
        "--service-cluster-ip-range=nonsense",
    ] {
        let said =
            run_failing(&["serve", &data, &certs, "--secure-port=0", "--bind-address=127.0.0.1", flag]).await;
        let mut parts = flag.trim_start_matches('-').split('=').filter(|part| *part != "true");
        assert!(parts.any(|part| said.contains(part)), "{flag}: {said}");
    }
}

#[tokio::test]
async fn a_group_without_a_served_version_is_not_in_discovery() {
    let server =
        Server::serve(&["--runtime-config=resource.k8s.io/v1=false,autoscaling/v1=false"]).await.unwrap();
    let client = server.client().unwrap();
    let groups = accepts(client.get("/apis").await).unwrap();
    let named = |name: &str| groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == name);
    assert!(named("autoscaling") && !named("resource.k8s.io"));
    for path in ["", "/v1", "/v1/deviceclasses", "/v1/deviceclasses/x"] {
        let answer = client.get(&format!("/apis/resource.k8s.io{path}")).await.unwrap();
        assert_eq!((answer.code, answer.text().as_str()), (404, "404 page not found\n"), "{path}");
    }
    // The other versions of another group are served.
    accepts(client.get("/apis/autoscaling/v2/horizontalpodautoscalers").await).unwrap();
    rejects(client.get("/apis/autoscaling/v1/horizontalpodautoscalers").await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn alpha_and_beta_versions_are_served_by_stage_version_and_resource() {
    const BETA: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates";
    const ALPHA: &str = "/apis/coordination.k8s.io/v1alpha2/namespaces/default/leasecandidates";
    let config = "--runtime-config=api/alpha=true,coordination.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3/devicetaintrules=false";
    let server = Server::serve(&[config]).await.unwrap();
    let client = server.client().unwrap();

    let candidate = json!({"metadata": {"name": "c"}, "spec": {
        "leaseName": "l", "binaryVersion": "1.37.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion",
    }});
    accepts(client.post(BETA, &candidate).await).unwrap();
    rejects(client.post(BETA, &json!({"metadata": {"name": "d"}, "spec": {}})).await, 422, "Invalid")
        .unwrap();
    let shown = accepts(client.get(&format!("{ALPHA}/c")).await).unwrap();
    assert_eq!(shown["apiVersion"], "coordination.k8s.io/v1alpha2");
    assert_eq!(shown["spec"], candidate["spec"]);

    let version = accepts(client.get("/apis/resource.k8s.io/v1alpha3").await).unwrap();
    let names: Vec<&str> =
        version["resources"].as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert_eq!(names, ["resourcepoolstatusrequests", "resourcepoolstatusrequests/status"]);
    let rules = "/apis/resource.k8s.io/v1alpha3/devicetaintrules";
    rejects(client.get(rules).await, 404, "NotFound").unwrap();
    let openapi = accepts(client.get("/openapi/v3/apis/resource.k8s.io/v1alpha3").await).unwrap();
    assert!(openapi["paths"].get("/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests").is_some());
    assert!(openapi["paths"].get(rules).is_none());
    accepts(client.get("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions").await).unwrap();
    // Nothing else is enabled.
    rejects(client.get("/apis/resource.k8s.io/v1beta1/deviceclasses").await, 404, "NotFound").unwrap();
}

#[tokio::test]
async fn errors_of_token_flags_are_reported_in_the_words_of_kubernetes_too() {
    let folder = TempDir::new().unwrap();
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let certs = format!("--cert-dir={}", folder.path().join("certs").display());
    let usual = ["serve", &data, &certs, "--secure-port=0", "--service-account-issuer=https://x.example"];
    let missing = "--service-account-signing-key-file=/does/not/exist";
    for (flags, own, words) in [
        (
            vec![missing],
            "--service-account-signing-key-file: cannot read `/does/not/exist`",
            "failed to parse service-account-issuer-key-file: open /does/not/exist: no such file or directory",
        ),
        (
            vec![missing, "--service-account-jwks-uri=://"],
            "service-account-jwks-uri must be a valid URL",
            "service-account-jwks-uri must be a valid URL: parse \\\"://\\\": missing protocol scheme",
        ),
    ] {
        let said = run_failing(&[&usual[..], &flags].concat()).await;
        assert!(said.contains(own), "{said}");
        assert!(said.contains(&format!("\"command failed\" err=\"{words}\"")), "{said}");
    }
}

#[tokio::test]
async fn the_root_ca_file_is_published_to_every_namespace() {
    let folder = TempDir::new().unwrap();
    let other = Server::serve_at(folder.path(), &[]).await.unwrap();
    let pem = fs::read_to_string(folder.path().join("certs/apiserver.crt")).unwrap();
    drop(other);
    let file = folder.path().join("root.pem");
    fs::write(&file, &pem).unwrap();
    let server = Server::serve(&[&format!("--root-ca-file={}", file.display())]).await.unwrap();
    let client = server.client().unwrap();
    for namespace in ["default", "kube-system"] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        let published = eventually(SOON, async || accepts(client.get(&path).await)).await.unwrap();
        assert_eq!(published["data"]["ca.crt"], pem);
    }
    fs::write(&file, "no certificate").unwrap();
    let said = run_failing(&[
        "serve",
        &format!("--root-ca-file={}", file.display()),
        "--data-dir=/x",
        &format!("--cert-dir={}", folder.path().join("certs").display()),
    ])
    .await;
    let words = format!(
        "error parsing root-ca-file at {}: data does not contain any valid RSA or ECDSA certificates",
        file.display()
    );
    assert!(said.contains(&words), "{said}");
}

#[tokio::test]
async fn flags_without_effect_are_accepted_with_a_warning() {
    let server = Server::serve(&[
        "--peer-advertise-port=6443",
        "--goaway-chance=0.001",
        "--enable-garbage-collector",
        "--enable-aggregator-routing=true",
        // Flags with empty lists.
        "--enable-admission-plugins=",
        "--disable-admission-plugins=",
        "--tls-cipher-suites=",
        "--api-audiences=",
        "--feature-gates=",
        "--runtime-config=",
    ])
    .await;
    let server = server.unwrap();
    accepts(server.client().unwrap().get("/api").await).unwrap();
    assert!(server.log().contains("peer-advertise-port"), "{}", server.log());
    // A flag for the default behavior causes no warning.
    assert!(!server.log().contains("aggregator-routing"), "{}", server.log());
    let server = Server::serve(&["--enable-aggregator-routing=false"]).await.unwrap();
    assert!(server.log().contains("always reached at their endpoints"), "{}", server.log());
}

#[tokio::test]
async fn flags_decide_about_headers_for_browsers_http2_and_the_reported_version() {
    let server = Server::serve(&[
        "--strict-transport-security-directives=max-age=31536000,preload",
        r"--cors-allowed-origins=^https://ui\.example\.com$",
        "--disable-http2-serving",
        "--version=v1.37.0-vendor.1",
    ]);
    let server = server.await.unwrap();
    let client = server.client().unwrap();
    let ask = async |method: http::Method, origin: &str| {
        client.send(method, "/version", &[("origin", origin)], String::new().into()).await.unwrap()
    };
    let allowed = ask(http::Method::GET, "https://ui.example.com").await;
    assert_eq!(allowed.json()["gitVersion"], "v1.37.0-vendor.1");
    assert_eq!(allowed.headers["strict-transport-security"], "max-age=31536000; preload");
    assert_eq!(allowed.headers["access-control-allow-origin"], "https://ui.example.com");
    let preflight = ask(http::Method::OPTIONS, "https://ui.example.com").await;
    assert_eq!((preflight.code, preflight.body.len()), (204, 0));
    let other = ask(http::Method::GET, "https://ui.example.com.evil.example").await;
    assert!(!other.headers.contains_key("access-control-allow-origin"), "{:?}", other.headers);
    assert_eq!(other.headers["strict-transport-security"], "max-age=31536000; preload");
}

#[tokio::test]
async fn always_allow_causes_a_warning_and_admits_no_anonymous_client() {
    let server = Server::serve(&["--authorization-mode=AlwaysAllow"]).await.unwrap();
    assert!(server.log().contains("AlwaysAllow"), "{}", server.log());
    let client = server.client().unwrap();
    accepts(client.as_token(Some("bobtoken")).get("/api/v1/secrets").await).unwrap();
    rejects(client.as_token(None).get("/api/v1/secrets").await, 401, "Unauthorized").unwrap();
}

#[tokio::test]
async fn sigterm_ends_watches_and_then_the_server() {
    let mut server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let mut watch = client.events("/api/v1/namespaces/default/secrets?watch=1", &[]).await.unwrap();
    accepts(client.post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await)
        .unwrap();
    let event = watch.within(SOON).await.unwrap().unwrap();
    assert_eq!(event["type"], "ADDED");
    server.terminate().unwrap();
    assert_eq!(server.wait(SOON).await.unwrap().code(), Some(0), "{}", server.log());
    assert!(matches!(watch.within(SOON).await, Ok(None)), "the stream ends as a stream should");
}

#[tokio::test]
async fn secrets_are_not_logged() {
    let server = Server::serve(&["-v=9"]).await.unwrap();
    let client = server.client().unwrap();
    accepts(client.get("/api/v1/namespaces").await).unwrap();
    rejects(client.as_token(Some("not-a-real-token")).get("/api").await, 401, "").unwrap();
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "correct-horse"}});
    accepts(client.post("/api/v1/namespaces/default/secrets", &secret).await).unwrap();
    let log = server.log();
    for word in [ADMIN_TOKEN, "not-a-real-token", "correct-horse", "Y29ycmVjdC1ob3JzZQ", "PRIVATE KEY"] {
        assert!(!log.contains(word), "`{word}` is in the log");
    }
}

#[tokio::test]
async fn logs_can_be_json() {
    let server = Server::serve(&["--logging-format=json", "-v=2", "--goaway-chance=0"]).await.unwrap();
    let log = server.log();
    assert!(!log.is_empty());
    for line in log.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
    }
}

#[tokio::test]
async fn help_version_and_completion_work() {
    for (args, texts) in [
        (&["--help"][..], &["up", "serve", "version"][..]),
        (&["serve", "--help"], &["--secure-port", "--client-ca-file", "--authorization-mode", "--data-dir"]),
        (&["up", "--help"], &["--data-dir", "--secure-port"]),
        (&["version"], &["1.37"]),
        (&["serve", "--version"], &["Kubernetes v1.37.0+portcullis"]),
        (&["serve", "--version=raw"], &["version.Info{Major:\"1\", Minor:\"37\""]),
        (&["completion", "bash"], &["portcullis"]),
    ] {
        let (code, said) = run_to_end(args, SOON).await.unwrap();
        assert_eq!(code, Some(0), "{said}");
        for text in texts {
            assert!(said.contains(text), "{args:?}: `{text}` is not in: {said}");
        }
    }
}

#[tokio::test]
async fn a_server_with_a_new_store_starts_without_warnings() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    // Written once the namespaces exist.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    eventually(SOON, async || {
        let leases = accepts(client.get(leases).await)?;
        let items = leases["items"].as_array().cloned().unwrap_or_default();
        let has_identity = items.iter().any(|lease| {
            lease["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("apiserver-"))
        });
        if has_identity { Ok(()) } else { Err(Problem::new(leases.to_string())) }
    })
    .await
    .unwrap();
    let log = server.log();
    assert!(!log.contains(" WARN ") && !log.contains(" ERROR "), "{log}");
}

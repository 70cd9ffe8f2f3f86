//! Admission webhooks over TLS: the effect of every answer and failure.
//!
//! Every denial names the webhook, and the same request succeeds once the webhook is removed.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::time::Duration;

use conformance::server::{free_port, run_to_end};
use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAME: &str = "guard.example.com";

fn configurations(kind: &str) -> String {
    let plural = if kind == "MutatingWebhookConfiguration" { "mutating" } else { "validating" };
    format!("/apis/admissionregistration.k8s.io/v1/{plural}webhookconfigurations")
}

/// A webhook for created and updated config maps, with further fields.
fn hook(name: &str, client_config: &Value, more: &Value) -> Value {
    let mut hook = json!({
        "name": name,
        "clientConfig": client_config,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    });
    for (field, value) in more.as_object().unwrap() {
        hook[field] = value.clone();
    }
    hook
}

async fn register(client: &Client, kind: &str, hooks: &[Value]) {
    let body = json!({"metadata": {"name": "guards"}, "webhooks": hooks});
    accepts(client.post(&configurations(kind), &body).await).unwrap();
}

async fn delete_configuration(client: &Client, kind: &str) {
    accepts(client.delete(&format!("{}/guards", configurations(kind))).await).unwrap();
    // Waits until no request calls the webhook any more.
    conformance::eventually(Duration::from_secs(10), async || {
        let probe = json!({"metadata": {"name": "probe"}});
        accepts(client.post(&format!("{MAPS}?dryRun=All"), &probe).await)
    })
    .await
    .unwrap();
}

fn client_config_of(server: &WebhookServer) -> Value {
    json!({"url": server.url("/review"), "caBundle": server.ca_bundle})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// The request is denied with these words because of the webhook; with failurePolicy Ignore, or without it, it succeeds.
async fn check_webhook_failure(
    client: &Client,
    kind: &str,
    client_config: &Value,
    more: &Value,
    words: &str,
) {
    register(client, kind, &[hook(NAME, client_config, more)]).await;
    let status = rejects(client.post(MAPS, &map("refused")).await, 500, "InternalError").unwrap();
    let message = status["message"].as_str().unwrap();
    let before = format!("Internal error occurred: failed calling webhook \"{NAME}\": ");
    assert!(message.starts_with(&before), "{message}");
    assert!(message.contains(words), "{message}\n  does not say\n{words}");
    let mut ignoring = more.clone();
    ignoring["failurePolicy"] = json!("Ignore");
    let path = format!("{}/guards", configurations(kind));
    let mut body = accepts(client.get(&path).await).unwrap();
    body["webhooks"] = json!([hook(NAME, client_config, &ignoring)]);
    accepts(client.json(Method::PUT, &path, &body).await).unwrap();
    accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("ignored")).await).unwrap();
    delete_configuration(client, kind).await;
    accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("refused")).await).unwrap();
}

#[tokio::test]
async fn a_denial_names_the_webhook() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::deny("not on my watch"))
        .await
        .unwrap();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        register(&client, kind, &[hook(NAME, &client_config_of(&webhook), &json!({}))]).await;
        let status = rejects(client.post(MAPS, &map("a")).await, 403, "").unwrap();
        assert_eq!(
            status["message"],
            format!("admission webhook \"{NAME}\" denied the request: not on my watch")
        );
        delete_configuration(&client, kind).await;
        accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("a")).await).unwrap();
    }
    let calls = webhook.take_calls();
    let call = calls.first().unwrap();
    assert_eq!(call.target, "/review?timeout=5s");
    assert_eq!(call.headers["user-agent"], "kube-apiserver-admission");
    assert_eq!(call.headers["content-type"], "application/json");
    assert!(!call.headers.contains_key("authorization"));
    assert_eq!(call.review["request"]["object"]["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn an_unreachable_webhook_follows_its_failure_policy() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let kind = "ValidatingWebhookConfiguration";
    let nothing = json!({});

    let (port, guard) = free_port().unwrap();
    drop(guard);
    let url = format!("https://127.0.0.1:{port}/review");
    let words = format!("Post \"{url}?timeout=5s\": dial tcp 127.0.0.1:{port}: connect: connection refused");
    check_webhook_failure(&client, kind, &json!({"url": url}), &nothing, &words).await;

    let silent = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::Silence).await.unwrap();
    let words = format!("Post \"{}?timeout=1s\": context deadline exceeded", silent.url("/review"));
    check_webhook_failure(&client, kind, &client_config_of(&silent), &json!({"timeoutSeconds": 1}), &words)
        .await;

    let closing = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::Drop).await.unwrap();
    let words = format!("Post \"{}?timeout=5s\": EOF", closing.url("/review"));
    check_webhook_failure(&client, kind, &client_config_of(&closing), &nothing, &words).await;
}

#[tokio::test]
async fn a_webhook_with_a_wrong_certificate_is_a_failure() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let kind = "MutatingWebhookConfiguration";
    let nothing = json!({});
    let verify = "tls: failed to verify certificate: x509: ";

    let signed = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let stranger = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let unknown = format!("{verify}certificate signed by unknown authority");
    let crossed = json!({"url": signed.url("/review"), "caBundle": stranger.ca_bundle});
    check_webhook_failure(&client, kind, &crossed, &nothing, &unknown).await;
    // Without a bundle, only the CAs of the system are trusted.
    check_webhook_failure(&client, kind, &json!({"url": signed.url("/review")}), &nothing, &unknown).await;
    let garbage = json!({"url": signed.url("/review"), "caBundle": "AAAA"});
    let words =
        "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block";
    check_webhook_failure(&client, kind, &garbage, &nothing, words).await;

    let other = WebhookServer::start(ServingCertificate::OtherName, |_| ReviewReply::allow()).await.unwrap();
    let words =
        format!("{verify}cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs");
    check_webhook_failure(&client, kind, &client_config_of(&other), &nothing, &words).await;

    let expired = WebhookServer::start(ServingCertificate::Expired, |_| ReviewReply::allow()).await.unwrap();
    let words = format!("{verify}certificate has expired or is not yet valid: current time ");
    check_webhook_failure(&client, kind, &client_config_of(&expired), &nothing, &words).await;
    assert!(
        signed.take_calls().is_empty() && other.take_calls().is_empty() && expired.take_calls().is_empty()
    );

    // A self-signed certificate that is its own CA is accepted, as many webhooks use it.
    let own =
        WebhookServer::start(ServingCertificate::SelfSigned, |_| ReviewReply::deny("seen")).await.unwrap();
    register(&client, kind, &[hook(NAME, &client_config_of(&own), &nothing)]).await;
    let status = rejects(client.post(MAPS, &map("a")).await, 403, "").unwrap();
    assert_eq!(status["message"], format!("admission webhook \"{NAME}\" denied the request: seen"));
    delete_configuration(&client, kind).await;
    accepts(client.post(MAPS, &map("a")).await).unwrap();
}

#[tokio::test]
async fn a_malformed_answer_is_a_failure() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let review = |response: &str| {
        format!(
            "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{response}}}"
        )
    };
    let raw = |status, text: &str| ReviewReply::Raw(status, "application/json", Vec::new(), text.to_owned());
    let cases: Vec<(ReviewReply, &str)> = vec![
        (
            ReviewReply::Raw(500, "text/plain", Vec::new(), "kaboom".to_owned()),
            "an error on the server (\"kaboom\") has prevented the request from succeeding",
        ),
        (
            ReviewReply::Raw(404, "text/plain", Vec::new(), String::new()),
            "the server could not find the requested resource",
        ),
        (raw(200, ""), "0-length response with status code: 200 and content type: application/json"),
        (
            raw(200, "{\"apiVersion\":"),
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (raw(200, &review("null")), "received invalid webhook response: webhook response was absent"),
        (
            raw(200, &review("{\"uid\":\"x\",\"allowed\":true}")),
            "received invalid webhook response: expected response.uid=",
        ),
        (
            raw(200, &review("{\"allowed\":\"yes\"}")),
            "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
        ),
        (
            raw(200, "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}"),
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
        ),
        (
            raw(200, "{\"apiVersion\":\"admission.k8s.io/v1beta1\",\"kind\":\"AdmissionReview\"}"),
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            ReviewReply::Response(json!({"allowed": true, "patch": "W10="})),
            "webhook returned response.patch but not response.patchType",
        ),
        (
            ReviewReply::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": "eA=="})),
            "received undecodable patch in webhook response: invalid character 'x' looking for beginning of value",
        ),
        (
            ReviewReply::Response(
                json!({"allowed": true, "patchType": "Other", "patch": "W3sib3AiOiJ0ZXN0In1d"}),
            ),
            "unsupported patch type \"Other\"",
        ),
    ];
    for (reply, words) in cases {
        let webhook = WebhookServer::start(ServingCertificate::Signed, move |_| reply.clone()).await.unwrap();
        check_webhook_failure(
            &client,
            "MutatingWebhookConfiguration",
            &client_config_of(&webhook),
            &json!({}),
            words,
        )
        .await;
    }
}

#[tokio::test]
async fn a_patch_that_cannot_be_applied_is_an_error_with_every_failure_policy() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let patch = json!([{"op": "test", "path": "/data/k", "value": "other"}]);
    let webhook =
        WebhookServer::start(ServingCertificate::Signed, move |_| ReviewReply::patch(&patch)).await.unwrap();
    let kind = "MutatingWebhookConfiguration";
    register(&client, kind, &[hook(NAME, &client_config_of(&webhook), &json!({"failurePolicy": "Ignore"}))])
        .await;
    let status = rejects(client.post(MAPS, &map("a")).await, 500, "InternalError").unwrap();
    assert_eq!(status["message"], "Internal error occurred: testing value /data/k failed: test failed");
    delete_denying_configuration(&client, kind).await;
    accepts(client.post(MAPS, &map("a")).await).unwrap();
}

/// Removes a configuration whose webhook denies everything.
async fn delete_denying_configuration(client: &Client, kind: &str) {
    accepts(client.delete(&format!("{}/guards", configurations(kind))).await).unwrap();
    conformance::eventually(Duration::from_secs(10), async || {
        accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("probe")).await)
    })
    .await
    .unwrap();
}

/// A non-loopback address of this machine; `None` without a network.
fn own_address() -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent: connecting a UDP socket only selects the local address.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then(|| ip.to_string())
}

#[tokio::test]
async fn a_service_is_called_at_its_ready_endpoints_with_its_own_name() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let kind = "ValidatingWebhookConfiguration";
    let webhook =
        WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::deny("by service")).await.unwrap();
    let config = |port: u16, path: &str| json!({"service": {"namespace": "default", "name": "hook", "port": port, "path": path}, "caBundle": webhook.ca_bundle});
    let nothing = json!({});
    let post = "Post \"https://hook.default.svc:8443/deep/review?timeout=5s\": ";
    check_webhook_failure(
        &client,
        kind,
        &config(8443, "/deep/review"),
        &nothing,
        &format!("{post}service \"hook\" not found"),
    )
    .await;

    let service = json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 8443, "targetPort": 1}]}});
    accepts(client.post("/api/v1/namespaces/default/services", &service).await).unwrap();
    let words =
        "Post \"https://hook.default.svc:443/?timeout=5s\": no service port 443 found for service \"hook\"";
    check_webhook_failure(&client, kind, &config(443, "/"), &nothing, words).await;
    let words = format!("{post}no endpoints available for service \"hook\"");
    check_webhook_failure(&client, kind, &config(8443, "/deep/review"), &nothing, &words).await;

    // One endpoint is not ready, and has no listener.
    let own = own_address();
    let address = own.as_deref().unwrap_or("192.0.2.1");
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": webhook.port}],
        "endpoints": [
            {"addresses": ["192.0.2.9"], "conditions": {"ready": false}},
            {"addresses": [address], "conditions": {"ready": true}},
        ],
    });
    accepts(client.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await)
        .unwrap();
    if own.is_none() {
        let words = format!("{post}dial tcp 192.0.2.1:{}: connect: ", webhook.port);
        check_webhook_failure(&client, kind, &config(8443, "/deep/review"), &nothing, &words).await;
        return;
    }
    register(&client, kind, &[hook(NAME, &config(8443, "/deep/review"), &nothing)]).await;
    for _ in 0..8 {
        let status = rejects(client.post(MAPS, &map("a")).await, 403, "").unwrap();
        assert_eq!(status["message"], format!("admission webhook \"{NAME}\" denied the request: by service"));
    }
    let calls = webhook.take_calls();
    let call = calls.first().unwrap();
    assert_eq!(call.target, "/deep/review?timeout=5s");
    assert_eq!(call.headers["host"], "hook.default.svc:8443");
    delete_denying_configuration(&client, kind).await;
    accepts(client.post(MAPS, &map("a")).await).unwrap();
}

#[tokio::test]
async fn webhooks_mutate_in_order_and_are_reinvoked_if_needed() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |call| {
        let letter = call.target.trim_start_matches('/').chars().next().unwrap_or('?');
        let before = call.review.pointer("/request/object/data/order").and_then(Value::as_str).unwrap_or("");
        ReviewReply::patch(
            &json!([{"op": "add", "path": "/data/order", "value": format!("{before}{letter}")}]),
        )
    })
    .await
    .unwrap();
    let own = |letter: &str, policy: &str| {
        let config = json!({"url": webhook.url(&format!("/{letter}")), "caBundle": webhook.ca_bundle});
        hook(&format!("{letter}.example.com"), &config, &json!({"reinvocationPolicy": policy}))
    };
    let kind = "MutatingWebhookConfiguration";
    for (policies, order) in
        [(["IfNeeded", "Never"], "aba"), (["IfNeeded", "IfNeeded"], "abab"), (["Never", "Never"], "ab")]
    {
        register(&client, kind, &[own("a", policies[0]), own("b", policies[1])]).await;
        let made = accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("x")).await).unwrap();
        assert_eq!(made["data"]["order"], order);
        delete_denying_configuration(&client, kind).await;
    }
    let made = accepts(client.post(MAPS, &map("x")).await).unwrap();
    assert_eq!(made["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn a_dry_run_is_rejected_if_a_webhook_may_have_side_effects() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let kind = "ValidatingWebhookConfiguration";
    // New configurations must declare no side effects, so this one is called in a dry run.
    let refused = json!({"metadata": {"name": "guards"}, "webhooks": [hook(NAME, &client_config_of(&webhook), &json!({"sideEffects": "Some"}))]});
    rejects(client.post(&configurations(kind), &refused).await, 422, "Invalid").unwrap();
    register(
        &client,
        kind,
        &[hook(NAME, &client_config_of(&webhook), &json!({"sideEffects": "NoneOnDryRun"}))],
    )
    .await;
    accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("a")).await).unwrap();
    assert_eq!(webhook.take_calls().first().unwrap().review["request"]["dryRun"], true);
}

#[tokio::test]
async fn connections_are_reused_and_429_is_retried() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let busy = std::sync::atomic::AtomicUsize::new(0);
    let webhook = WebhookServer::start(ServingCertificate::Signed, move |_| {
        if busy.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            ReviewReply::Raw(429, "text/plain", vec![("retry-after", "0")], "busy".to_owned())
        } else {
            ReviewReply::allow()
        }
    })
    .await
    .unwrap();
    register(
        &client,
        "ValidatingWebhookConfiguration",
        &[hook(NAME, &client_config_of(&webhook), &json!({}))],
    )
    .await;
    for _ in 0..4 {
        accepts(client.post(&format!("{MAPS}?dryRun=All"), &map("a")).await).unwrap();
    }
    let calls = webhook.take_calls();
    assert_eq!(calls.len(), 5, "the first is asked twice");
    assert!(
        calls.iter().all(|call| call.connection == 0),
        "{:?}",
        calls.iter().map(|c| c.connection).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn webhook_warnings_and_metrics_are_reported() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| {
        ReviewReply::Response(
            json!({"allowed": false, "status": {"code": 418}, "warnings": ["mind the gap", "two\nlines"]}),
        )
    })
    .await
    .unwrap();
    let kind = "ValidatingWebhookConfiguration";
    register(&client, kind, &[hook(NAME, &client_config_of(&webhook), &json!({}))]).await;
    let answer = client.post(MAPS, &map("a")).await.unwrap();
    assert_eq!(answer.code, 418);
    assert_eq!(answer.header("warning"), "299 - \"mind the gap\"");
    let page = client.get("/metrics").await.unwrap().text();
    for line in [
        format!("apiserver_admission_webhook_rejection_count{{error_type=\"no_error\",name=\"{NAME}\",operation=\"CREATE\",rejection_code=\"418\",type=\"validating\"}} 1"),
        format!("apiserver_admission_webhook_request_total{{code=\"418\",name=\"{NAME}\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"}} 1"),
        format!("apiserver_admission_webhook_admission_duration_seconds_count{{name=\"{NAME}\",operation=\"CREATE\",rejected=\"true\",type=\"validating\"}} 1"),
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"ValidatingAdmissionWebhook\",operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 1".to_owned(),
        "apiserver_admission_step_admission_duration_seconds_count{operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 1".to_owned(),
        "apiserver_admission_step_admission_duration_seconds_summary_count{operation=\"CREATE\",rejected=\"true\",type=\"validate\"} 1".to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "no line {line}");
    }
    delete_denying_configuration(&client, kind).await;
    accepts(client.post(MAPS, &map("a")).await).unwrap();
}

/// An admission configuration file with its kubeconfigs in a folder.
fn admission_file(folder: &TempDir, plugin: &str) -> String {
    let path = folder.path().join("admission.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionWebhook\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n    {plugin}\n"
    );
    fs::write(&path, text).unwrap();
    format!("--admission-control-config-file={}", path.display())
}

#[tokio::test]
async fn a_kubeconfig_sets_the_credentials_for_each_webhook() {
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::allow()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let users = format!(
        "apiVersion: v1\nkind: Config\nusers:\n- name: 127.0.0.1:{}\n  user: {{token: for-this-port}}\n- name: localhost:{}\n  user: {{username: me, password: secret}}\n",
        webhook.port, webhook.port
    );
    fs::write(&kubeconfig, users).unwrap();
    let flag = admission_file(&folder, &format!("kubeConfigFile: {}", kubeconfig.display()));
    let server = Server::serve(&[&flag]).await.unwrap();
    let client = server.client().unwrap();
    let named = |name: &str, host: &str| {
        let url = format!("https://{host}:{}/review", webhook.port);
        hook(name, &json!({"url": url, "caBundle": webhook.ca_bundle}), &json!({}))
    };
    let hooks = [named("ip.example.com", "127.0.0.1"), named("name.example.com", "localhost")];
    register(&client, "ValidatingWebhookConfiguration", &hooks).await;
    accepts(client.post(MAPS, &map("a")).await).unwrap();
    let mut shown: Vec<String> = webhook
        .take_calls()
        .iter()
        .map(|call| call.headers["authorization"].to_str().unwrap().to_owned())
        .collect();
    shown.sort();
    assert_eq!(shown, ["Basic bWU6c2VjcmV0", "Bearer for-this-port"]);
    // The webhooks of the other kind are configured separately, and get no credentials.
    accepts(client.delete(&format!("{}/guards", configurations("ValidatingWebhookConfiguration"))).await)
        .unwrap();
    register(&client, "MutatingWebhookConfiguration", &[named("ip.example.com", "127.0.0.1")]).await;
    accepts(client.post(MAPS, &map("b")).await).unwrap();
    let calls = webhook.take_calls();
    assert!(
        calls
            .iter()
            .any(|call| call.review["request"]["name"] == "b" && !call.headers.contains_key("authorization"))
    );
}

#[tokio::test]
async fn an_unsupported_webhook_configuration_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    for (plugin, words) in [
        (
            "kubeConfigFile: relative",
            "failed to apply admission: couldn't init admission plugin \"ValidatingAdmissionWebhook\": kubeConfigFile: Invalid value: \"relative\": must be an absolute file path",
        ),
        (
            "kubeConfigFile: /no/such/file",
            "couldn't init admission plugin \"ValidatingAdmissionWebhook\": stat /no/such/file: no such file or directory",
        ),
        ("kubeconfig: /x", "strict decoding error: unknown field \"kubeconfig\""),
    ] {
        let flag = admission_file(&folder, plugin);
        let data = format!("--data-dir={}", data.display());
        let (code, said) =
            run_to_end(&["serve", &data, &flag, "--secure-port=0"], Duration::from_secs(20)).await.unwrap();
        assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
        assert!(said.contains(words), "{said}");
    }
    let flag = format!("--admission-control-config-file={}", folder.path().join("none.yaml").display());
    let data = format!("--data-dir={}", data.display());
    let (_, said) =
        run_to_end(&["serve", &data, &flag, "--secure-port=0"], Duration::from_secs(20)).await.unwrap();
    assert!(said.contains("failed to apply admission: failed to read plugin config: unable to read admission control configuration from "), "{said}");
}

#[tokio::test]
async fn a_mutation_does_not_move_an_object_to_another_namespace() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let moving = json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]);
    let webhook =
        WebhookServer::start(ServingCertificate::Signed, move |_| ReviewReply::patch(&moving)).await.unwrap();
    let kind = "MutatingWebhookConfiguration";
    register(&client, kind, &[hook(NAME, &client_config_of(&webhook), &json!({}))]).await;
    let status = rejects(client.post(MAPS, &map("moved")).await, 400, "BadRequest").unwrap();
    assert_eq!(
        status["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    delete_configuration(&client, kind).await;
    accepts(client.post(MAPS, &map("moved")).await).unwrap();
}

#[tokio::test]
async fn connect_requests_use_the_options_that_admission_changed() {
    let server = Server::serve(&["--disable-admission-plugins=ServiceAccount"]).await.unwrap();
    let client = server.client().unwrap();
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| {
        ReviewReply::patch(&json!([{"op": "add", "path": "/container", "value": "other"}]))
    })
    .await
    .unwrap();
    let containers = json!([{"name": "one", "image": "i"}, {"name": "two", "image": "i"}]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": containers}});
    accepts(client.post("/api/v1/namespaces/default/pods", &pod).await).unwrap();
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=x&container=two";
    let message = async || {
        let answer = client.json(Method::POST, exec, &json!({})).await.unwrap();
        answer.json()["message"].as_str().unwrap_or_default().to_owned()
    };
    assert!(!message().await.contains("is not valid"));
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}]);
    register(
        &client,
        "MutatingWebhookConfiguration",
        &[hook(NAME, &client_config_of(&webhook), &json!({"rules": rules}))],
    )
    .await;
    assert_eq!(message().await, "container other is not valid for pod p");
}

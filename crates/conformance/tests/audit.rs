//! The audit log of the built binary: its content, its levels, and failures to write it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use conformance::hook::{Hook, HookReply};
use conformance::server::{audit_flags, run_to_end, write_private};
use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;

const SOON: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

struct AuditedServer {
    server: Server,
    client: Client,
    folder: TempDir,
}

impl AuditedServer {
    async fn start(policy: &str, flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let [policy, log] = audit_flags(folder.path(), policy).unwrap();
        let mut all = vec![policy.as_str(), log.as_str()];
        all.extend(flags);
        let server = Server::serve(&all).await.unwrap();
        let client = server.client().unwrap();
        AuditedServer { server, client, folder }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit.log")).unwrap()
    }

    /// The events with an audit ID.
    fn events(&self, id: &str) -> Vec<Value> {
        let text = self.text();
        // The last line may be incomplete, because the server writes events of its own requests.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        let events = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
        events.into_iter().filter(|event| event["auditID"] == id).collect()
    }

    /// Sends a request with an audit ID and waits for its last event.
    async fn send_and_wait(
        &self,
        client: &Client,
        id: &str,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Vec<Value> {
        let headers = [("audit-id", id), ("content-type", "application/json"), ("user-agent", "tests/1")];
        let body = if body.is_null() { Bytes::new() } else { serde_json::to_vec(body).unwrap().into() };
        let answer = client.send(method, path, &headers, body).await.unwrap();
        assert_eq!(answer.header("audit-id"), id);
        self.events(id)
    }
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_event_has_user_request_and_response_status() {
    let audited = AuditedServer::start("rules: [{level: Metadata}]", &[]).await;
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    let events = audited.send_and_wait(&audited.client, "one", Method::POST, MAPS, &map).await;
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let event = &events[1];
    assert_eq!(event["kind"], "Event");
    assert_eq!(event["apiVersion"], "audit.k8s.io/v1");
    assert_eq!(event["level"], "Metadata");
    assert_eq!(event["requestURI"], MAPS);
    assert_eq!(event["verb"], "create");
    assert_eq!(
        event["user"],
        json!({"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]})
    );
    assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(event["userAgent"], "tests/1");
    assert_eq!(
        event["objectRef"],
        json!({"resource": "configmaps", "namespace": "default", "name": "m", "apiVersion": "v1"})
    );
    assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    // A forbidden user and an unauthenticated client.
    let alice = audited.client.as_token(Some("alicetoken"));
    let events = audited.send_and_wait(&alice, "two", Method::GET, SECRETS, &Value::Null).await;
    assert_eq!(events[1]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[1]["responseStatus"]["reason"], "Forbidden");
    let unauthenticated = audited.client.as_token(Some("wrong"));
    let events = audited.send_and_wait(&unauthenticated, "three", Method::GET, SECRETS, &Value::Null).await;
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!(events[0]["user"], json!({}));
    assert_eq!(events[0]["responseStatus"]["code"], 401);
    assert!(!audited.text().contains("wrong"));
    // The server creates an audit ID if the client sends none.
    let answer = audited.client.get("/version").await.unwrap();
    assert_eq!(audited.events(answer.header("audit-id")).len(), 2);
    // Requests of the server itself are recorded.
    assert!(audited.text().contains(
        r#""user":{"username":"system:apiserver","groups":["system:masters","system:authenticated"]}"#
    ));
}

#[tokio::test]
async fn a_watch_is_recorded_at_its_start_and_end() {
    let audited =
        AuditedServer::start("rules: [{level: Metadata, omitStages: [RequestReceived]}]", &[]).await;
    let path = format!("{MAPS}?watch=1");
    let events = audited.client.events(&path, &[("audit-id", "w")]).await.unwrap();
    assert_eq!(stages(&audited.events("w")), ["ResponseStarted"]);
    drop(events);
    eventually(SOON, async || match stages(&audited.events("w")).as_slice() {
        ["ResponseStarted", "ResponseComplete"] => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
    // A watch that the client ends, and one that is rejected.
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1");
    audited.client.events(&path, &[("audit-id", "x")]).await.unwrap().rest().await.unwrap();
    eventually(SOON, async || match audited.events("x").len() {
        2 => Ok(()),
        other => Err(Problem::new(other.to_string())),
    })
    .await
    .unwrap();
    let path = format!("{MAPS}?watch=1&resourceVersion=bad");
    audited.client.events(&path, &[("audit-id", "y")]).await.unwrap().rest().await.unwrap();
    eventually(SOON, async || match stages(&audited.events("y")).as_slice() {
        ["ResponseStarted", "ResponseComplete"] => Ok(()),
        other => Err(Problem::new(format!("{other:?}"))),
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn requests_for_deprecated_versions_are_annotated_and_counted() {
    let betas = "--runtime-config=resource.k8s.io/v1beta1=true";
    let audited = AuditedServer::start("rules: [{level: Metadata}]\n", &[betas]).await;
    let client = &audited.client;
    for (number, (path, deprecated, removed)) in [
        ("/api/v1/namespaces/default/endpoints", json!("true"), Value::Null),
        ("/apis/resource.k8s.io/v1beta1/deviceclasses", json!("true"), json!("1.38")),
        ("/apis/resource.k8s.io/v1/deviceclasses", Value::Null, Value::Null),
        (MAPS, Value::Null, Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let events =
            audited.send_and_wait(client, &format!("id-{number}"), Method::GET, path, &Value::Null).await;
        let annotations = &events.last().unwrap()["annotations"];
        assert_eq!(annotations["k8s.io/deprecated"], deprecated, "{path}: {events:?}");
        assert_eq!(annotations["k8s.io/removed-release"], removed, "{path}: {events:?}");
    }
    let page = client.get("/metrics").await.unwrap().text();
    let counted: Vec<&str> =
        page.lines().filter(|line| line.starts_with("apiserver_requested_deprecated_apis{")).collect();
    let said = |group: &str, removed: &str, resource: &str, version: &str| {
        let name = "apiserver_requested_deprecated_apis";
        let labels = format!(
            r#"group="{group}",removed_release="{removed}",resource="{resource}",subresource="",version="{version}""#
        );
        format!("{name}{{{labels}}} 1")
    };
    assert!(counted.contains(&said("", "", "endpoints", "v1").as_str()), "{counted:?}");
    assert!(
        counted.contains(&said("resource.k8s.io", "1.38", "deviceclasses", "v1beta1").as_str()),
        "{counted:?}"
    );
    assert!(!counted.iter().any(|line| line.contains("configmaps")), "{counted:?}");
}

#[tokio::test]
async fn bodies_of_secrets_and_tokens_are_not_recorded_below_their_level() {
    let rules = "rules:\n- {level: Metadata, resources: [{resources: [secrets, serviceaccounts/token]}]}\n- {level: RequestResponse, omitManagedFields: true}";
    let audited = AuditedServer::start(rules, &[]).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "do-not-tell"}});
    let events = audited.send_and_wait(&audited.client, "s", Method::POST, SECRETS, &secret).await;
    assert_eq!(events[1]["level"], "Metadata");
    accepts(audited.client.get(&format!("{SECRETS}/s")).await).unwrap();
    let account = json!({"metadata": {"name": "robot"}});
    accepts(audited.client.post("/api/v1/namespaces/default/serviceaccounts", &account).await).unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let token = accepts(audited.client.post(path, &json!({})).await).unwrap();
    let token = token["status"]["token"].as_str().unwrap();
    let text = audited.text();
    assert!(!text.contains("do-not-tell") && !text.contains("ZG8tbm90LXRlbGw") && !text.contains(token));
    assert!(text.contains("authentication.kubernetes.io/issued-credential-id"));
    // Other resources are recorded in full.
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "<tell>"}});
    let events = audited.send_and_wait(&audited.client, "m", Method::POST, MAPS, &map).await;
    assert_eq!(events[1]["requestObject"]["data"]["k"], "<tell>");
    assert_eq!(events[1]["responseObject"]["data"]["k"], "<tell>");
    assert!(events[1]["responseObject"]["metadata"]["uid"].is_string());
    let headers = [("audit-id", "p"), ("content-type", "application/merge-patch+json")];
    let patch = Bytes::from_static(br#"{"data": {"more": "x"}}"#);
    audited.client.send(Method::PATCH, &format!("{MAPS}/m"), &headers, patch).await.unwrap();
    assert_eq!(audited.events("p")[1]["requestObject"], json!({"data": {"more": "x"}}));
    let headers = [("audit-id", "a"), ("content-type", "application/apply-patch+yaml")];
    let config =
        Bytes::from_static(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {applied: z}\n");
    let path = format!("{MAPS}/m?fieldManager=me");
    audited.client.send(Method::PATCH, &path, &headers, config).await.unwrap();
    assert_eq!(audited.events("a")[1]["requestObject"]["data"], json!({"applied": "z"}));
    let options = json!({"propagationPolicy": "Background"});
    let events =
        audited.send_and_wait(&audited.client, "d", Method::DELETE, &format!("{MAPS}/m"), &options).await;
    assert_eq!(events[1]["requestObject"]["propagationPolicy"], "Background");
    assert_eq!(events[1]["responseStatus"]["status"], "Success");
}

#[tokio::test]
async fn an_event_has_the_real_and_the_impersonated_user() {
    let audited = AuditedServer::start("rules: [{level: Metadata}]", &[]).await;
    let headers = [("audit-id", "i"), ("impersonate-user", "bob"), ("impersonate-group", "g")];
    audited.client.send(Method::GET, MAPS, &headers, Bytes::new()).await.unwrap();
    let events = audited.events("i");
    assert!(events[0].get("impersonatedUser").is_none());
    assert_eq!(events[1]["user"]["username"], "admin");
    assert_eq!(
        events[1]["impersonatedUser"],
        json!({"username": "bob", "groups": ["g", "system:authenticated"]})
    );
}

#[tokio::test]
async fn a_failed_audit_write_fails_the_request_only_in_strict_mode() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    for (mode, refused) in [("blocking", false), ("blocking-strict", true)] {
        let flags = ["--audit-log-path=/dev/full", &format!("--audit-log-mode={mode}")];
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("policy.yaml");
        let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, users: [alice]}]";
        write_private(&file, rules).unwrap();
        let policy = format!("--audit-policy-file={}", file.display());
        let server = Server::serve(&[flags[0], flags[1], &policy]).await.unwrap();
        let client = server.client().unwrap();
        let answer = client.as_token(Some("alicetoken")).get("/version").await.unwrap();
        if refused {
            assert_eq!(answer.code, 500);
            assert_eq!(answer.text(), "Internal Server Error: \"/version\": failed to store audit event\n");
        } else {
            assert_eq!(answer.code, 200);
        }
        let metrics = client.get("/metrics").await.unwrap().text();
        assert!(metrics.contains(r#"apiserver_audit_error_total{plugin="log"}"#), "{mode}");
        let rejected = if refused { "1" } else { "0" };
        assert!(metrics.contains(&format!("apiserver_audit_requests_rejected_total {rejected}")), "{mode}");
        assert!(metrics.contains(r#"apiserver_audit_level_total{level="Metadata"} 1"#), "{mode}");
    }
}

#[tokio::test]
async fn a_batch_is_written_on_time_and_at_shutdown() {
    let flags =
        ["--audit-log-mode=batch", "--audit-log-batch-max-size=1000", "--audit-log-batch-max-wait=1h"];
    let mut audited = AuditedServer::start("rules: [{level: Metadata, users: [alice]}]", &flags).await;
    let alice = audited.client.as_token(Some("alicetoken"));
    for _ in 0..3 {
        alice.get("/version").await.unwrap();
    }
    assert_eq!(audited.text(), "");
    audited.server.terminate().unwrap();
    audited.server.wait(SOON).await.unwrap();
    assert_eq!(audited.text().lines().count(), 6);
}

#[tokio::test]
async fn an_invalid_audit_policy_or_flag_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let policy = at("policy.yaml");
    let check = async |text: &str, flag: &str, expected: &str| {
        write_private(Path::new(&policy), text).unwrap();
        let args = [
            "serve",
            &format!("--data-dir={}", at("data")),
            &format!("--cert-dir={}", at("certs")),
            &format!("--audit-policy-file={policy}"),
            &format!("--audit-log-path={}", at("audit.log")),
            flag,
        ];
        let (code, said) = run_to_end(&args, SOON).await.unwrap();
        assert_ne!(code, Some(0));
        assert!(said.contains(expected), "{said}");
    };
    let good = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let mode = "--audit-log-mode=blocking";
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    check(
        &format!("{head}rules: []"),
        mode,
        "loading audit policy file: loaded illegal policy with 0 rules: from file ",
    )
    .await;
    check(&format!("{head}rules: [{{level: X}}]"), mode, "rules[0].level: Unsupported value").await;
    // An unknown field of the policy causes a warning; a missing required field is an error.
    let said = r#"Audit policy contains errors, falling back to lenient decoding: strict decoding error: unknown field "rules[0].levle""#;
    check(&format!("{head}rules: [{{levle: None}}]"), mode, said).await;
    check(&format!("{head}rules: [{{levle: None}}]"), mode, "rules[0].level: Required value").await;
    check(good, "--audit-log-mode=x", "invalid audit log mode x, allowed modes are").await;
    check(good, "--audit-log-maxage=-1", "--audit-log-maxage -1 can't be a negative number").await;
    check(good, "--audit-log-format=x", "invalid audit log format x, allowed formats are").await;
    check(good, "--audit-log-version=v1", "invalid group version, allowed versions are").await;
}

#[tokio::test]
async fn without_an_audit_policy_no_event_is_recorded() {
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("audit.log");
    let server = Server::serve(&[&format!("--audit-log-path={}", log.display())]).await.unwrap();
    rejects(server.client().unwrap().as_token(Some("x")).get("/version").await, 401, "Unauthorized").unwrap();
    assert!(!log.exists() || std::fs::read_to_string(&log).unwrap().is_empty());
}

#[tokio::test]
async fn a_request_whose_client_disconnects_is_recorded() {
    let audited =
        AuditedServer::start("omitStages: [RequestReceived]\nrules: [{level: Metadata}]", &[]).await;
    let hung_up = Arc::new(Notify::new());
    let waits = Arc::clone(&hung_up);
    let hook = Hook::start_slow(move |asked| {
        let waits = Arc::clone(&waits);
        async move {
            waits.notified().await;
            let response = json!({"uid": asked.body["request"]["uid"], "allowed": true});
            HookReply::Json(
                200,
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
            )
        }
    })
    .await
    .unwrap();
    let webhook = json!({
        "name": "slow.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
        "clientConfig": {"url": hook.url, "caBundle": BASE64_STANDARD.encode(&hook.authority)},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
    });
    let body = json!({"metadata": {"name": "slow"}, "webhooks": [webhook]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    accepts(audited.client.post(path, &body).await).unwrap();

    let map = serde_json::to_vec(&json!({"metadata": {"name": "unseen"}})).unwrap();
    let headers = [("audit-id", "gone"), ("content-type", "application/json")];
    let leaving = audited.server.client().unwrap();
    let asking = leaving.send(Method::POST, MAPS, &headers, map.into());
    tokio::select! {
        answer = asking => panic!("answered before the webhook was: {answer:?}"),
        asked = eventually(SOON, async || hook.asked().pop().ok_or_else(|| Problem::new("not asked"))) => {
            asked.unwrap();
        }
    }
    drop(leaving);
    // The server notices the closed connection before the webhook answers.
    eventually(SOON, async || accepts(audited.client.get("/version").await)).await.unwrap();
    hung_up.notify_one();
    let events = eventually(SOON, async || {
        let events = audited.events("gone");
        if events.is_empty() { Err(Problem::new("no event")) } else { Ok(events) }
    })
    .await
    .unwrap();
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert_eq!(events[0]["responseStatus"]["code"], 201);
    accepts(audited.client.get(&format!("{MAPS}/unseen")).await).unwrap();
}

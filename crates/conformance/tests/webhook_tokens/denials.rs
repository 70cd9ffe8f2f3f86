//! Denied token requests: clients learn nothing about stored objects, operators learn the reason.

use std::fs;
use std::time::Duration;

use conformance::server::audit_flags;
use conformance::{Client, Problem, Server, accepts, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::token_requests::{
    ACCOUNTS, KEP, KUBERNETES, ON, REQUESTS, VALIDATING, account, grant, metric_sum,
    register_unused_webhooks, request, token_of,
};

const ANNOTATION: &str = "webhook-authentication.k8s.io/token-request-denied";
const APPS: &str = "https://apps.example/a";
const NOPE: &str = "https://nope.example/";

struct AuditedServer {
    server: Server,
    client: Client,
    folder: TempDir,
}

async fn start_audited(flags: &[&str]) -> AuditedServer {
    let folder = TempDir::new().unwrap();
    let [policy, log] = audit_flags(folder.path(), "rules: [{level: Metadata}]\n").unwrap();
    let mut all = vec![policy.as_str(), log.as_str()];
    all.extend(flags);
    let server = Server::serve(&all).await.unwrap();
    let client = server.client().unwrap();
    AuditedServer { server, client, folder }
}

impl AuditedServer {
    /// The audit annotation of a denied request, with the answer.
    async fn denied_with_annotation(&self, account: &str, body: &Value) -> (Value, String) {
        let answer = self.client.post(&token_of(account), body).await.unwrap();
        assert!(answer.code >= 400, "{}", answer.text());
        let id = answer.header("audit-id").to_owned();
        let file = self.folder.path().join("audit.log");
        let event = eventually(Duration::from_secs(30), async || {
            let text = fs::read_to_string(&file).unwrap();
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut done = events.filter(|e| e["auditID"] == id.as_str() && e["stage"] == "ResponseComplete");
            done.next().ok_or_else(|| Problem::new("no audit event yet"))
        })
        .await
        .unwrap();
        let annotation = event["annotations"][ANNOTATION].as_str().unwrap_or_default().to_owned();
        (answer.json(), annotation)
    }

    async fn wait_for_log_line(&self, reason: &str) -> String {
        eventually(Duration::from_secs(30), async || {
            let log = self.server.log();
            let line = log.lines().find(|line| {
                line.contains("token request for a webhook refused")
                    && line.contains(&format!("\"{reason}\""))
            });
            line.map(str::to_owned).ok_or_else(|| Problem::new(format!("no line about {reason}: {log}")))
        })
        .await
        .unwrap()
    }
}

#[tokio::test]
async fn log_and_audit_have_the_reason_of_a_denied_token_request() {
    let audited = start_audited(&[ON]).await;
    let client = &audited.client;
    register_unused_webhooks(client).await;
    account(client, "robot", KUBERNETES, &["apps", "batch"]).await;
    grant(client, "robot", [KEP[2], KEP[3]], &["gone.example.com", "apps"]).await;
    accepts(client.post(ACCOUNTS, &json!({"metadata": {"name": "nobody"}})).await).unwrap();

    let named = |name: &str, uid: &str| {
        let mut token_request = request(VALIDATING, KUBERNETES, "apps", APPS);
        token_request["spec"]["boundObjectRef"]["name"] = json!(name);
        token_request["spec"]["boundObjectRef"]["uid"] = json!(uid);
        token_request
    };
    let of_group = |dialect, group, audience| request(VALIDATING, dialect, group, audience);
    let cases = [
        (
            "ConfigurationNotFound",
            named("nope", ""),
            "ValidatingWebhookConfiguration \"nope\" does not exist",
        ),
        ("UIDMismatch", named("hooks", "other"), "has uid"),
        (
            "APIServiceNotFound",
            of_group(KEP, "gone.example.com", APPS),
            "no APIService has API group \"gone.example.com\"",
        ),
        (
            "AudienceMismatch",
            of_group(KUBERNETES, "apps", NOPE),
            "no webhook has audience \"https://nope.example/\"; its audiences are [\"https://apps.example/a\"",
        ),
        ("GroupNotInRules", of_group(KUBERNETES, "batch", APPS), "have no rule for API group \"batch\""),
    ];
    let mut answers = Vec::new();
    for (reason, token_request, detail) in cases {
        let (status, annotation) = audited.denied_with_annotation("robot", &token_request).await;
        assert!(annotation.starts_with(&format!("{reason}: ")), "{reason}: {annotation:?}");
        assert!(annotation.contains(detail), "{annotation}");
        let line = audited.wait_for_log_line(reason).await;
        for word in ["default/robot", "admin", "ValidatingWebhookConfiguration/"] {
            assert!(line.contains(word), "{line}");
        }
        answers.push(status);
    }
    // The client gets the same answer for all of them.
    for status in &answers {
        assert_eq!(status, &answers[0]);
        assert_eq!(status["code"], 403);
        assert_eq!(status["message"], "serviceaccounts/token \"robot\" is forbidden: token request denied");
    }

    // Reasons that the client sees are recorded too.
    let (status, annotation) =
        audited.denied_with_annotation("nobody", &of_group(KUBERNETES, "apps", APPS)).await;
    assert_eq!(status["code"], 403);
    assert!(annotation.starts_with("NoAttestPermission: "), "{annotation:?}");
    assert!(annotation.contains("cannot attest resource \"admissionReviewAPIGroups\""), "{annotation}");
    audited.wait_for_log_line("NoAttestPermission").await;
    let own = of_group(KUBERNETES, "apps", "https://kubernetes.default.svc");
    let (_, annotation) = audited.denied_with_annotation("robot", &own).await;
    assert!(annotation.starts_with("APIServerAudience: "), "{annotation:?}");
    let mut short = of_group(KUBERNETES, "apps", APPS);
    short["spec"]["expirationSeconds"] = json!(10);
    let (status, annotation) = audited.denied_with_annotation("robot", &short).await;
    assert_eq!(status["code"], 422);
    assert!(annotation.starts_with("Invalid: "), "{annotation:?}");
    assert!(metric_sum(client, REQUESTS, "failure").await >= 8.0);

    // A granted request, and one that is not for webhooks, have no such annotation.
    accepts(client.post(&token_of("robot"), &of_group(KUBERNETES, "apps", APPS)).await).unwrap();
    let lines = |log: &str| log.matches("token request for a webhook refused").count();
    assert_eq!(lines(&audited.server.log()), 8);
    let pod = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "nope"}}});
    let (status, annotation) = audited.denied_with_annotation("robot", &pod).await;
    assert_eq!((status["code"].as_u64(), annotation.as_str()), (Some(404), ""));
    assert_eq!(lines(&audited.server.log()), 8);
}

#[tokio::test]
async fn a_denial_because_of_the_feature_gate_is_recorded() {
    let audited = start_audited(&[]).await;
    account(&audited.client, "robot", KUBERNETES, &["apps"]).await;
    let (status, annotation) =
        audited.denied_with_annotation("robot", &request(VALIDATING, KUBERNETES, "apps", APPS)).await;
    assert_eq!(status["code"], 400);
    assert!(annotation.starts_with("FeatureGateDisabled: "), "{annotation:?}");
    audited.wait_for_log_line("FeatureGateDisabled").await;
}

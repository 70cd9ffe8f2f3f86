//! A request cannot be padded until its audit event is too large to be written.

use bytes::Bytes;
use conformance::server::write_private;
use conformance::{Client, Server};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The default of `--audit-log-truncate-max-event-size`.
const MAX_EVENT: usize = 100 << 10;

/// The audit events of a user agent.
fn lines(folder: &TempDir, agent: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
    // The last line may be incomplete, because the server writes events of its own requests.
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    let is_its = |line: &&str| serde_json::from_str::<Value>(line).unwrap()["userAgent"] == agent;
    whole.lines().filter(is_its).map(str::to_owned).collect()
}

async fn send(client: &Client, method: Method, path: &str, headers: &[(&str, &str)], body: &Value) -> u16 {
    let body = if body.is_null() { Bytes::new() } else { serde_json::to_vec(body).unwrap().into() };
    client.send(method, path, headers, body).await.unwrap().code
}

#[tokio::test]
async fn the_event_of_a_padded_request_is_truncated_to_the_limit() {
    let folder = TempDir::new().unwrap();
    let policy = folder.path().join("policy.yaml");
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n";
    write_private(&policy, rules).unwrap();
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", folder.path().join("audit.log").display()),
        "--audit-log-truncate-enabled=true".to_owned(),
    ];
    let server = Server::serve(&flags.each_ref().map(String::as_str)).await.unwrap();
    let client = server.client().unwrap();
    let json = ("content-type", "application/json");
    let padded_path = format!("{SECRETS}?{}", "&".repeat(60_000));
    let padded_id = "<".repeat(60_000);
    let secret = json!({"metadata": {"generateName": "hidden-"}, "stringData": {"k": "v"}});

    let code =
        send(&client, Method::GET, &padded_path, &[("user-agent", "long-uri"), json], &Value::Null).await;
    assert_eq!(code, 200);
    let code = send(&client, Method::POST, &padded_path, &[("user-agent", "create"), json], &secret).await;
    assert_eq!(code, 201);
    let headers = [("user-agent", "long-id"), ("audit-id", padded_id.as_str()), json];
    send(&client, Method::GET, SECRETS, &headers, &Value::Null).await;
    let extra = ("impersonate-extra-padding", padded_id.as_str());
    let headers = [("user-agent", "long-extra"), ("impersonate-user", "someone"), extra, json];
    send(&client, Method::GET, SECRETS, &headers, &Value::Null).await;

    for (agent, verb, who) in [
        ("long-uri", "list", "user"),
        ("create", "create", "user"),
        ("long-id", "list", "user"),
        ("long-extra", "list", "impersonatedUser"),
    ] {
        let lines = lines(&folder, agent);
        let last = lines.last().unwrap_or_else(|| panic!("{agent}: there is no event"));
        for line in &lines {
            assert!(line.len() <= MAX_EVENT, "{agent}: {} bytes", line.len());
        }
        let event: Value = serde_json::from_str(last).unwrap();
        assert_eq!(event["stage"], "ResponseComplete", "{agent}");
        assert_eq!(event["verb"], verb, "{agent}");
        assert!(event["requestURI"].as_str().unwrap().starts_with(SECRETS), "{agent}");
        let name = if who == "user" { "admin" } else { "someone" };
        assert_eq!(event[who]["username"], name, "{agent}");
        assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true", "{agent}");
        assert!(event["responseStatus"]["code"].is_number(), "{agent}");
    }

    // An event that fits is not truncated.
    send(&client, Method::POST, SECRETS, &[("user-agent", "plain"), json], &secret).await;
    let plain: Value = serde_json::from_str(lines(&folder, "plain").last().unwrap()).unwrap();
    assert!(plain["requestObject"].is_object(), "{plain}");
    assert!(plain["annotations"].get("audit.k8s.io/truncated").is_none(), "{plain}");
}

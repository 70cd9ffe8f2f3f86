//! Admin access to devices: only in labeled namespaces, and always logged, audited and counted.

use conformance::{Server, accepts, rejects};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::claims::{REFUSED, V1, claim, label, template};

#[tokio::test]
async fn admin_access_is_allowed_only_in_labeled_namespaces() {
    let betas = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true";
    let server = Server::serve(&[betas]).await.unwrap();
    let client = server.client().unwrap();
    let old = json!({"metadata": {"name": "old"}, "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu", "adminAccess": true}]}}});
    let cases = [
        (format!("{V1}/resourceclaims"), claim("c", true)),
        (format!("{V1}/resourceclaimtemplates"), template("t")),
        ("/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims".to_owned(), old),
        ("/apis/resource.k8s.io/v1beta2/namespaces/default/resourceclaims".to_owned(), claim("newer", true)),
    ];
    for (path, object) in &cases {
        let status = rejects(client.post(path, object).await, 422, "Invalid").unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(
            message.ends_with(&format!("spec.devices.requests[0].adminAccess: Forbidden: {REFUSED}")),
            "{message}"
        );
    }
    accepts(client.post(&format!("{V1}/resourceclaims"), &claim("plain", false)).await).unwrap();
    // A label with another value does not count.
    label(&client, json!({"resource.kubernetes.io/admin-access": "false"})).await;
    rejects(client.post(&cases[0].0, &cases[0].1).await, 422, "Invalid").unwrap();
    label(&client, json!({"resource.kubernetes.io/admin-access": "true"})).await;
    for (path, object) in &cases {
        let answer = client.post(path, object).await.unwrap();
        assert!(!answer.header("warning").contains("admin access"), "{path}");
        accepts(Ok(answer)).unwrap();
    }
    let stored = accepts(client.get(&format!("{V1}/resourceclaims/old")).await).unwrap();
    assert_eq!(stored["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"], true);
    // Removing the label takes effect at the next request. The KEP's own label works too, with a warning.
    label(&client, json!({"resource.kubernetes.io/admin-access": null})).await;
    rejects(client.post(&cases[0].0, &claim("late", true)).await, 422, "Invalid").unwrap();
    label(&client, json!({"kubernetes.io/dra-admin-access": "true"})).await;
    let answer = client.post(&cases[0].0, &claim("late", true)).await.unwrap();
    assert!(answer.header("warning").contains("use resource.kubernetes.io/admin-access instead"));
    accepts(Ok(answer)).unwrap();
    let metrics = client.get("/metrics").await.unwrap().text();
    assert!(
        metrics.contains("apiserver_device_admin_access_total{allowed=\"true\",kind=\"ResourceClaim\"} 4"),
        "{metrics}"
    );
}

/// Every object that requests admin access, admitted or rejected, is in the audit log, the server's log and a counter, with the
/// label that allowed it; no other object is.
#[tokio::test]
async fn requests_for_admin_access_are_logged_audited_and_counted() {
    let folder = TempDir::new().unwrap();
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
        .unwrap();
    let log = folder.path().join("audit.log");
    let flags =
        [format!("--audit-policy-file={}", policy.display()), format!("--audit-log-path={}", log.display())];
    let server = Server::serve(&[&flags[0], &flags[1]]).await.unwrap();
    let client = server.client().unwrap();
    let (claims, templates) = (format!("{V1}/resourceclaims"), format!("{V1}/resourceclaimtemplates"));
    // The audit ID of each request, and its annotation about admin access.
    let noted = |id: &str| -> Option<String> {
        let text = std::fs::read_to_string(&log).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut of_it = events.filter(|event| event["auditID"] == id && event["stage"] == "ResponseComplete");
        let event = of_it.next().unwrap();
        event["annotations"]["resource.k8s.io/admin-access"].as_str().map(str::to_owned)
    };
    let refused = client.post(&claims, &claim("early", true)).await.unwrap();
    assert_eq!(
        noted(refused.header("audit-id")).as_deref(),
        Some("default/early: refused, the namespace has no label that allows it")
    );
    rejects(Ok(refused), 422, "Invalid").unwrap();
    let kep = json!({"kubernetes.io/dra-admin-access": "true"});
    let kubernetes =
        json!({"kubernetes.io/dra-admin-access": null, "resource.kubernetes.io/admin-access": "true"});
    for (labels, path, object, note) in [
        (&kubernetes, &claims, claim("plain", false), None),
        (
            &kubernetes,
            &claims,
            claim("look", true),
            Some("default/look: allowed by the label resource.kubernetes.io/admin-access"),
        ),
        (
            &json!({"resource.kubernetes.io/admin-access": null}),
            &templates,
            template("not"),
            Some("default/not: refused, the namespace has no label that allows it"),
        ),
        (
            &kep,
            &templates,
            template("looks"),
            Some("default/looks: allowed by the label kubernetes.io/dra-admin-access"),
        ),
    ] {
        label(&client, labels.clone()).await;
        let answer = client.post(path, &object).await.unwrap();
        assert_eq!(noted(answer.header("audit-id")).as_deref(), note, "{object}");
        let is_refused = note.is_some_and(|note| note.contains("refused"));
        assert_eq!(answer.code, if is_refused { 422 } else { 201 }, "{object}");
    }
    // A dry run creates no object, and neither does a request that fails for another reason.
    accepts(client.post(&format!("{claims}?dryRun=All"), &claim("dry", true)).await).unwrap();
    rejects(client.post(&claims, &claim("look", true)).await, 409, "AlreadyExists").unwrap();
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("admin access to devices")).collect();
    for (line, words) in lines.iter().zip([
        [
            "refused",
            "user=admin",
            "namespace=default",
            "name=\"early\"",
            "resource=\"resourceclaims.resource.k8s.io\"",
        ],
        [
            "allowed",
            "label=\"resource.kubernetes.io/admin-access\"",
            "namespace=default",
            "name=\"look\"",
            "resource=\"resourceclaims.resource.k8s.io\"",
        ],
        [
            "refused",
            "user=admin",
            "namespace=default",
            "name=\"not\"",
            "resource=\"resourceclaimtemplates.resource.k8s.io\"",
        ],
        [
            "allowed",
            "label=\"kubernetes.io/dra-admin-access\"",
            "namespace=default",
            "name=\"looks\"",
            "resource=\"resourceclaimtemplates.resource.k8s.io\"",
        ],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    assert!(lines.len() >= 4, "{lines:?}");
    let metrics = client.get("/metrics").await.unwrap().text();
    for series in [
        r#"apiserver_device_admin_access_total{allowed="false",kind="ResourceClaim"} 1"#,
        r#"apiserver_device_admin_access_total{allowed="false",kind="ResourceClaimTemplate"} 1"#,
        r#"apiserver_device_admin_access_total{allowed="true",kind="ResourceClaim"} 1"#,
        r#"apiserver_device_admin_access_total{allowed="true",kind="ResourceClaimTemplate"} 1"#,
    ] {
        assert!(metrics.contains(series), "{series}\n{metrics}");
    }
}

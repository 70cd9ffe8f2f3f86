//! Health checks, metrics, audit annotations, log lines and `/debug/admission` of static manifests.

use std::fs;

use conformance::{Client, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::folder::{Folders, counted, denied, hash_in_force, refusing, tries};
use crate::reload::{RELOADS, SOON, refuses};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

#[tokio::test]
async fn every_plugin_with_a_folder_has_a_readiness_check() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let page = client.get("/readyz?verbose").await.unwrap().text();
    for plugin in [
        "ValidatingAdmissionPolicy",
        "MutatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
        "MutatingAdmissionWebhook",
    ] {
        assert!(page.contains(&format!("[+]manifest-admission-config/{plugin} ok\n")), "{page}");
        let one = client.get(&format!("/readyz/manifest-admission-config/{plugin}")).await.unwrap();
        assert_eq!((one.code, one.text().as_str()), (200, "ok"));
        let live = client.get(&format!("/livez/manifest-admission-config/{plugin}")).await.unwrap();
        assert_eq!(live.code, 404, "a failed reload is no reason to start anew");
    }
    // An invalid set leaves the last valid one active, and the server ready.
    fs::write(folders.policies().join("guard.yaml"), "a: [").unwrap();
    eventually(SOON, async || match counted(&client, RELOADS, &["\"failure\""]).await {
        0 => Err(conformance::Problem::new("no failure was counted")),
        _ => Ok(()),
    })
    .await
    .unwrap();
    assert_eq!(client.get("/readyz").await.unwrap().code, 200);

    let free = Server::serve(&[]).await.unwrap();
    let page = free.client().unwrap().get("/readyz?verbose").await.unwrap().text();
    assert!(!page.contains("manifest-admission-config"), "{page}");
}

/// The decision metrics of the KEP beside Kubernetes' own, and the log lines.
#[tokio::test]
async fn decisions_of_manifests_have_their_own_metrics_and_loads_are_logged() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let server = folders.server().await;
    let client = server.client().unwrap();
    let constraints = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let policy = json!({"metadata": {"name": "api"}, "spec": {"matchConstraints": constraints,
        "validations": [{"expression": "!object.metadata.name.endsWith('worse')"}]}});
    accepts(client.post(POLICIES, &policy).await).unwrap();
    let bindings = POLICIES.replace("policies", "policybindings");
    let binding =
        json!({"metadata": {"name": "api"}, "spec": {"policyName": "api", "validationActions": ["Deny"]}});
    accepts(client.post(&bindings, &binding).await).unwrap();
    denied(tries(&client, "bad").await, "guard", "guard-binding", "no bad");
    eventually(SOON, async || rejects(tries(&client, "worse").await, 422, "Invalid")).await.unwrap();
    let (own, kep) = (
        "apiserver_validating_admission_policy_check_total",
        "apiserver_validating_admission_manifest_policy_check_total",
    );
    let of = |policy: &str| format!("policy=\"{policy}\"");
    let guard = of("guard.static.k8s.io");
    let labels =
        [guard.as_str(), "policy_binding=\"guard-binding.static.k8s.io\"", "enforcement_action=\"deny\""];
    assert_eq!(counted(&client, own, &labels).await, 1);
    assert_eq!(counted(&client, kep, &labels).await, 1);
    assert_eq!(counted(&client, own, &[&of("api")]).await, 1);
    assert_eq!(counted(&client, kep, &[&of("api")]).await, 0, "it is no manifest's");
    let seconds = "apiserver_validating_admission_manifest_policy_check_duration_seconds_count";
    assert_eq!(counted(&client, seconds, &[&guard]).await, 1);

    assert!(server.log().contains("Loaded 2 manifest-based policy configurations"), "{}", server.log());
    assert!(server.log().contains("Loaded 0 manifest-based webhook configurations"), "{}", server.log());
    folders.write("guard.yaml", &refusing("guard", "other"));
    refuses(&client, "guard", "other").await;
    assert!(server.log().contains("Reloaded manifest-based configurations"), "{}", server.log());
}

#[tokio::test]
async fn audit_events_name_the_evaluated_manifests() {
    let home = tempfile::tempdir().unwrap();
    let (policy, log) = (home.path().join("policy.yaml"), home.path().join("audit.log"));
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    fs::write(&policy, rules).unwrap();
    let folders = Folders::new();
    folders.write("a.yaml", &refusing("first", "bad"));
    folders.write("b.yaml", &refusing("second", "worse"));
    folders.write("c.yaml", &refusing("secrets", "bad").replace("configmaps", "secrets"));
    // Its match conditions exclude every request, so that it is never evaluated.
    let excluded =
        "  matchConditions: [{name: never, expression: \"request.name == 'nobody'\"}]\n  validations:";
    folders.write("d.yaml", &refusing("excluded", "bad").replace("  validations:", excluded));
    let mutating = |name: &str, conditions: &str| {
        format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {{name: {name}.static.k8s.io}}\nspec:\n  failurePolicy: Fail\n  reinvocationPolicy: Never\n  matchConstraints:\n    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]\n  matchConditions: [{{name: m, expression: '{conditions}'}}]\n  mutations:\n  - patchType: ApplyConfiguration\n    applyConfiguration: {{expression: 'Object{{metadata: Object.metadata{{labels: {{\"a\": \"b\"}}}}}}'}}\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicyBinding\nmetadata: {{name: {name}.static.k8s.io}}\nspec: {{policyName: {name}.static.k8s.io}}\n"
        )
    };
    folders.write_for("MutatingAdmissionPolicy", "m.yaml", &mutating("changes", "true"));
    folders.write_for("MutatingAdmissionPolicy", "n.yaml", &mutating("changes-not", "false"));
    let server = folders
        .server_with(&[
            &format!("--audit-policy-file={}", policy.display()),
            &format!("--audit-log-path={}", log.display()),
        ])
        .await;
    let client = server.client().unwrap();
    let annotations = async |id: &str, name: &str| {
        let headers = [("audit-id", id), ("content-type", "application/json")];
        let body = json!({"metadata": {"name": name}}).to_string();
        let path = format!("{}?dryRun=All", crate::folder::MAPS);
        client.send(Method::POST, &path, &headers, body.into()).await.unwrap();
        eventually(SOON, async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let event = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                .find(|event| event["auditID"] == id && event["stage"] == "ResponseComplete");
            event
                .map(|event| event["annotations"].clone())
                .ok_or_else(|| conformance::Problem::new("no event"))
        })
        .await
        .unwrap()
    };
    for (id, name) in [("one", "good"), ("two", "bad")] {
        let annotations = annotations(id, name).await;
        let named = &annotations["source.admission.k8s.io/manifest-policies"];
        assert_eq!(named, "changes.static.k8s.io,first.static.k8s.io,second.static.k8s.io", "{annotations}");
        assert!(annotations.get("source.admission.k8s.io/manifest-webhooks").is_none(), "{annotations}");
    }
}

/// The entries of a plugin on `/debug/admission`.
async fn entries(client: &Client, plugin: &str) -> (Value, Vec<Value>) {
    let answer = client
        .send(Method::GET, "/debug/admission", &[("accept", "application/json")], bytes::Bytes::new())
        .await
        .unwrap();
    assert_eq!((answer.code, answer.header("content-type")), (200, "application/json"), "{}", answer.text());
    let page = answer.json();
    let plugin = page["plugins"].as_array().unwrap().iter().find(|shown| shown["name"] == plugin).unwrap();
    (plugin.clone(), plugin["entries"].as_array().unwrap().clone())
}

#[tokio::test]
async fn debug_admission_shows_the_evaluation_order_to_authorized_users_only() {
    let folders = Folders::new();
    let path = folders.policies().join("guard.yaml");
    folders.write("guard.yaml", &refusing("guard", "bad"));
    folders.write("zzz.yaml", refusing("zzz", "x").split("---").next().unwrap());
    let server = folders.server().await;
    let client = server.client().unwrap();
    let made = accepts(
        client
            .post(
                POLICIES,
                &json!({"metadata": {"name": "api"}, "spec": {"matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]},
                    "failurePolicy": "Ignore", "validations": [{"expression": "object.data.size() > 3"}]}}),
            )
            .await,
    )
    .unwrap();
    denied(tries(&client, "bad").await, "guard", "guard-binding", "no bad");
    accepts(tries(&client, "good").await).unwrap();

    let names = [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook",
    ];
    let page = client
        .send(Method::GET, "/debug/admission", &[("accept", "application/json")], bytes::Bytes::new())
        .await
        .unwrap()
        .json();
    let shown: Vec<&str> =
        page["plugins"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(shown, names);
    let (plugin, all) = entries(&client, "ValidatingAdmissionPolicy").await;
    let order: Vec<&str> = all.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(order, ["guard.static.k8s.io", "zzz.static.k8s.io", "api"]);
    let guard = &all[0];
    assert_eq!(guard["source"], "manifest");
    assert_eq!((&guard["file"], &guard["line"]), (&json!(path), &json!(1)));
    assert_eq!((&guard["calls"], &guard["denials"]), (&json!(2), &json!(1)), "{guard}");
    assert!(guard["hash"].as_str().unwrap().starts_with("sha256:"));
    assert!(guard["compile"]["microseconds"].is_i64() && guard["compile"]["estimatedCost"]["min"].is_i64());
    assert_eq!(guard["match"]["matchConstraints"]["resourceRules"][0]["resources"], json!(["configmaps"]));
    let binding = &guard["bindings"][0];
    assert_eq!(binding["name"], "guard-binding.static.k8s.io");
    assert_eq!(
        (&binding["line"], &binding["validationActions"]),
        (&json!(16), &json!(["Deny"])),
        "{binding}"
    );
    assert_eq!(all[1]["inForce"], false, "nothing binds it");
    assert_eq!(all[2]["source"], "api");
    assert_eq!(all[2]["uid"], made["metadata"]["uid"]);
    assert_eq!(all[2]["failurePolicy"], "Ignore");
    let hash = hash_in_force(&client, "ValidatingAdmissionPolicy").await;
    assert_eq!(plugin["manifests"]["hash"], json!(hash));
    assert_eq!(plugin["manifests"]["objects"], 3);
    assert_eq!(plugin["manifests"]["lastReload"]["status"], "success");

    // An unchanged policy keeps its counts after a reload; a failed reload is shown.
    folders.write("zzz.yaml", &refusing("zzz", "y"));
    refuses(&client, "zzz", "y").await;
    let (_, all) = entries(&client, "ValidatingAdmissionPolicy").await;
    assert_eq!(all[0]["denials"], 1);
    assert_eq!(all[1]["inForce"], true);
    folders.write("zzz.yaml", "a: [");
    eventually(SOON, async || {
        let (plugin, _) = entries(&client, "ValidatingAdmissionPolicy").await;
        match plugin["manifests"]["lastReload"]["status"].as_str() {
            Some("failure") => {
                assert!(plugin["manifests"]["lastFailure"]["error"].to_string().contains("zzz.yaml"));
                Ok(())
            }
            other => Err(conformance::Problem::new(format!("{other:?}"))),
        }
    })
    .await
    .unwrap();

    let text = client.get("/debug/admission").await.unwrap();
    assert!(text.header("content-type").starts_with("text/plain"));
    assert!(
        text.text().contains(&format!("1. guard.static.k8s.io ({}:1), fails closed", path.display())),
        "{}",
        text.text()
    );
    let one = client.get("/debug/admission?plugin=MutatingAdmissionPolicy").await.unwrap().text();
    assert!(one.contains("MutatingAdmissionPolicy: on") && !one.contains("guard"), "{one}");
    rejects(client.get("/debug/admission?plugin=Nothing").await, 400, "BadRequest").unwrap();
    rejects(client.post("/debug/admission", &json!({})).await, 405, "").unwrap();

    // Alice lacks the permission for this path, and anonymous clients have none.
    rejects(client.as_token(Some("alicetoken")).get("/debug/admission").await, 403, "Forbidden").unwrap();
    rejects(client.as_token(None).get("/debug/admission").await, 403, "Forbidden").unwrap();
    let rules = json!([{"nonResourceURLs": ["/debug/admission"], "verbs": ["get"]}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "admission-reader"}, "rules": rules});
    accepts(client.post(&format!("{rbac}/clusterroles"), &role).await).unwrap();
    let binding = json!({"metadata": {"name": "admission-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admission-reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    accepts(client.post(&format!("{rbac}/clusterrolebindings"), &binding).await).unwrap();
    assert_eq!(client.as_token(Some("alicetoken")).get("/debug/admission").await.unwrap().code, 200);
}

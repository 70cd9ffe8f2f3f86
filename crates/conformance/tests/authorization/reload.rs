//! Reloading of the authorization configuration and of its kubeconfigs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use conformance::{Problem, Server, eventually};

use super::chain::{AuthorizerWebhook, Files, by_user, metrics, review};

const TIME: Duration = Duration::from_secs(20);
const RELOADS: &str = "apiserver_authorization_config_controller_automatic_reloads_total";
const RBAC: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: RBAC\n  name: rbac\n";

/// The number of reloads with this result.
async fn reload_count(server: &Server, status: &str) -> u64 {
    let lines = metrics(server, &[RELOADS, &format!("status=\"{status}\"")]).await;
    lines.first().and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

async fn wait_for_decision_about_alice(server: &Server, wanted: bool) {
    eventually(TIME, async || {
        let status = review(server, "alice", "default").await;
        if status["allowed"] == wanted { Ok(()) } else { Err(Problem::new(status.to_string())) }
    })
    .await
    .unwrap();
}

async fn wait_for_reload_count(server: &Server, status: &str, wanted: u64) {
    eventually(TIME, async || {
        let counted = reload_count(server, status).await;
        if counted == wanted { Ok(()) } else { Err(Problem::new(format!("{status}: {counted}"))) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_replaced_file_is_loaded_and_an_invalid_one_leaves_the_old_chain() {
    let hook = by_user("hook").await;
    let files = Files::new();
    files.put("authz.yaml", RBAC);
    let server = files.serve().await;
    wait_for_decision_about_alice(&server, false).await;

    let with_hook = files.configuration(&[AuthorizerWebhook::new("hook", &hook)]);
    files.put("authz.yaml", &with_hook);
    wait_for_decision_about_alice(&server, true).await;
    wait_for_reload_count(&server, "success", 1).await;

    // Malformed YAML, a chain without RBAC, a chain with a type that was missing at the start, and a missing kubeconfig.
    for (i, bad) in [
        "nonsense: [".to_owned(),
        with_hook.replace("- type: RBAC\n  name: rbac\n", ""),
        format!("{with_hook}- type: Node\n  name: node\n"),
        with_hook.replace("hook.kubeconfig", "nope.kubeconfig"),
    ]
    .iter()
    .enumerate()
    {
        files.put("authz.yaml", bad);
        wait_for_reload_count(&server, "failure", u64::try_from(i).unwrap() + 1).await;
        assert_eq!(review(&server, "alice", &format!("still-{i}")).await["allowed"], true, "{bad}");
    }
    let log = server.log();
    assert!(log.contains("authz.yaml:2:1: yaml:") && log.contains("missing required types: [RBAC]"), "{log}");
    assert!(
        log.contains("authorizer type Node is not allowed if it was not enabled at initial server startup"),
        "{log}"
    );

    // A file with the same chain in other words is no reload; a file with another chain is one.
    let before = reload_count(&server, "success").await;
    files.put("authz.yaml", &with_hook);
    wait_for_reload_count(&server, "success", before + 1).await;
    files.put("authz.yaml", &format!("# the same\n{}", with_hook.replace("/v1\n", "/v1beta1\n")));
    files.put("authz.yaml", &with_hook.replace("name: hook", "name: hook2"));
    wait_for_reload_count(&server, "success", before + 2).await;
}

#[tokio::test]
async fn a_missing_file_leaves_the_chain_and_is_loaded_when_it_returns() {
    let hook = by_user("hook").await;
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("hook", &hook)]).await;
    std::fs::remove_file(files.path("authz.yaml")).unwrap();
    wait_for_reload_count(&server, "failure", 1).await;
    assert_eq!(review(&server, "alice", "default").await["allowed"], true);
    files.put("authz.yaml", RBAC);
    wait_for_decision_about_alice(&server, false).await;
}

#[tokio::test]
async fn a_symbolic_link_swapped_as_in_config_map_volumes_is_noticed() {
    let hook = by_user("hook").await;
    let files = Files::new();
    for (version, text) in
        [("v1", files.configuration(&[AuthorizerWebhook::new("hook", &hook)])), ("v2", RBAC.to_owned())]
    {
        std::fs::create_dir(files.path(version)).unwrap();
        std::fs::write(files.path(version).join("authz.yaml"), text).unwrap();
    }
    let link = |to: &str| {
        let new = files.path("..data_tmp");
        std::os::unix::fs::symlink(to, &new).unwrap();
        std::fs::rename(&new, files.path("..data")).unwrap();
    };
    link("v1");
    std::os::unix::fs::symlink("..data/authz.yaml", files.path("authz.yaml")).unwrap();
    let server = files.serve().await;
    wait_for_decision_about_alice(&server, true).await;
    link("v2");
    wait_for_decision_about_alice(&server, false).await;
    link("v1");
    wait_for_decision_about_alice(&server, true).await;
}

#[tokio::test]
async fn the_kubeconfig_of_a_webhook_is_reloaded() {
    let (old, new) = (by_user("old").await, by_user("new").await);
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("hook", &old)]).await;
    assert_eq!(review(&server, "alice", "default").await["reason"], "old likes alice");
    files.put("hook.kubeconfig", "nonsense: [");
    wait_for_reload_count(&server, "failure", 1).await;
    assert_eq!(review(&server, "alice", "other").await["reason"], "old likes alice");
    files.put("hook.kubeconfig", &new.kubeconfig("/hook", "hook-token"));
    eventually(TIME, async || {
        let status = review(&server, "alice", "default").await;
        if status["reason"] == "new likes alice" { Ok(()) } else { Err(Problem::new(status.to_string())) }
    })
    .await
    .unwrap();
}

/// Waits until the last success is newer than the last failure, as an alert compares the two timestamps.
async fn wait_until_failure_is_cleared(server: &Server) {
    const TIMES: &str = "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds";
    let time = async |status: &str| -> f64 {
        let lines = metrics(server, &[TIMES, &format!("status=\"{status}\"")]).await;
        lines.first().and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    };
    eventually(TIME, async || {
        let (success, failure) = (time("success").await, time("failure").await);
        if failure > 0.0 && success > failure {
            Ok(())
        } else {
            Err(Problem::new(format!("success {success}, failure {failure}")))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn restoring_the_valid_content_clears_the_failure() {
    let hook = by_user("hook").await;
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("hook", &hook)]).await;
    let good = std::fs::read_to_string(files.path("authz.yaml")).unwrap();
    let kubeconfig = std::fs::read_to_string(files.path("hook.kubeconfig")).unwrap();

    files.put("authz.yaml", "nonsense: [");
    wait_for_reload_count(&server, "failure", 1).await;
    files.put("authz.yaml", &good);
    wait_for_reload_count(&server, "success", 1).await;
    wait_until_failure_is_cleared(&server).await;
    assert!(server.log().contains("the authorization config is valid again"), "{}", server.log());

    // A file with the same chain in other words clears the failure.
    files.put("authz.yaml", "nonsense: [");
    wait_for_reload_count(&server, "failure", 2).await;
    files.put("authz.yaml", &format!("# a comment\n{good}"));
    wait_for_reload_count(&server, "success", 2).await;
    wait_until_failure_is_cleared(&server).await;

    // So do a restored file and a restored kubeconfig.
    std::fs::rename(files.path("authz.yaml"), files.path("away")).unwrap();
    wait_for_reload_count(&server, "failure", 3).await;
    std::fs::rename(files.path("away"), files.path("authz.yaml")).unwrap();
    wait_for_reload_count(&server, "success", 3).await;
    wait_until_failure_is_cleared(&server).await;
    files.put("hook.kubeconfig", "nonsense: [");
    wait_for_reload_count(&server, "failure", 4).await;
    files.put("hook.kubeconfig", &kubeconfig);
    wait_for_reload_count(&server, "success", 4).await;
    wait_until_failure_is_cleared(&server).await;
    assert_eq!(review(&server, "alice", "default").await["allowed"], true);
}

/// Waits until this webhook is asked about Alice.
async fn wait_for_decision_of_webhook(server: &Server, who: &str) {
    eventually(TIME, async || {
        let status = review(server, "alice", "default").await;
        if status["reason"] == format!("{who} likes alice") {
            Ok(())
        } else {
            Err(Problem::new(status.to_string()))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn kubeconfigs_of_the_active_chain_are_reloaded_even_if_the_file_is_invalid() {
    let (old, new, next, last) =
        (by_user("old").await, by_user("new").await, by_user("next").await, by_user("last").await);
    let files = Files::new();
    let server = files.serve_with(&[AuthorizerWebhook::new("hook", &old)]).await;
    let first = std::fs::read_to_string(files.path("authz.yaml")).unwrap();
    wait_for_decision_of_webhook(&server, "old").await;

    // A valid configuration with an invalid kubeconfig: the old chain stays in force and follows its own kubeconfigs.
    files.put("other.kubeconfig", "nonsense: [");
    files.put("authz.yaml", &first.replace("hook.kubeconfig", "other.kubeconfig"));
    wait_for_reload_count(&server, "failure", 1).await;
    wait_for_decision_of_webhook(&server, "old").await;
    files.put("hook.kubeconfig", &new.kubeconfig("/hook", "hook-token"));
    wait_for_decision_of_webhook(&server, "new").await;

    // A certificate file that appears later is loaded.
    let waiting = next.kubeconfig("/hook", "hook-token");
    let waiting = waiting.replace("token: hook-token", "tokenFile: later");
    assert!(waiting.contains("later"), "{waiting}");
    files.put("other.kubeconfig", &waiting);
    wait_for_reload_count(&server, "failure", 2).await;
    wait_for_decision_of_webhook(&server, "new").await;
    files.put("later", "hook-token");
    wait_for_decision_of_webhook(&server, "next").await;
    wait_for_reload_count(&server, "success", 1).await;

    // Malformed YAML instead of a configuration, and a missing file.
    files.put("authz.yaml", "nonsense: [");
    wait_for_reload_count(&server, "failure", 3).await;
    files.put("other.kubeconfig", &last.kubeconfig("/hook", "hook-token"));
    wait_for_decision_of_webhook(&server, "last").await;
    std::fs::remove_file(files.path("authz.yaml")).unwrap();
    eventually(TIME, async || {
        let failures = reload_count(&server, "failure").await;
        if failures > 3 { Ok(()) } else { Err(Problem::new(failures.to_string())) }
    })
    .await
    .unwrap();
    files.put("other.kubeconfig", &old.kubeconfig("/hook", "hook-token"));
    wait_for_decision_of_webhook(&server, "old").await;
}

#[tokio::test]
async fn requests_get_right_decisions_while_the_chain_is_swapped() {
    let (one, two) = (by_user("one").await, by_user("two").await);
    let files = Files::new();
    // All of these chains give the same decisions about Alice, Bob and Carol.
    let chains = [
        files.configuration(&[AuthorizerWebhook::new("one", &one), AuthorizerWebhook::new("two", &two)]),
        files.configuration(&[AuthorizerWebhook::new("two", &two), AuthorizerWebhook::new("one", &one)]),
        files.configuration(&[AuthorizerWebhook {
            policy: "Deny",
            conditions: &["request.user != 'nobody'"],
            ..AuthorizerWebhook::new("one", &one)
        }]),
    ];
    files.put("authz.yaml", &chains[0]);
    let server = Arc::new(files.serve().await);
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let asking: Vec<_> = (0..8)
        .map(|i| {
            let (server, stop, asked) = (Arc::clone(&server), Arc::clone(&stop), Arc::clone(&asked));
            tokio::spawn(async move {
                let client = server.client().unwrap();
                let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
                let mut n = 0;
                while !stop.load(Ordering::SeqCst) {
                    let (user, allowed, denied) = [("alice", true, false), ("bob", false, false), ("carol", false, true)][n % 3];
                    let body = serde_json::json!({"spec": {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": format!("n{i}-{}", n % 50)}}});
                    let status = conformance::accepts(client.post(path, &body).await).unwrap()["status"].clone();
                    assert_eq!(status["allowed"] == true, allowed, "{user}: {status}");
                    assert_eq!(status["denied"] == true, denied, "{user}: {status}");
                    assert!(status["evaluationError"].is_null(), "{user}: {status}");
                    asked.fetch_add(1, Ordering::SeqCst);
                    n += 1;
                }
            })
        })
        .collect();
    for round in 1..=20 {
        files.put("authz.yaml", &chains[round % chains.len()]);
        wait_for_reload_count(&server, "success", u64::try_from(round).unwrap()).await;
    }
    while asked.load(Ordering::SeqCst) < 3000 {
        tokio::task::yield_now().await;
    }
    stop.store(true, Ordering::SeqCst);
    for task in asking {
        task.await.unwrap();
    }
    assert_eq!(reload_count(&server, "failure").await, 0);
}

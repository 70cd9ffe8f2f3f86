//! The steps of an upgrade and a rollback as in KEP-6060, with a webhook in each mode.

use conformance::{Server, accepts, rejects};
use serde_json::json;
use tempfile::TempDir;
use webhook_auth::client::ApiServerKeys;
use webhook_auth::keys::KeyCache;
use webhook_auth::{ConfigurationKind, Mode, Reason};

use crate::guard::Guard;
use crate::site::{MAPS, ON, PATIENCE, Running, issuer, kube_admin, register, unregister};

const PATHS: [(&str, ConfigurationKind, Mode); 3] = [
    ("/off", ConfigurationKind::Validating, Mode::Off),
    ("/observe", ConfigurationKind::Validating, Mode::Observe),
    ("/require", ConfigurationKind::Validating, Mode::Require),
];

#[tokio::test]
async fn webhooks_require_tokens_only_while_the_gate_is_on() {
    let folder = TempDir::new().unwrap();
    let running = Running::default();
    let keys = KeyCache::new(running.clone());
    let mut guard: Option<Guard> = None;
    let mut missing = 0;
    let mut accepted = 0;
    // The feature gate, and whether a webhook that requires tokens accepts a request.
    for (step, on) in [false, true, false, true].into_iter().enumerate() {
        let flags: &[&str] = if on { &[ON] } else { &[] };
        let mut server = Server::serve_at(folder.path(), flags).await.unwrap();
        let client = server.client().unwrap();
        let issuer = issuer(&client).await;
        running.now(ApiServerKeys::new(kube_admin(&server).await, &issuer));
        if guard.is_none() {
            guard = Some(Guard::start(&keys, &issuer, &PATHS, |layer| layer).await);
        }
        let guard = guard.as_ref().unwrap();
        for (path, kind, mode) in PATHS {
            register(&client, kind, "guards", (&guard.site, path), ("", "configmaps")).await;
            let answer =
                client.post(&format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": "a"}})).await;
            if mode == Mode::Require && !on {
                rejects(answer, 500, "InternalError").unwrap();
                assert!(guard.take().is_empty(), "step {step}");
            } else {
                accepts(answer).unwrap();
                let seen = guard.take();
                assert_eq!(seen.len(), 1, "step {step} {path}");
                assert_eq!(seen[0].token.is_some(), on, "step {step} {path}");
                assert_eq!(seen[0].identity.is_some(), on && mode != Mode::Off, "step {step} {path}");
            }
            unregister(&client, kind, "guards").await;
        }
        if on {
            accepted += 1;
        } else {
            missing += 1;
        }
        for path in ["/observe", "/require"] {
            assert_eq!(guard.accepted(path), accepted, "step {step} {path}");
            assert_eq!(guard.rejected(path, Reason::Missing), missing, "step {step} {path}");
            assert_eq!(guard.rejected_in_all(path), missing, "step {step} {path}");
        }
        assert_eq!((guard.accepted("/off"), guard.rejected_in_all("/off")), (0, 0));
        server.terminate().unwrap();
        server.wait(PATIENCE).await.unwrap();
    }
}

//! Flow 1 of KEP-6060: only the API server can call a webhook.

use std::fs;
use std::time::Duration;

use conformance::{Problem, Server, accepts, eventually, rejects};
use serde_json::json;
use tempfile::TempDir;
use webhook_auth::client::{ApiServerKeys, TokenReviews};
use webhook_auth::https::Https;
use webhook_auth::keys::{Discovery, KeyCache};
use webhook_auth::verify::{Dialect, Groups, JWKS_PATH, Refresh};
use webhook_auth::{ConfigurationKind, Mode, Reason};

use crate::guard::Guard;
use crate::site::{
    DIALECTS, MAPS, ON, PATIENCE, Running, account, accounts, allow, attest, issuer, kube_admin, register,
    register_validating, review, token_for, unregister,
};

const BOTH: [(&str, ConfigurationKind, Mode); 2] = [
    ("/validate", ConfigurationKind::Validating, Mode::Require),
    ("/mutate", ConfigurationKind::Mutating, Mode::Require),
];

#[tokio::test]
async fn a_webhook_that_requires_tokens_accepts_only_the_api_server() {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let issuer = issuer(&client).await;

    // The webhook reads the keys as a pod does: with its service account, from the API server, over verified TLS.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, account(&client, "default", "guard").await).unwrap();
    let https = Https::new(&fs::read(server.data().join("ca.crt")).unwrap()).unwrap();
    let https = https.with_token_file(&server.url, &file).unwrap();
    let discovery = Discovery::new(&issuer, https).at(&server.url);
    let keys = KeyCache::new(discovery.keys_at(format!("{}{JWKS_PATH}", server.url)));
    keys.prefetch().await.unwrap();
    let guard = Guard::start(&keys, &issuer, &BOTH, |layer| layer).await;

    let mut tokens = Vec::new();
    for (path, kind, _) in BOTH {
        let made = register(&client, kind, "guards", (&guard.site, path), ("", "configmaps")).await;
        for name in ["a", "b"] {
            accepts(client.post(&format!("{MAPS}?dryRun=All"), &json!({"metadata": {"name": name}})).await)
                .unwrap();
        }
        let seen = guard.take();
        assert_eq!(seen.len(), 2);
        let identity = seen[0].identity.as_ref().unwrap();
        assert_eq!(identity.subject(), "system:serviceaccount:kube-system:webhook-auth");
        assert_eq!(identity.groups(), &Groups::Every);
        assert_eq!((identity.configuration().kind, identity.configuration().name.as_str()), (kind, "guards"));
        assert_eq!(identity.configuration().uid, made["metadata"]["uid"]);
        assert_eq!(seen[0].review["request"]["name"], "a");
        assert_eq!(seen[0].token, seen[1].token, "a token is kept");
        assert_eq!((guard.accepted(path), guard.rejected_in_all(path)), (2, 0));
        tokens.push(seen[0].token.clone().unwrap());
        unregister(&client, kind, "guards").await;
    }

    let pods = review("", "pods", "Pod");
    // No token, a service account token, and a malformed token.
    guard.refuses("/validate", None, &pods, Reason::Missing).await;
    let own = fs::read_to_string(&file).unwrap();
    guard.refuses("/validate", Some(&own), &pods, Reason::Audience).await;
    guard.refuses("/validate", Some("let me in"), &pods, Reason::Malformed).await;
    // A token of another webhook, and an unbound token with the right audience.
    guard.refuses("/mutate", Some(&tokens[0]), &pods, Reason::Audience).await;
    guard.refuses("/validate", Some(&tokens[1]), &pods, Reason::Audience).await;
    let audience = format!("{}/validate", guard.site.url);
    let plain = json!({"spec": {"audiences": [audience]}});
    let plain = accepts(client.post(&format!("{}/guard/token", accounts("default")), &plain).await).unwrap();
    let plain = plain["status"]["token"].as_str().unwrap();
    guard.refuses("/validate", Some(plain), &pods, Reason::Lifetime).await;
    let short = json!({"spec": {"audiences": [audience], "expirationSeconds": 600}});
    let short = accepts(client.post(&format!("{}/guard/token", accounts("default")), &short).await).unwrap();
    let short = short["status"]["token"].as_str().unwrap();
    guard.refuses("/validate", Some(short), &pods, Reason::NotBound).await;
    // A modified token, and one with the signature of another.
    let (signed, signature) = tokens[0].rsplit_once('.').unwrap();
    let (other, _) = tokens[1].rsplit_once('.').unwrap();
    guard.refuses("/validate", Some(&format!("{signed}.")), &pods, Reason::Signature).await;
    guard.refuses("/validate", Some(&format!("{other}.{signature}")), &pods, Reason::Signature).await;
}

#[tokio::test]
async fn a_token_is_valid_only_for_its_kind_and_group() {
    let (server, client) = serve_with_client(&[ON]).await;
    let issuer = issuer(&client).await;
    let keys = KeyCache::new(ApiServerKeys::new(kube_admin(&server).await, &issuer));
    let guard = Guard::start(&keys, &issuer, &BOTH, |layer| layer).await;
    account(&client, "default", "robot").await;
    allow(&client, "default", "robot", "attest", &attest(&["*", "apps"])).await;
    let audience = format!("{}/validate", guard.site.url);
    for (kind, name) in [(ConfigurationKind::Validating, "right"), (ConfigurationKind::Mutating, "wrong")] {
        register(&client, kind, name, (&guard.site, "/validate"), ("apps", "nothings")).await;
    }
    for dialect in DIALECTS {
        let ask = async |kind, name, group| {
            token_for(&client, ("default", "robot"), dialect, (kind, name), &audience, group).await.unwrap()
        };
        let deployments = review("apps", "deployments", "Deployment");
        // A token bound to the other kind of configuration, for the same URL.
        for group in ["*", "apps"] {
            let wrong = ask(ConfigurationKind::Mutating, "wrong", group).await;
            guard.refuses("/validate", Some(&wrong), &deployments, Reason::WrongKind).await;
        }
        let scoped = ask(ConfigurationKind::Validating, "right", "apps").await;
        assert_eq!(guard.ask("/validate", Some(&scoped), &deployments).await.code, 200);
        let seen = guard.take();
        let identity = seen[0].identity.as_ref().unwrap();
        assert_eq!(identity.groups(), &Groups::One("apps".to_owned()));
        assert_eq!(identity.subject(), "system:serviceaccount:default:robot");
        guard.refuses("/validate", Some(&scoped), &review("", "secrets", "Secret"), Reason::Group).await;
        let mut hidden = review("apps", "deployments", "Secret");
        hidden["request"]["kind"]["group"] = json!("");
        guard.refuses("/validate", Some(&scoped), &hidden, Reason::Group).await;
        let every = ask(ConfigurationKind::Validating, "right", "*").await;
        assert_eq!(guard.ask("/validate", Some(&every), &review("", "secrets", "Secret")).await.code, 200);
        guard.take();
    }
}

async fn serve_with_client(flags: &[&str]) -> (Server, conformance::Client) {
    let server = Server::serve(flags).await.unwrap();
    let client = server.client().unwrap();
    (server, client)
}

#[tokio::test]
async fn tokens_of_a_new_signing_key_are_accepted_and_of_a_withdrawn_key_rejected() {
    let folder = TempDir::new().unwrap();
    let running = Running::default();
    let refresh = Refresh { interval: Duration::from_millis(10), ..Refresh::default() };
    let keys = KeyCache::with_refresh(running.clone(), refresh);
    let mut guard: Option<Guard> = None;
    let mut earlier: Option<String> = None;
    for step in 0..2 {
        let mut server = Server::serve_at(folder.path(), &[ON]).await.unwrap();
        let client = server.client().unwrap();
        let issuer = issuer(&client).await;
        running.now(ApiServerKeys::new(kube_admin(&server).await, &issuer));
        if guard.is_none() {
            let made = Guard::start(&keys, &issuer, &BOTH, |layer| layer).await;
            register_validating(&client, &made.site, ("", "configmaps")).await;
            guard = Some(made);
        }
        let guard = guard.as_ref().unwrap();
        accepts(client.post(MAPS, &json!({"metadata": {"name": format!("step-{step}")}})).await).unwrap();
        let seen = guard.take();
        assert!(seen[0].identity.is_some());
        if let Some(earlier) = &earlier {
            guard
                .refuses(
                    "/validate",
                    Some(earlier),
                    &review("", "configmaps", "ConfigMap"),
                    Reason::UnknownKey,
                )
                .await;
        }
        earlier = seen[0].token.clone();
        server.terminate().unwrap();
        server.wait(PATIENCE).await.unwrap();
        // The next server has another key, and does not publish the old one.
        fs::remove_file(folder.path().join("sa.key")).unwrap();
    }
}

#[tokio::test]
async fn a_webhook_with_token_reviews_rejects_tokens_of_deleted_configurations_and_accounts() {
    let (server, client) = serve_with_client(&[ON]).await;
    let issuer = issuer(&client).await;
    let kube = kube_admin(&server).await;
    let keys = KeyCache::new(ApiServerKeys::new(kube.clone(), &issuer));
    let reviews = TokenReviews::new(kube);
    let guard = Guard::start(&keys, &issuer, &BOTH, |layer| layer.review(reviews.clone())).await;
    let audience = format!("{}/validate", guard.site.url);
    let deployments = review("apps", "deployments", "Deployment");
    for (account_name, gone) in [("one", None), ("two", Some("two"))] {
        account(&client, "default", account_name).await;
        allow(&client, "default", account_name, "attest", &attest(&["*"])).await;
        register_validating(&client, &guard.site, ("apps", "nothings")).await;
        let bound = (ConfigurationKind::Validating, "guards");
        let token =
            token_for(&client, ("default", account_name), Dialect::Attestations, bound, &audience, "*").await;
        let token = token.unwrap();
        assert_eq!(guard.ask("/validate", Some(&token), &deployments).await.code, 200);
        if let Some(account) = gone {
            accepts(client.delete(&format!("{}/{account}", accounts("default"))).await).unwrap();
        } else {
            unregister(&client, ConfigurationKind::Validating, "guards").await;
        }
        // The API server itself may accept the token for some seconds more, from its cache.
        eventually(PATIENCE, async || match guard.ask("/validate", Some(&token), &deployments).await.code {
            401 => Ok(()),
            code => Err(Problem::new(format!("still {code}"))),
        })
        .await
        .unwrap();
        assert!(guard.rejected("/validate", Reason::Reviewed) >= 1);
    }
}

#[tokio::test]
async fn a_webhook_that_requires_tokens_rejects_calls_without_and_the_failure_policy_decides() {
    let (server, client) = serve_with_client(&[]).await;
    let issuer = issuer(&client).await;
    let keys = KeyCache::new(ApiServerKeys::new(kube_admin(&server).await, &issuer));
    let guard = Guard::start(&keys, &issuer, &BOTH, |layer| layer).await;
    register_validating(&client, &guard.site, ("", "configmaps")).await;
    let map = json!({"metadata": {"name": "a"}});
    let status = rejects(client.post(MAPS, &map).await, 500, "InternalError").unwrap();
    assert!(status["message"].as_str().unwrap().contains("failed calling webhook"), "{status}");
    assert_eq!(guard.rejected("/validate", Reason::Missing), 1);
    // Metrics for a roll-out and a rollback.
    let page = client.get("/metrics").await.unwrap().text();
    let counted = "apiserver_admission_webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"guard.example.com\",operation=\"CREATE\",rejection_code=\"401\",type=\"validating\"} 1";
    assert!(page.contains(counted), "{page}");
    unregister(&client, ConfigurationKind::Validating, "guards").await;
    accepts(client.post(MAPS, &map).await).unwrap();
}

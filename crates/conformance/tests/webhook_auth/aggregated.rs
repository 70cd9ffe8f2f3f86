//! Flows 2 and 3 of KEP-6060: an aggregated API server calls webhooks for its own group, and cannot for other groups.

use conformance::{Client, Problem, Server, accepts, eventually, rejects};
use serde_json::json;
use webhook_auth::client::{ApiServerKeys, WebhookTokens};
use webhook_auth::keys::KeyCache;
use webhook_auth::tokens::TokenError;
use webhook_auth::verify::{Configuration, Dialect, Groups};
use webhook_auth::{ClientConfig, ConfigurationKind, Mode, Reason};

use crate::guard::Guard;
use crate::site::{
    BINDINGS, PATIENCE, accounts, configurations, issuer, kube_admin, register, review, token_for, unregister,
};
use crate::turtles::{ACCOUNT, GROUP, SERVICES, TURTLES, TurtleApiServer};

const PATHS: [(&str, ConfigurationKind, Mode); 2] = [
    ("/review/validate", ConfigurationKind::Validating, Mode::Require),
    ("/review/mutate", ConfigurationKind::Mutating, Mode::Require),
];

struct AggregatedSetup {
    server: Server,
    client: Client,
    guard: Guard,
    turtles: TurtleApiServer,
}

/// A server, a webhook of each kind for turtles, and the unregistered API server of turtles.
async fn start_setup(dialect: Dialect) -> AggregatedSetup {
    let server = Server::up().await.unwrap();
    let client = server.client().unwrap();
    let issuer = issuer(&client).await;
    let keys = KeyCache::new(ApiServerKeys::new(kube_admin(&server).await, &issuer));
    let guard = Guard::start(&keys, &issuer, &PATHS, |layer| layer).await;
    for (path, kind, _) in PATHS {
        register(&client, kind, "splinter", (&guard.site, path), (GROUP, "ninjaturtles")).await;
    }
    let turtles = TurtleApiServer::start(&server.url, &client, dialect).await;
    AggregatedSetup { server, client, guard, turtles }
}

impl AggregatedSetup {
    /// Creates a turtle through the server under test, once its API server is registered.
    async fn create(&self) {
        eventually(PATIENCE, async || {
            let answer = self.client.post(TURTLES, &json!({"metadata": {"name": "leonardo"}})).await?;
            match answer.code {
                201 => Ok(()),
                code => Err(Problem::new(format!("{code}: {}", answer.text()))),
            }
        })
        .await
        .unwrap();
    }
}

async fn check_tokens_only_for_own_group(dialect: Dialect) {
    let scene = start_setup(dialect).await;
    scene.turtles.register(&scene.client).await;
    scene.create().await;
    scene.turtles.webhook_caller.take();
    scene.guard.take();

    // Webhooks of both kinds were called, each with its own token, which is reused.
    scene.create().await;
    let first = scene.turtles.webhook_caller.take();
    scene.create().await;
    let second = scene.turtles.webhook_caller.take();
    assert_eq!(first, second);
    let kinds: Vec<_> = first.iter().map(|called| (called.kind, called.code)).collect();
    assert_eq!(kinds, [(ConfigurationKind::Mutating, 200), (ConfigurationKind::Validating, 200)]);
    let tokens: Vec<String> = first.into_iter().map(|called| called.token.unwrap()).collect();
    assert_ne!(tokens[0], tokens[1]);
    for seen in scene.guard.take() {
        let identity = seen.identity.unwrap();
        assert_eq!(identity.subject(), format!("system:serviceaccount:turtles:{ACCOUNT}"));
        assert_eq!(identity.groups(), &Groups::One(GROUP.to_owned()));
        assert_eq!(identity.configuration().name, "splinter");
        assert_eq!(seen.review["request"]["resource"]["group"], GROUP);
    }

    // The same token for another group, and at the other webhook.
    let (mutate, validate) = (PATHS[1].0, PATHS[0].0);
    let secrets = review("", "secrets", "Secret");
    scene.guard.refuses(mutate, Some(&tokens[0]), &secrets, Reason::Group).await;
    scene.guard.refuses(validate, Some(&tokens[1]), &secrets, Reason::Group).await;
    let own = review(GROUP, "ninjaturtles", "NinjaTurtle");
    scene.guard.refuses(validate, Some(&tokens[0]), &own, Reason::Audience).await;
    assert_eq!(scene.guard.ask(validate, Some(&tokens[1]), &own).await.code, 200);
    scene.guard.take();

    // A token for all groups is refused, and without a token the webhook answers 401.
    let kube = kube_admin(&scene.server).await;
    let everything = WebhookTokens::in_dialect(kube, "turtles", ACCOUNT, "*", dialect);
    let configuration =
        scene.client.get(&format!("{}/splinter", configurations(ConfigurationKind::Validating))).await;
    let configuration = accepts(configuration).unwrap();
    let bound = Configuration {
        kind: ConfigurationKind::Validating,
        name: "splinter".to_owned(),
        uid: configuration["metadata"]["uid"].as_str().unwrap().to_owned(),
    };
    let config = ClientConfig::url(format!("{}{validate}", scene.guard.site.url));
    let refused = everything.token(&bound, &config).await.unwrap_err();
    assert!(matches!(refused, TokenError::Refused(_)), "{refused}");
    scene.guard.refuses(validate, None, &secrets, Reason::Missing).await;
}

#[tokio::test]
async fn an_aggregated_api_server_gets_tokens_only_for_its_group_with_kubernetes_names() {
    check_tokens_only_for_own_group(Dialect::Attestations).await;
}

#[tokio::test]
async fn an_aggregated_api_server_gets_tokens_only_for_its_group_with_kep_names() {
    check_tokens_only_for_own_group(Dialect::AttestationClaims).await;
}

#[tokio::test]
async fn without_permission_or_account_no_token_is_issued_and_the_webhook_denies() {
    let scene = start_setup(Dialect::Attestations).await;
    scene.turtles.register(&scene.client).await;
    scene.create().await;
    scene.turtles.webhook_caller.take();
    scene.guard.take();
    let binding = format!("{BINDINGS}/{ACCOUNT}-attest");
    accepts(scene.client.delete(&binding).await).unwrap();
    // New configurations need new tokens.
    for (path, kind, _) in PATHS {
        unregister(&scene.client, kind, "splinter").await;
        register(&scene.client, kind, "splinter", (&scene.guard.site, path), (GROUP, "ninjaturtles")).await;
    }
    let refused = async || {
        rejects(
            scene.client.post(TURTLES, &json!({"metadata": {"name": "raphael"}})).await,
            403,
            "Forbidden",
        )
        .unwrap();
        let calls = scene.turtles.webhook_caller.take();
        assert_eq!(calls.iter().map(|called| called.code).collect::<Vec<_>>(), [401, 401]);
        calls[0].token.clone().unwrap_err()
    };
    let why = refused().await;
    assert!(why.contains("attest"), "{why}");
    accepts(scene.client.delete(&format!("{}/{ACCOUNT}", accounts("turtles"))).await).unwrap();
    let why = refused().await;
    assert!(why.contains("not found"), "{why}");
}

#[tokio::test]
async fn a_group_without_an_apiservice_gets_no_token_with_kep_names() {
    let scene = start_setup(Dialect::AttestationClaims).await;
    let bound = (ConfigurationKind::Validating, "splinter");
    let audience = format!("{}{}", scene.guard.site.url, PATHS[0].0);
    let ask = async || {
        token_for(&scene.client, ("turtles", ACCOUNT), Dialect::AttestationClaims, bound, &audience, GROUP)
            .await
    };
    let denied = ask().await.unwrap_err();
    assert!(denied.to_string().contains("token request denied"), "{denied}");
    scene.turtles.register(&scene.client).await;
    ask().await.unwrap();
    accepts(scene.client.delete(&format!("{SERVICES}/v1.ninja.turtles.ai")).await).unwrap();
    let denied = ask().await.unwrap_err();
    assert!(denied.to_string().contains("token request denied"), "{denied}");
}

//! Measures the cost of a webhook authorizer for requests that do not call it: match conditions and cached decisions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::User;
use authz::config::{FailurePolicy, SubjectAccessReviewVersion, WebhookConfiguration};
use authz::webhook::{AuthorizationFuture, ReviewTransport, SendError, WebhookAuthorizer, WebhookResponse};
use authz::{AuthorizationAttributes, ConditionCompiler, Conditions, NoObserver, ReviewCompiler};
use criterion::{Criterion, criterion_group, criterion_main};

/// Allows every request immediately, with a fixed clock.
struct Willing(Instant);

impl ReviewTransport for Willing {
    fn send<'a>(&'a self, _: &'a [u8]) -> AuthorizationFuture<'a, Result<WebhookResponse, SendError>> {
        let body = br#"{"status":{"allowed":true}}"#.to_vec();
        Box::pin(async { Ok(WebhookResponse { status: 200, body, ..WebhookResponse::default() }) })
    }

    fn pause(&self, _: Duration) -> AuthorizationFuture<'_, ()> {
        Box::pin(async {})
    }

    fn now(&self) -> Instant {
        self.0
    }
}

fn conditions(expressions: &[&str]) -> Conditions {
    let compiler = ReviewCompiler::default();
    Conditions::new(expressions.iter().filter_map(|e| compiler.compile(e).ok()).collect())
}

fn chain(criterion: &mut Criterion) {
    let user = User::named("alice").in_groups(["devs", "system:authenticated"]);
    let attributes = AuthorizationAttributes::resource("get", "", "pods").in_namespace("default").named("x");
    let set = conditions(&[
        "has(request.resourceAttributes)",
        "request.resourceAttributes.namespace == 'kube-system'",
        "!('system:serviceaccounts:kube-system' in request.groups)",
    ]);
    criterion.bench_function("three match conditions, the second false", |b| {
        b.iter(|| set.evaluate(black_box(&user), black_box(&attributes)));
    });
    let configuration = WebhookConfiguration {
        authorized_ttl: Some(Duration::from_mins(5)),
        unauthorized_ttl: None,
        timeout: Duration::from_secs(3),
        version: SubjectAccessReviewVersion::V1,
        failure_policy: FailurePolicy::Deny,
        kubeconfig: "/k".into(),
        conditions: Conditions::default(),
    };
    let sender = Arc::new(Willing(Instant::now()));
    let webhook = WebhookAuthorizer::new("w", &configuration, sender, Arc::new(NoObserver));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    criterion.bench_function("webhook, answer kept", |b| {
        b.iter(|| runtime.block_on(webhook.decide(black_box(&user), black_box(&attributes))));
    });
}

criterion_group!(benches, chain);
criterion_main!(benches);

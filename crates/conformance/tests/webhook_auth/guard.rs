//! A webhook that is built with the `webhook-auth` library.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use conformance::HttpResponse;
use serde_json::{Value, json};
use webhook_auth::extract::Review;
use webhook_auth::keys::KeyCache;
use webhook_auth::layer::WebhookAuthLayer;
use webhook_auth::{ClientConfig, ConfigurationKind, Counts, Expected, Identity, Mode, Reason};

use crate::site::Site;

#[derive(Clone, Debug)]
pub(crate) struct ReceivedReview {
    pub(crate) identity: Option<Identity>,
    pub(crate) token: Option<String>,
    pub(crate) review: Value,
}

/// One server with several webhooks, each at its own path.
pub(crate) struct Guard {
    pub(crate) site: Site,
    counts: BTreeMap<&'static str, Arc<Counts>>,
    seen: Arc<Mutex<Vec<ReceivedReview>>>,
}

/// Allows every authenticated review.
async fn allow(
    State(seen): State<Arc<Mutex<Vec<ReceivedReview>>>>,
    headers: HeaderMap,
    review: Review<Value>,
) -> ([(&'static str, &'static str); 1], String) {
    let token = headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review.request.uid, "allowed": true},
    });
    seen.lock().unwrap().push(ReceivedReview {
        identity: review.verified.map(|verified| verified.identity().clone()),
        token: token.map(str::to_owned),
        review: review.review,
    });
    ([("content-type", "application/json")], answer.to_string())
}

impl Guard {
    /// Webhooks at these paths, each for tokens bound to a configuration of its kind. `more` may change the layer.
    pub(crate) async fn start(
        keys: &KeyCache,
        issuer: &str,
        paths: &[(&'static str, ConfigurationKind, Mode)],
        more: impl Fn(WebhookAuthLayer) -> WebhookAuthLayer,
    ) -> Self {
        let seen: Arc<Mutex<Vec<ReceivedReview>>> = Arc::default();
        let counts: BTreeMap<_, Arc<Counts>> =
            paths.iter().map(|(path, ..)| (*path, Arc::default())).collect();
        let site = Site::start("guard.default.svc", None, |url| {
            let mut router = Router::new();
            for (path, kind, mode) in paths {
                let audience = ClientConfig::url(format!("{url}{path}")).audience().unwrap();
                let layer = WebhookAuthLayer::new(Expected::new(issuer, audience, *kind), keys.clone());
                let layer = layer.unwrap().mode(*mode).counts(Arc::clone(&counts[path]));
                router = router.merge(Router::new().route(path, post(allow)).route_layer(more(layer)));
            }
            router.with_state(Arc::clone(&seen))
        })
        .await;
        Guard { site, counts, seen }
    }

    /// Returns the authenticated reviews received so far and forgets them.
    pub(crate) fn take(&self) -> Vec<ReceivedReview> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    pub(crate) fn accepted(&self, path: &str) -> u64 {
        self.counts[path].accepted()
    }

    pub(crate) fn rejected(&self, path: &str, reason: Reason) -> u64 {
        self.counts[path].rejected(reason)
    }

    pub(crate) fn rejected_in_all(&self, path: &str) -> u64 {
        self.counts[path].rejected_in_all()
    }

    /// Calls the webhook directly, as a client that is no API server.
    pub(crate) async fn ask(&self, path: &str, token: Option<&str>, review: &Value) -> HttpResponse {
        self.site.caller(token).post(path, review).await.unwrap()
    }

    /// Calls the webhook directly; it must answer with this status and reason.
    pub(crate) async fn refuses(&self, path: &str, token: Option<&str>, review: &Value, reason: Reason) {
        let before = self.rejected(path, reason);
        let answer = self.ask(path, token, review).await;
        assert_eq!(answer.code, reason.status(), "{reason:?}: {}", answer.text());
        assert_eq!(self.rejected(path, reason), before + 1, "{reason:?}");
        assert!(self.take().is_empty(), "{reason:?}");
    }
}

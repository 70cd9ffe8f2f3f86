//! The [`Transport`] of admission webhooks: sends reviews through the server's outbound HTTP client.

pub(crate) mod account;
mod aggregated;
mod credentials;
pub(crate) mod resolve;
mod tokens;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::admission::AdmissionFuture;
use ::admission::webhook::{
    OutgoingReview, Transport, TransportError, WebhookEndpoint, WebhookReply, WebhookTarget,
};
use api::field::quote;
use http::header::{HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use outbound::{
    AnswerLimit, BearerToken, ClientIdentity, Endpoint, LongRetry, OutboundCredential, OutboundRequest,
    OutboundTarget, Reach, ServerTrust, WEBHOOK_AGENT, call_webhook,
};
use requests::request_info::clean_path;
use storage::Store;
use value::Str;

use crate::loopback::Loopback;
use crate::metrics::CustomMetrics;

pub(crate) use credentials::KubeconfigCredentials;
pub(crate) use tokens::{TokenMetrics, WebhookTokenSource};

/// Timeout of a webhook that sets none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Most targets whose connections are reused; above it the least recently used one is dropped.
const MAX_TARGETS: usize = 200;

/// Sends reviews to the mutating or to the validating webhooks.
pub(crate) struct WebhookTransport {
    store: Store,
    credentials: KubeconfigCredentials,
    /// Sent to webhooks for which there are no credentials. `None`: no tokens are sent.
    tokens: Option<Arc<WebhookTokenSource>>,
    targets: Mutex<WebhookTargets>,
    metrics: Arc<CustomMetrics>,
    /// For webhooks of aggregated API servers, which are called through this server.
    loopback: Loopback,
    aggregated_answers: AnswerLimit,
}

/// Recently called targets, each with the value of `clock` at its last use.
#[derive(Default)]
struct WebhookTargets {
    by_endpoint: HashMap<TargetKey, (u64, OutboundTarget)>,
    clock: u64,
}

impl WebhookTargets {
    fn find(&mut self, key: &TargetKey) -> Option<OutboundTarget> {
        self.clock += 1;
        let (used, target) = self.by_endpoint.get_mut(key)?;
        *used = self.clock;
        Some(target.clone())
    }
}

/// A webhook and, if it is a service, the `HOST:PORT` that was chosen.
type TargetKey = (WebhookTarget, Option<String>);

/// The address of a webhook before its service is resolved.
struct WebhookAddress {
    /// `https://HOST[:PORT]`, as errors show it.
    origin: String,
    /// `HOST:PORT`, by which credentials are chosen.
    host_port: String,
    /// The path, cleaned as Kubernetes' client does.
    path: String,
    /// Does not offer HTTP/2, so that calls spread over the servers behind the name.
    http1_only: bool,
}

impl WebhookTransport {
    /// Resolves services from `store`. A webhook without `credentials` gets a token.
    pub(crate) fn new(
        store: Store,
        credentials: KubeconfigCredentials,
        tokens: Option<Arc<WebhookTokenSource>>,
        metrics: Arc<CustomMetrics>,
        loopback: Loopback,
    ) -> Self {
        let (targets, aggregated_answers) = (Mutex::default(), AnswerLimit::default());
        WebhookTransport { store, credentials, tokens, targets, metrics, loopback, aggregated_answers }
    }

    async fn exchange(&self, outgoing: OutgoingReview<'_>) -> Result<WebhookReply, TransportError> {
        let located = locate(&outgoing.target.endpoint).map_err(TransportError::Unusable)?;
        if aggregated::is_own_service(&outgoing.target.endpoint) {
            return aggregated::send_review(&self.loopback, &self.aggregated_answers, outgoing, &located)
                .await;
        }
        // An unusable configuration is reported before a token is requested or a service is resolved.
        let mut endpoint = self.endpoint(outgoing.target, &located)?;
        let bearer = self.token(&outgoing, &endpoint).await;
        // The timeout of the webhook does not include the wait for a token.
        let begun = Instant::now();
        let limit = time_left(&outgoing, begun);
        let path = format!("{}?timeout={}", located.path, go_seconds(limit));
        let url = format!("{}{path}", located.origin);
        let failed = |why: &str| TransportError::Failed(format!("Post {}: {why}", quote(&url)));
        if limit.is_zero() {
            return Err(failed("context deadline exceeded"));
        }
        let dial = match &outgoing.target.endpoint {
            WebhookEndpoint::Service { namespace, name, port, .. } => {
                Some(resolve::endpoint(&self.store, namespace, name, *port).map_err(|why| failed(&why))?)
            }
            WebhookEndpoint::Url(_) | WebhookEndpoint::Unset => None,
        };
        endpoint.reach = if dial.is_some() { Reach::Cluster } else { Reach::Configured };
        endpoint.dial.clone_from(&dial);
        let target = self.target((outgoing.target.clone(), dial), endpoint)?;
        let path: PathAndQuery =
            path.parse().map_err(|_| failed("net/url: invalid character in the path of the webhook"))?;
        let mut request = OutboundRequest::post_json(outgoing.body, limit.saturating_sub(begun.elapsed()));
        request.path = Some(path);
        request.bearer = bearer;
        request.headers.insert(USER_AGENT, HeaderValue::from_static(WEBHOOK_AGENT));
        // As in kube-apiserver, a wait that is too long uses up the time limit.
        let answer = call_webhook(&target, request, LongRetry::WaitUntilLimit).await.map_err(|failure| {
            self.metrics.webhook_failed(&failure);
            TransportError::Failed(failure.message)
        })?;
        // The reply is parsed next.
        heavy_lane::enter_lane(answer.body.len()).await;
        Ok(WebhookReply {
            status: answer.status,
            content_type: answer.content_type().to_owned(),
            body: answer.body.to_vec(),
        })
    }

    /// The token to send with a review. `None` if the kubeconfig has credentials for the webhook, or if TLS does not verify its name.
    async fn token(&self, outgoing: &OutgoingReview<'_>, endpoint: &Endpoint) -> Option<BearerToken> {
        let (tokens, recipient) = (self.tokens.as_ref()?, outgoing.recipient?);
        let has_own = endpoint.identity.is_some() || endpoint.credential != OutboundCredential::None;
        if has_own || !endpoint.is_proven() {
            return None;
        }
        tokens.get(recipient, outgoing.deadline).await
    }

    /// The endpoint of a webhook, with its CAs and the credentials for it.
    fn endpoint(
        &self,
        webhook: &WebhookTarget,
        located: &WebhookAddress,
    ) -> Result<Endpoint, TransportError> {
        let unusable = |why: &str| TransportError::Unusable(why.to_owned());
        let url: Uri = format!("{}{}", located.origin, located.path)
            .parse()
            .map_err(|_| unusable("the URL of the webhook cannot be called"))?;
        let mut endpoint = Endpoint::new(url);
        endpoint.http1_only = located.http1_only;
        if !webhook.ca_bundle.is_empty() {
            endpoint.trust = ServerTrust::Authorities(webhook.ca_bundle.clone());
        }
        if let Some(user) = self.credentials.for_host(&located.host_port) {
            endpoint.credential = user.credential.clone();
            endpoint.identity.clone_from(&user.identity);
        }
        Ok(endpoint)
    }

    /// Returns the target of an endpoint with its open connections, or builds a new one.
    fn target(&self, key: TargetKey, endpoint: Endpoint) -> Result<OutboundTarget, TransportError> {
        let lock = || self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(target) = lock().find(&key) {
            return Ok(target);
        }
        // Outside the lock, because parsing certificates takes time.
        let target =
            OutboundTarget::new(endpoint).map_err(|error| TransportError::Unusable(error.to_string()))?;
        let mut targets = lock();
        if let Some(target) = targets.find(&key) {
            return Ok(target);
        }
        let WebhookTargets { by_endpoint, clock } = &mut *targets;
        if by_endpoint.len() >= MAX_TARGETS {
            let oldest = by_endpoint.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                by_endpoint.remove(&oldest);
            }
        }
        by_endpoint.insert(key, (*clock, target.clone()));
        Ok(target)
    }
}

impl Transport for WebhookTransport {
    fn send<'a>(
        &'a self,
        outgoing: OutgoingReview<'a>,
    ) -> AdmissionFuture<'a, Result<WebhookReply, TransportError>> {
        Box::pin(self.exchange(outgoing))
    }

    fn new_uid(&self) -> Str {
        runtime::random::uid()
    }
}

/// The timeout of a call that starts at `now`: that of the webhook, limited by the deadline of the request.
fn time_left(outgoing: &OutgoingReview<'_>, now: Instant) -> Duration {
    let own = outgoing.timeout.unwrap_or(DEFAULT_TIMEOUT);
    outgoing.deadline.map_or(own, |deadline| deadline.saturating_duration_since(now).min(own))
}

/// Errors if a webhook has neither a service nor a URL, or a URL that cannot be parsed.
fn locate(endpoint: &WebhookEndpoint) -> Result<WebhookAddress, String> {
    match endpoint {
        WebhookEndpoint::Unset => Err("webhook configuration must have either service or URL".to_owned()),
        WebhookEndpoint::Service { namespace, name, port, path } => {
            let host_port = format!("{}:{port}", WebhookEndpoint::service_host(namespace, name));
            Ok(WebhookAddress {
                origin: format!("https://{host_port}"),
                host_port,
                path: clean_path(path),
                http1_only: true,
            })
        }
        WebhookEndpoint::Url(url) => {
            let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
            let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
                return Err("Unparsable URL: it has no scheme or no host".to_owned());
            };
            let host_port = match authority.port() {
                Some(_) => authority.to_string(),
                None => format!("{authority}:443"),
            };
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            let is_local = host.eq_ignore_ascii_case("localhost")
                || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
            Ok(WebhookAddress {
                origin: format!("{scheme}://{authority}"),
                host_port,
                path: clean_path(uri.path()),
                http1_only: !is_local,
            })
        }
    }
}

/// A duration, rounded up to whole seconds, as Go prints it.
fn go_seconds(limit: Duration) -> String {
    let seconds = limit.as_secs() + u64::from(limit.subsec_nanos() > 0);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Client credentials: a certificate, a token or a password.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookClientCredentials {
    identity: Option<ClientIdentity>,
    credential: OutboundCredential,
}

impl std::fmt::Debug for WebhookTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookTransport")
    }
}

#[cfg(test)]
mod tests;

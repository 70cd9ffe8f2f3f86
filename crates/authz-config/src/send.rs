//! [`ReviewTransport`] over the server's outbound HTTP client.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use authz::webhook::{AuthorizationFuture, ReviewTransport, SendError, WebhookResponse};
use http::HeaderValue;
use http::uri::PathAndQuery;
use outbound::{FailureKind, OutboundRequest, OutboundTarget, from_kubeconfig, max_escaped};
use runtime::version;

/// Size limit in bytes of an answer, besides the review that it may repeat: it is parsed between other requests.
const MAX_ANSWER: usize = 64 << 10;

/// Sends reviews to one webhook.
struct ReviewSender {
    target: OutboundTarget,
    path: PathAndQuery,
    timeout: Duration,
    agent: HeaderValue,
}

/// Builds the client of a webhook from its kubeconfig. The files that it reads are added to `files`, even if it cannot be built.
pub fn sender(
    name: &str,
    kubeconfig: &Path,
    timeout: Duration,
    files: &mut Vec<PathBuf>,
) -> Result<Arc<dyn ReviewTransport>, String> {
    let endpoint = from_kubeconfig(kubeconfig, files)?;
    let target = OutboundTarget::new(endpoint).map_err(|error| error.to_string())?;
    if target.withholds_credentials() {
        tracing::warn!(
            webhook = name,
            "credentials are not sent to the webhook, because its kubeconfig does not verify the server; set certificate-authority"
        );
    }
    let nanos = i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX);
    let path = format!("{}?timeout={}", target.url().path(), api::time::format_duration(nanos));
    let path = path.parse().map_err(|_| format!("{path} is no path"))?;
    let agent = format!("kube-apiserver/{} ({})", version::GIT_VERSION, version::PLATFORM);
    let agent = HeaderValue::try_from(agent).map_err(|error| error.to_string())?;
    Ok(Arc::new(ReviewSender { target, path, timeout, agent }))
}

impl ReviewTransport for ReviewSender {
    fn send<'a>(&'a self, review: &'a [u8]) -> AuthorizationFuture<'a, Result<WebhookResponse, SendError>> {
        Box::pin(async move {
            let mut request = OutboundRequest::post_json(review.to_vec(), self.timeout);
            request.max_answer = request.max_answer.min(max_escaped(review.len()).saturating_add(MAX_ANSWER));
            request.path = Some(self.path.clone());
            request.headers.insert(http::header::USER_AGENT, self.agent.clone());
            match self.target.send(request).await {
                Ok(answer) => Ok(WebhookResponse {
                    status: answer.status,
                    content_type: answer.content_type().to_owned(),
                    retry_after: answer.headers.contains_key(http::header::RETRY_AFTER),
                    body: answer.body.to_vec(),
                }),
                Err(failure) => Err(match failure.kind {
                    FailureKind::Timeout => SendError::Timeout(failure.message),
                    FailureKind::Reset => SendError::Reset(failure.message),
                    FailureKind::Connect
                    | FailureKind::Broken
                    | FailureKind::TooLarge
                    | FailureKind::Unsent => SendError::Other(failure.message),
                }),
            }
        })
    }

    fn pause(&self, how_long: Duration) -> AuthorizationFuture<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

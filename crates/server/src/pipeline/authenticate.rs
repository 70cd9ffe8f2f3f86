//! The authenticate stage of network requests.

use std::time::{Instant, SystemTime};

use api::Status;
use authn::{AuthenticationMethod, Caller, Evidence, Headers};
use http::HeaderMap;
use requests::request_info::RequestInfo;
use tracing::debug;
use transport::accept::Peer;

use crate::metrics::Outcomes;
use crate::state::State;

pub(super) struct HttpHeaders<'a>(pub(super) &'a HeaderMap);

impl Headers for HttpHeaders<'_> {
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(http::HeaderValue::as_bytes)
    }

    fn each(&self, visit: &mut dyn FnMut(&str, &[u8])) {
        for (name, value) in self.0 {
            visit(name.as_str(), value.as_bytes());
        }
    }
}

/// A user with valid credentials, and the audit annotations and warnings of authentication.
pub(super) struct Authenticated {
    pub(super) caller: Caller,
    pub(super) annotations: Vec<(&'static str, String)>,
    pub(super) warnings: Vec<String>,
}

/// Authenticates the request. The 401 response does not reveal why credentials are invalid; the debug log
/// does.
pub(super) async fn authenticate(
    state: &State,
    peer: &Peer,
    info: &RequestInfo,
    headers: &HeaderMap,
) -> Result<Authenticated, Status> {
    let began = Instant::now();
    let verified = peer.certificates.verify(&state.authentication.trust.load_full());
    let verified = verified.as_deref();
    let evidence = Evidence {
        certificate: verified.and_then(|v| v.client.as_deref()),
        proxy_certificate: verified.and_then(|v| v.proxy.as_deref()),
        headers: &HttpHeaders(headers),
        path: &info.path,
        now: SystemTime::now(),
    };
    let attempt = state.authentication.authenticator.load_full().authenticate(&evidence).await;
    let count = |outcome: Outcomes<'_>| state.metrics.authentication.attempted(outcome, began.elapsed());
    let refused = |outcome: Outcomes<'_>, why: &str| {
        debug!(address = %peer.address, error = why, "cannot authenticate a request");
        count(outcome);
        Err(Status::unauthorized())
    };
    match attempt.result {
        // A client with an untrusted certificate does not get anonymous access.
        Ok(Some(caller))
            if *caller.via() == AuthenticationMethod::Anonymous
                && verified.is_some_and(|v| v.is_untrusted) =>
        {
            refused(Outcomes::Error, "the client certificate is not signed by a known authority")
        }
        Ok(Some(caller)) => {
            count(Outcomes::Success(caller.name()));
            if *caller.via() != AuthenticationMethod::Anonymous {
                peer.connection.claim();
            }
            let warnings = attempt.warnings.iter().map(ToString::to_string).collect();
            Ok(Authenticated { caller, annotations: attempt.annotations, warnings })
        }
        Ok(None) => refused(Outcomes::Failure, "no credentials"),
        Err(error) => refused(Outcomes::Error, &error.to_string()),
    }
}

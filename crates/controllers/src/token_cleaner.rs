//! Deletes the Secrets of bootstrap tokens that have expired.

use std::sync::Arc;
use std::time::Duration;

use api::bootstrap_token::BootstrapTokenSecret;
use api::{Status, meta, namespaces};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource, unless_gone};
use crate::bootstrap_signer::is_token;
use crate::drive::{self, Controller, ReconcileOutcome};

pub(crate) const NAME: &str = "token-cleaner";

/// Maximum time between two looks at a token.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

struct TokenCleaner<A> {
    api: Arc<A>,
    secrets: Arc<ResourceKind>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let Some(secrets) = api.kind("v1", "Secret") else { return };
    let sources = vec![WatchSource::Kind(Arc::clone(&secrets))];
    drive::run(TokenCleaner { api: Arc::clone(&api), secrets }, api, sources, stop).await;
}

impl<A: Api> Controller for TokenCleaner<A> {
    /// The name of a Secret in `kube-system`.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        if change.deleted || !is_token(change) {
            return Vec::new();
        }
        let wait = remaining(&change.object, self.api.now());
        wait.map(|wait| (change.object_ref.name.clone(), wait)).into_iter().collect()
    }

    async fn reconcile(&self, name: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let object_ref = self.secrets.object_ref(namespaces::SYSTEM, &name);
        let Some(secret) = self.api.get(&object_ref)? else { return Ok(ReconcileOutcome::Done) };
        let Some(wait) = remaining(&secret, self.api.now()) else { return Ok(ReconcileOutcome::Done) };
        if !wait.is_zero() {
            return Ok(ReconcileOutcome::After(wait));
        }
        let mut options = Value::default();
        options.set_at(&["preconditions", "uid"], meta::uid(&secret));
        unless_gone(self.api.delete(&object_ref, &options).await)?;
        Ok(ReconcileOutcome::Done)
    }
}

/// Time until a Secret must be looked at again; zero if its token has expired, `None` if it has no token or one that never expires.
fn remaining(secret: &Value, now: i64) -> Option<Duration> {
    let micros = BootstrapTokenSecret::of(secret)?.expiry.remaining(now.saturating_mul(1_000_000))?;
    Some(Duration::from_micros(micros).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests;

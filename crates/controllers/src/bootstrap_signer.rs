//! Signs the ConfigMap `cluster-info` in `kube-public` with each bootstrap token, so that a joining node can verify it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::bootstrap_token::{self, BootstrapTokenSecret};
use api::{Status, namespaces};
use aws_lc_rs::hmac;
use tokio::sync::watch;
use value::go::base64;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource, unless_gone};
use crate::drive::{self, Controller, ReconcileOutcome};

pub(crate) const NAME: &str = "bootstrap-signer";

const CONFIG_MAP: &str = "cluster-info";
/// The key with the signed content.
const CONTENT: &str = "kubeconfig";
/// The prefix of the keys with signatures; the ID of the token follows.
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";

struct BootstrapSigner<A> {
    api: Arc<A>,
    secrets: Arc<ResourceKind>,
    config_maps: Arc<ResourceKind>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let (Some(secrets), Some(config_maps)) = (api.kind("v1", "Secret"), api.kind("v1", "ConfigMap")) else {
        return;
    };
    let sources = vec![
        WatchSource::Kind(Arc::clone(&secrets)),
        WatchSource::Named(Arc::clone(&config_maps), CONFIG_MAP.into()),
    ];
    let controller = BootstrapSigner { api: Arc::clone(&api), secrets, config_maps };
    drive::run(controller, api, sources, stop).await;
}

/// The only key of the controller: the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClusterInfo;

impl<A: Api> Controller for BootstrapSigner<A> {
    type Key = ClusterInfo;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn observe(&self, change: &ObjectChange) -> Vec<(ClusterInfo, Duration)> {
        let object_ref = &change.object_ref;
        let concerns = if object_ref.kind == self.secrets {
            is_token(change)
        } else {
            object_ref.namespace == namespaces::PUBLIC && !change.deleted
        };
        if concerns { vec![(ClusterInfo, Duration::ZERO)] } else { Vec::new() }
    }

    async fn reconcile(&self, _: ClusterInfo) -> Result<ReconcileOutcome<ClusterInfo>, Status> {
        let object_ref = self.config_maps.object_ref(namespaces::PUBLIC, CONFIG_MAP);
        let Some(stored) = self.api.get(&object_ref)? else { return Ok(ReconcileOutcome::Done) };
        let secrets = self.api.list(&self.secrets, namespaces::SYSTEM)?;
        let now = self.api.now().saturating_mul(1_000_000);
        if let Some(signed) = needed_update(&stored, &secrets, now) {
            unless_gone(self.api.update(&object_ref, "", &signed).await)?;
        }
        Ok(ReconcileOutcome::Done)
    }
}

/// Reports whether a change of a Secret concerns a bootstrap token.
pub(crate) fn is_token(change: &ObjectChange) -> bool {
    change.object_ref.namespace == namespaces::SYSTEM
        && change.object.str_at(&["type"]) == Some(bootstrap_token::SECRET_TYPE)
}

/// The ConfigMap with the signatures of all valid tokens; `None` if it has them already. `now` is in microseconds since the Unix epoch.
fn needed_update(stored: &Value, secrets: &[Value], now: i64) -> Option<Value> {
    let content = stored.str_at(&["data", CONTENT])?;
    let tokens = secrets.iter().filter_map(BootstrapTokenSecret::of);
    let wanted: BTreeMap<Str, String> = tokens
        .filter_map(|token| {
            signing_token(&token, now).map(|id| (id.clone(), signature(content, &id, &token.secret)))
        })
        .collect();
    let data = stored.at(&["data"]).and_then(Value::as_map)?;
    let present =
        data.iter().filter_map(|(key, value)| Some((key.strip_prefix(SIGNATURE_PREFIX)?, value.as_str())));
    if present.eq(wanted.iter().map(|(id, signature)| (id.as_str(), Some(signature.as_str())))) {
        return None;
    }
    let mut new = Value::map(
        data.iter()
            .filter(|(key, _)| !key.starts_with(SIGNATURE_PREFIX))
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    for (id, signature) in wanted {
        new.set_at(&[&format!("{SIGNATURE_PREFIX}{id}")], signature);
    }
    let mut signed = stored.clone();
    signed.set_at(&["data"], new);
    Some(signed)
}

/// The ID of a token that may sign now.
fn signing_token(token: &BootstrapTokenSecret, now: i64) -> Option<Str> {
    let id = token.id_of_name.clone().filter(|id| id.as_bytes() == token.id)?;
    let may_sign = token.allows_signing && !token.secret.is_empty() && !token.expiry.has_passed(now);
    may_sign.then_some(id)
}

/// The JSON Web Signature (HS256) of the content, without the content: `HEADER..SIGNATURE`.
fn signature(content: &str, id: &str, secret: &[u8]) -> String {
    let header = base64::RAW_URL.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let signed = format!("{header}.{}", base64::RAW_URL.encode(content));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{header}..{}", base64::RAW_URL.encode(tag))
}

#[cfg(test)]
mod tests;

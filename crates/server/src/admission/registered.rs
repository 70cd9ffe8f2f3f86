//! Webhooks in force, kept at what is stored.

use std::sync::Arc;

use ::admission::webhook::{MutatingWebhooks, Set, ValidatingWebhooks};
use ::admission::{Meter, Stages};
use storage::Store;

use crate::admission::webhooks::{Credentials, WebhookTransport};
use crate::config::ConfigError;
use crate::follow::{Followed, follow};

/// As whom the two kinds of webhooks are asked.
#[derive(Debug, Default)]
pub(crate) struct WebhookCredentials {
    /// By `MutatingAdmissionWebhook`.
    pub(crate) mutating: Credentials,
    /// By `ValidatingAdmissionWebhook`.
    pub(crate) validating: Credentials,
}

/// How far the webhooks in force have come.
pub(crate) struct RegisteredWebhooks {
    mutating: Followed,
    validating: Followed,
}

impl RegisteredWebhooks {
    /// Puts the stored webhooks in force, as stages of the chain, and keeps them so.
    pub(crate) fn start(
        store: &Store,
        credentials: WebhookCredentials,
        meter: &Arc<dyn Meter>,
        stages: &mut Stages,
    ) -> Result<Self, ConfigError> {
        let kept = |resource: &str| {
            let set = Arc::new(Set::default());
            let follower = Arc::clone(&set);
            let scope = format!("/registry/admissionregistration.k8s.io/{resource}/");
            let followed = follow(store, &scope, move |old, new| follower.apply(old, new))?;
            Ok::<_, ConfigError>((set, followed))
        };
        let transport = |credentials| Arc::new(WebhookTransport::new(store.clone(), credentials));
        let (set, mutating) = kept("mutatingwebhookconfigurations")?;
        let stage = MutatingWebhooks::new(set, transport(credentials.mutating), Arc::clone(meter));
        stages.mutating_webhooks = Some(Arc::new(stage));
        let (set, validating) = kept("validatingwebhookconfigurations")?;
        let stage = ValidatingWebhooks::new(set, transport(credentials.validating), Arc::clone(meter));
        stages.validating_webhooks = Some(Arc::new(stage));
        Ok(RegisteredWebhooks { mutating, validating })
    }

    /// Waits until what was written at `revision` to a resource is in force.
    pub(crate) async fn reached(&self, resource: &str, revision: u64) {
        match resource {
            "mutatingwebhookconfigurations" => self.mutating.reached(revision).await,
            "validatingwebhookconfigurations" => self.validating.reached(revision).await,
            _ => {}
        }
    }
}

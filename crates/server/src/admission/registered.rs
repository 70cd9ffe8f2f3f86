//! Webhooks in force, kept at what is stored.

use std::sync::Arc;

use ::admission::manifests::Loaded;
use ::admission::webhook::{MutatingWebhooks, Set, ValidatingWebhooks};
use ::admission::{Meter, Stages};
use storage::Store;
use value::Value;

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
    mutating: (Arc<Set>, Followed),
    validating: (Arc<Set>, Followed),
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
        let mutating = kept("mutatingwebhookconfigurations")?;
        let stage = MutatingWebhooks::new(
            Arc::clone(&mutating.0),
            transport(credentials.mutating),
            Arc::clone(meter),
        );
        stages.mutating_webhooks = Some(Arc::new(stage));
        let validating = kept("validatingwebhookconfigurations")?;
        let stage = ValidatingWebhooks::new(
            Arc::clone(&validating.0),
            transport(credentials.validating),
            Arc::clone(meter),
        );
        stages.validating_webhooks = Some(Arc::new(stage));
        Ok(RegisteredWebhooks { mutating, validating })
    }

    /// Replaces the mutating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_mutating(&self, loaded: &Loaded) {
        self.mutating.0.fix(&objects(loaded, "MutatingWebhookConfiguration"));
    }

    /// Replaces the validating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_validating(&self, loaded: &Loaded) {
        self.validating.0.fix(&objects(loaded, "ValidatingWebhookConfiguration"));
    }

    /// Waits until what was written at `revision` to a resource is in force.
    pub(crate) async fn reached(&self, resource: &str, revision: u64) {
        match resource {
            "mutatingwebhookconfigurations" => self.mutating.1.reached(revision).await,
            "validatingwebhookconfigurations" => self.validating.1.reached(revision).await,
            _ => {}
        }
    }
}

fn objects(loaded: &Loaded, kind: &str) -> Vec<Value> {
    loaded.of_kind(kind).iter().map(|manifest| manifest.object.clone()).collect()
}

//! The webhooks in force, from stored configurations and from static manifests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::admission::manifests::{LoadedManifests, Manifest};
use ::admission::webhook::{MutatingWebhooks, ValidatingWebhooks, Webhook, WebhookSet};
use ::admission::{AdmissionMetrics, ChainConfig};
use api::attestation::WebhookConfigurationKind;
use catalog::keys;
use catalog::unreadable::{Concern, Unreadable};
use storage::Store;
use value::{Str, Value};

use crate::admission::webhooks::{KubeconfigCredentials, WebhookTokenSource, WebhookTransport};
use crate::informer::{InformerProgress, UnreadableConcern, start_informer};
use crate::loopback::Loopback;
use crate::metrics::CustomMetrics;

/// The credentials that this server sends to webhooks, by plugin.
#[derive(Debug, Default)]
pub(crate) struct WebhookCredentials {
    pub(crate) mutating: KubeconfigCredentials,
    pub(crate) validating: KubeconfigCredentials,
}

/// The dependencies of calls to webhooks.
pub(crate) struct WebhookCalls<'a> {
    pub(crate) credentials: WebhookCredentials,
    pub(crate) tokens: Option<&'a Arc<WebhookTokenSource>>,
    pub(crate) meter: &'a Arc<dyn AdmissionMetrics>,
    pub(crate) metrics: &'a Arc<CustomMetrics>,
    pub(crate) loopback: &'a Loopback,
}

/// The informers of webhook configurations, and the webhooks in force.
pub(crate) struct RegisteredWebhooks {
    mutating: (Arc<WebhookSet>, InformerProgress),
    validating: (Arc<WebhookSet>, InformerProgress),
    mutating_sources: Mutex<ManifestSources>,
    validating_sources: Mutex<ManifestSources>,
}

/// File and line of each webhook configuration that comes from a manifest file.
type ManifestSources = BTreeMap<Str, (Str, usize)>;

/// A webhook as `/debug/admission` shows it.
pub(crate) struct ListedWebhook {
    pub(crate) hook: Arc<Webhook>,
    /// File and line, for a webhook of a manifest file.
    pub(crate) source: Option<(Str, usize)>,
}

impl RegisteredWebhooks {
    /// Starts the informers of webhook configurations and puts both webhook plugins into `stages`.
    pub(crate) fn start(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        calls: WebhookCalls<'_>,
        stages: &mut ChainConfig,
    ) -> Self {
        let WebhookCalls { credentials, tokens, meter, metrics, loopback } = calls;
        let informer = |prefix: &str, kind| {
            let set = Arc::new(WebhookSet::new(kind));
            let target = Arc::clone(&set);
            let tokens = tokens.cloned();
            let notes = UnreadableConcern::of(unreadable, Concern::Admission);
            let progress = start_informer(store, prefix, notes, move |old, new| {
                target.apply(old, new);
                if let Some(tokens) = &tokens {
                    tokens.configuration_changed(old, new);
                }
            });
            (set, progress)
        };
        let transport = |credentials| {
            let (tokens, metrics) = (tokens.cloned(), Arc::clone(metrics));
            Arc::new(WebhookTransport::new(store.clone(), credentials, tokens, metrics, loopback.clone()))
        };
        let mutating = informer(keys::MUTATING_WEBHOOKS, WebhookConfigurationKind::Mutating);
        let stage = MutatingWebhooks::new(
            Arc::clone(&mutating.0),
            transport(credentials.mutating),
            Arc::clone(meter),
        );
        stages.mutating_webhooks = Some(Arc::new(stage));
        let validating = informer(keys::VALIDATING_WEBHOOKS, WebhookConfigurationKind::Validating);
        let stage = ValidatingWebhooks::new(
            Arc::clone(&validating.0),
            transport(credentials.validating),
            Arc::clone(meter),
        );
        stages.validating_webhooks = Some(Arc::new(stage));
        let (mutating_sources, validating_sources) = (Mutex::default(), Mutex::default());
        RegisteredWebhooks { mutating, validating, mutating_sources, validating_sources }
    }

    /// Replaces the mutating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_mutating(&self, loaded: &LoadedManifests) {
        self.mutating.0.replace_static(&fix(loaded, "MutatingWebhookConfiguration", &self.mutating_sources));
    }

    /// Replaces the validating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_validating(&self, loaded: &LoadedManifests) {
        self.validating.0.replace_static(&fix(
            loaded,
            "ValidatingWebhookConfiguration",
            &self.validating_sources,
        ));
    }

    /// All mutating webhooks, in the order of evaluation.
    pub(crate) fn list_mutating(&self) -> Vec<ListedWebhook> {
        list(&self.mutating.0, &self.mutating_sources)
    }

    /// All validating webhooks, in the order of evaluation.
    pub(crate) fn list_validating(&self) -> Vec<ListedWebhook> {
        list(&self.validating.0, &self.validating_sources)
    }

    /// Waits until the write at `revision` is in force. Returns at once for resources other than webhook configurations.
    pub(crate) async fn reached(&self, resource: &str, revision: u64) {
        match resource {
            "mutatingwebhookconfigurations" => self.mutating.1.reached(revision).await,
            "validatingwebhookconfigurations" => self.validating.1.reached(revision).await,
            _ => {}
        }
    }
}

/// Returns the webhook configurations of a directory, and replaces `sources` with their files and lines.
fn fix(loaded: &LoadedManifests, kind: &str, sources: &Mutex<ManifestSources>) -> Vec<Value> {
    let manifests = loaded.of_kind(kind);
    let source = |manifest: &Manifest| {
        (Str::from(api::meta::name(&manifest.object)), (manifest.file.clone(), manifest.line))
    };
    *sources.lock().unwrap_or_else(PoisonError::into_inner) = manifests.iter().map(source).collect();
    manifests.iter().map(|manifest| Value::clone(&manifest.object)).collect()
}

fn list(set: &WebhookSet, sources: &Mutex<ManifestSources>) -> Vec<ListedWebhook> {
    let sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = |hook: &Arc<Webhook>| ListedWebhook {
        source: sources.get(&hook.configuration).filter(|_| hook.is_static).cloned(),
        hook: Arc::clone(hook),
    };
    set.webhooks().iter().map(listed).collect()
}

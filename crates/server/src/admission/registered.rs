//! Webhooks in force, kept at what is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::admission::manifests::{LoadedManifests, Manifest};
use ::admission::webhook::{MutatingWebhooks, ValidatingWebhooks, Webhook, WebhookSet};
use ::admission::{AdmissionMetrics, ChainConfig};
use storage::Store;
use value::{Str, Value};

use crate::admission::attached::Attached;
use crate::admission::webhooks::{Credentials, WebhookTokens, WebhookTransport};
use crate::informer::{InformerProgress, Notes, start_informer};
use crate::keys;
use crate::state::State;
use crate::unreadable::{Concern, Unreadable};

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
    mutating: (Arc<WebhookSet>, InformerProgress),
    validating: (Arc<WebhookSet>, InformerProgress),
    mutating_places: Mutex<Places>,
    validating_places: Mutex<Places>,
    /// This server, for webhooks that are behind it.
    server: Arc<Attached>,
}

/// The file, and the line in it, of each configuration that comes from one.
type Places = BTreeMap<Str, (Str, usize)>;

/// A webhook as operators see it.
pub(crate) struct ListedWebhook {
    pub(crate) hook: Arc<Webhook>,
    /// The file and the line in it; nothing for what is stored.
    pub(crate) place: Option<(Str, usize)>,
}

impl RegisteredWebhooks {
    /// Puts the stored webhooks in force, as stages of the chain, and keeps them so.
    pub(crate) fn start(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        credentials: WebhookCredentials,
        tokens: Option<&Arc<WebhookTokens>>,
        meter: &Arc<dyn AdmissionMetrics>,
        stages: &mut ChainConfig,
    ) -> Self {
        let kept = |prefix: &str| {
            let set = Arc::new(WebhookSet::default());
            let follower = Arc::clone(&set);
            let tokens = tokens.cloned();
            let notes = Notes::of(unreadable, Concern::Admission);
            let followed = start_informer(store, prefix, notes, move |old, new| {
                follower.apply(old, new);
                if let Some(tokens) = &tokens {
                    tokens.configuration_changed(old, new);
                }
            });
            (set, followed)
        };
        let server: Arc<Attached> = Arc::default();
        let transport = |credentials| {
            let (tokens, server) = (tokens.cloned(), Arc::clone(&server));
            Arc::new(WebhookTransport::new(store.clone(), credentials, tokens, server))
        };
        let mutating = kept(keys::MUTATING_WEBHOOKS);
        let stage = MutatingWebhooks::new(
            Arc::clone(&mutating.0),
            transport(credentials.mutating),
            Arc::clone(meter),
        );
        stages.mutating_webhooks = Some(Arc::new(stage));
        let validating = kept(keys::VALIDATING_WEBHOOKS);
        let stage = ValidatingWebhooks::new(
            Arc::clone(&validating.0),
            transport(credentials.validating),
            Arc::clone(meter),
        );
        stages.validating_webhooks = Some(Arc::new(stage));
        let (mutating_places, validating_places) = (Mutex::default(), Mutex::default());
        RegisteredWebhooks { mutating, validating, mutating_places, validating_places, server }
    }

    /// Tells it which server this is, once.
    pub(crate) fn attach(&self, state: &Arc<State>) {
        self.server.attach(state);
    }

    /// Replaces the mutating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_mutating(&self, loaded: &LoadedManifests) {
        self.mutating.0.replace_static(&fix(loaded, "MutatingWebhookConfiguration", &self.mutating_places));
    }

    /// Replaces the validating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_validating(&self, loaded: &LoadedManifests) {
        self.validating.0.replace_static(&fix(
            loaded,
            "ValidatingWebhookConfiguration",
            &self.validating_places,
        ));
    }

    /// Every mutating webhook that there is, in the order in which they are asked.
    pub(crate) fn list_mutating(&self) -> Vec<ListedWebhook> {
        list(&self.mutating.0, &self.mutating_places)
    }

    /// Every validating webhook that there is, in the order in which they are asked.
    pub(crate) fn list_validating(&self) -> Vec<ListedWebhook> {
        list(&self.validating.0, &self.validating_places)
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

/// The objects of a folder, whose places are noted.
fn fix(loaded: &LoadedManifests, kind: &str, places: &Mutex<Places>) -> Vec<Value> {
    let manifests = loaded.of_kind(kind);
    let place = |manifest: &Manifest| {
        (Str::from(api::meta::name(&manifest.object)), (manifest.file.clone(), manifest.line))
    };
    *places.lock().unwrap_or_else(PoisonError::into_inner) = manifests.iter().map(place).collect();
    manifests.iter().map(|manifest| Value::clone(&manifest.object)).collect()
}

fn list(set: &WebhookSet, places: &Mutex<Places>) -> Vec<ListedWebhook> {
    let places = places.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = |hook: &Arc<Webhook>| ListedWebhook {
        place: places.get(&hook.configuration).filter(|_| hook.is_static).cloned(),
        hook: Arc::clone(hook),
    };
    set.webhooks().iter().map(listed).collect()
}

//! Webhooks in force, kept at what is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::admission::manifests::{Loaded, Manifest};
use ::admission::webhook::{Hook, MutatingWebhooks, Set, ValidatingWebhooks};
use ::admission::{Meter, Stages};
use storage::Store;
use value::{Str, Value};

use crate::admission::webhooks::{Credentials, WebhookTokens, WebhookTransport};
use crate::informer::{InformerProgress, Notes, start_informer};
use crate::keys;
use crate::loopback::Loopback;
use crate::metrics::CustomMetrics;
use crate::unreadable::{Concern, Unreadable};

/// As whom the two kinds of webhooks are asked.
#[derive(Debug, Default)]
pub(crate) struct WebhookCredentials {
    /// By `MutatingAdmissionWebhook`.
    pub(crate) mutating: Credentials,
    /// By `ValidatingAdmissionWebhook`.
    pub(crate) validating: Credentials,
}

/// The dependencies of calls to webhooks.
pub(crate) struct WebhookCalls<'a> {
    pub(crate) credentials: WebhookCredentials,
    pub(crate) tokens: Option<&'a Arc<WebhookTokens>>,
    pub(crate) meter: &'a Arc<dyn Meter>,
    pub(crate) metrics: &'a Arc<CustomMetrics>,
    pub(crate) loopback: &'a Loopback,
}

/// How far the webhooks in force have come.
pub(crate) struct RegisteredWebhooks {
    mutating: (Arc<Set>, InformerProgress),
    validating: (Arc<Set>, InformerProgress),
    mutating_places: Mutex<Places>,
    validating_places: Mutex<Places>,
}

/// The file, and the line in it, of each configuration that comes from one.
type Places = BTreeMap<Str, (Str, usize)>;

/// A webhook as operators see it.
pub(crate) struct ListedWebhook {
    pub(crate) hook: Arc<Hook>,
    /// The file and the line in it; nothing for what is stored.
    pub(crate) place: Option<(Str, usize)>,
}

impl RegisteredWebhooks {
    /// Starts the informers of webhook configurations and puts both webhook plugins into `stages`.
    pub(crate) fn start(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        calls: WebhookCalls<'_>,
        stages: &mut Stages,
    ) -> Self {
        let WebhookCalls { credentials, tokens, meter, metrics, loopback } = calls;
        let kept = |prefix: &str| {
            let set = Arc::new(Set::default());
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
        let transport = |credentials| {
            let (tokens, metrics) = (tokens.cloned(), Arc::clone(metrics));
            Arc::new(WebhookTransport::new(store.clone(), credentials, tokens, metrics, loopback.clone()))
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
        RegisteredWebhooks { mutating, validating, mutating_places, validating_places }
    }

    /// Replaces the mutating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_mutating(&self, loaded: &Loaded) {
        self.mutating.0.fix(&fix(loaded, "MutatingWebhookConfiguration", &self.mutating_places));
    }

    /// Replaces the validating webhooks of manifest files; they are in force when this returns.
    pub(crate) fn fix_validating(&self, loaded: &Loaded) {
        self.validating.0.fix(&fix(loaded, "ValidatingWebhookConfiguration", &self.validating_places));
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
fn fix(loaded: &Loaded, kind: &str, places: &Mutex<Places>) -> Vec<Value> {
    let manifests = loaded.of_kind(kind);
    let place = |manifest: &Manifest| {
        (Str::from(api::meta::name(&manifest.object)), (manifest.file.clone(), manifest.line))
    };
    *places.lock().unwrap_or_else(PoisonError::into_inner) = manifests.iter().map(place).collect();
    manifests.iter().map(|manifest| Value::clone(&manifest.object)).collect()
}

fn list(set: &Set, places: &Mutex<Places>) -> Vec<ListedWebhook> {
    let places = places.lock().unwrap_or_else(PoisonError::into_inner);
    let listed = |hook: &Arc<Hook>| ListedWebhook {
        place: places.get(&hook.configuration).filter(|_| hook.is_static).cloned(),
        hook: Arc::clone(hook),
    };
    set.hooks().iter().map(listed).collect()
}

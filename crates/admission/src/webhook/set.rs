//! The compiled webhooks of one plugin, in the order in which they are called.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use api::meta;
use value::{Str, Value};

use crate::webhook::compiled::{Webhook, compile_webhooks};

/// Webhooks from manifest files and from the API. Shared: requests read it while configurations change.
#[derive(Debug, Default)]
pub struct WebhookSet {
    state: RwLock<WebhookSetState>,
}

#[derive(Debug, Default)]
struct WebhookSetState {
    static_webhooks: Vec<Arc<Webhook>>,
    /// By name of the configuration, which is the order in which they run.
    api_webhooks: BTreeMap<Str, Vec<Arc<Webhook>>>,
    all: Arc<[Arc<Webhook>]>,
}

impl WebhookSetState {
    fn rebuild(&mut self) {
        self.all = self.static_webhooks.iter().chain(self.api_webhooks.values().flatten()).cloned().collect();
    }
}

impl WebhookSet {
    /// Applies the change of a configuration in the API. `old` is `None` for a new one, `new` for a deleted
    /// one.
    pub fn apply(&self, old: Option<&Value>, new: Option<&Value>) {
        let compiled = new.map(|new| {
            let webhooks = compile_webhooks(new, false).into_iter().map(Arc::new).collect();
            (Str::from(meta::name(new)), webhooks)
        });
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old {
            state.api_webhooks.remove(meta::name(old));
        }
        if let Some((name, webhooks)) = compiled {
            state.api_webhooks.insert(name, webhooks);
        }
        state.rebuild();
    }

    /// Replaces the webhooks from manifest files. They run before those of the API, in the given order.
    pub fn replace_static(&self, configurations: &[Value]) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // An unchanged webhook keeps its inventory counters.
        let before: HashMap<Str, Arc<Webhook>> =
            state.static_webhooks.drain(..).map(|webhook| (webhook.uid.clone(), webhook)).collect();
        let reuse_unchanged = |webhook: Webhook| {
            let same =
                before.get(&webhook.uid).filter(|old| old.inventory.has_same_content(&webhook.inventory));
            same.cloned().unwrap_or_else(|| Arc::new(webhook))
        };
        state.static_webhooks = configurations
            .iter()
            .flat_map(|each| compile_webhooks(each, true))
            .map(reuse_unchanged)
            .collect();
        state.rebuild();
    }

    /// All webhooks, in the order in which they are called.
    pub fn webhooks(&self) -> Arc<[Arc<Webhook>]> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).all)
    }
}

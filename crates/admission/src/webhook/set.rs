//! The compiled webhooks of one plugin, in the order in which they are called.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use api::attestation::WebhookConfigurationKind;
use api::meta;
use value::{Str, Value};

use crate::webhook::compiled::{Webhook, compile_webhooks};

/// Webhooks from manifest files and from the API. Shared: requests read it while configurations change.
#[derive(Debug)]
pub struct WebhookSet {
    kind: WebhookConfigurationKind,
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
    /// An empty set for configurations of this kind.
    pub fn new(kind: WebhookConfigurationKind) -> Self {
        WebhookSet { kind, state: RwLock::default() }
    }

    /// Applies the change of a configuration in the API. `old` is `None` for a new one, `new` for a deleted
    /// one. The `kind` in its content is ignored.
    pub fn apply(&self, old: Option<&Value>, new: Option<&Value>) {
        let compiled = new.map(|new| {
            let webhooks = compile_webhooks(new, Some(self.kind)).into_iter().map(Arc::new).collect();
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
            .flat_map(|each| compile_webhooks(each, None))
            .map(reuse_unchanged)
            .collect();
        state.rebuild();
    }

    /// All webhooks, in the order in which they are called.
    pub fn webhooks(&self) -> Arc<[Arc<Webhook>]> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).all)
    }
}

#[cfg(test)]
mod tests {
    use api::attestation::WebhookConfigurationKind;
    use value::json;

    use super::WebhookSet;

    #[test]
    fn the_kind_of_a_token_recipient_is_that_of_the_set_whatever_the_content_claims() {
        let validating = "ValidatingWebhookConfiguration";
        for kind in WebhookConfigurationKind::ALL {
            for claimed in [validating, "MutatingWebhookConfiguration", "Other", ""] {
                let text = format!(
                    r#"{{"kind":"{claimed}","metadata":{{"name":"c","uid":"u"}},"webhooks":[
                    {{"name":"w","clientConfig":{{"url":"https://example.com/"}}}}]}}"#
                );
                let configuration = json::parse(text.as_bytes()).unwrap();
                let set = WebhookSet::new(kind);
                set.apply(None, Some(&configuration));
                let kinds = set
                    .webhooks()
                    .iter()
                    .map(|hook| hook.recipient.as_ref().map(|to| to.kind))
                    .collect::<Vec<_>>();
                assert_eq!(kinds, [Some(kind)], "claimed: {claimed}");
                set.apply(Some(&configuration), None);
                set.replace_static(&[configuration]);
                assert!(set.webhooks().iter().all(|hook| hook.recipient.is_none()));
            }
        }
    }
}

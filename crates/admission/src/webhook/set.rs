//! All webhooks of one kind, in the order in which they are asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use api::meta;
use value::{Str, Value};

use crate::webhook::hook::{Hook, hooks};

/// The webhooks of manifest files and of the API. Shared: requests read it while configurations change.
#[derive(Debug, Default)]
pub struct Set {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    fixed: Vec<Arc<Hook>>,
    /// By the name of the configuration, which is the order they run in.
    registered: BTreeMap<Str, Vec<Arc<Hook>>>,
    all: Arc<[Arc<Hook>]>,
}

impl State {
    fn line_up(&mut self) {
        self.all = self.fixed.iter().chain(self.registered.values().flatten()).cloned().collect();
    }
}

impl Set {
    /// Follows a configuration of the API: `(old, new)`.
    pub fn apply(&self, old: Option<&Value>, new: Option<&Value>) {
        let compiled = new.map(|new| {
            let hooks = hooks(new, false).into_iter().map(Arc::new).collect();
            (Str::from(meta::name(new)), hooks)
        });
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = old {
            state.registered.remove(meta::name(old));
        }
        if let Some((name, hooks)) = compiled {
            state.registered.insert(name, hooks);
        }
        state.line_up();
    }

    /// Replaces the webhooks of manifest files. They run before all others, in the order given.
    pub fn fix(&self, configurations: &[Value]) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        // One that has not changed stays as it is, with what is known of it.
        let before: HashMap<Str, Arc<Hook>> =
            state.fixed.drain(..).map(|hook| (hook.uid.clone(), hook)).collect();
        let kept = |hook: Hook| {
            let same = before.get(&hook.uid).filter(|old| old.account.decides_as(&hook.account));
            same.cloned().unwrap_or_else(|| Arc::new(hook))
        };
        state.fixed = configurations.iter().flat_map(|each| hooks(each, true)).map(kept).collect();
        state.line_up();
    }

    /// The webhooks as they are now, in the order in which they are asked.
    pub fn hooks(&self) -> Arc<[Arc<Hook>]> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).all)
    }
}

//! The kinds of the stored definitions, by group: a change copies the group it is about and not all of them, of which there may be
//! thousands.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use resources::custom;
use value::Str;

use super::fresh::Fresh;
use super::kind::Kind;

/// The kinds of the stored definitions.
#[derive(Clone, Debug, Default)]
pub struct CustomKinds {
    groups: BTreeMap<Str, Arc<Group>>,
}

/// What is known of one group.
#[derive(Clone, Debug, Default)]
struct Group {
    /// By version and plural name.
    kinds: HashMap<(Str, Str), Arc<Kind>>,
    /// Every stored definition by its name, served or not.
    definitions: BTreeMap<Str, Known>,
}

/// A definition, and the revision at which it was stored so.
#[derive(Clone, Debug)]
struct Known {
    definition: Arc<custom::Definition>,
    revision: u64,
    fresh: Arc<Fresh>,
}

impl Group {
    fn remove(&mut self, name: &str) {
        let Some(Known { definition: former, .. }) = self.definitions.remove(name) else { return };
        for version in &former.versions {
            self.kinds.remove(&(version.name.clone(), former.names.plural.clone()));
        }
    }
}

impl CustomKinds {
    /// Serves a definition, stored at `revision`, instead of what was served under its name. One that is not established serves
    /// nothing. Versions that are not served have kinds, too: objects are stored in them, or shown in them to policies and webhooks.
    pub fn set(&mut self, definition: Arc<custom::Definition>, revision: u64, fresh: Arc<Fresh>) {
        let group = Arc::make_mut(self.groups.entry(definition.group.clone()).or_default());
        group.remove(&definition.name);
        if let Some(stored) = definition.stored().filter(|_| definition.established) {
            for version in &definition.versions {
                let kind = Kind::custom(&definition, version, stored, Arc::clone(&fresh));
                let key = (version.name.clone(), definition.names.plural.clone());
                group.kinds.insert(key, Arc::new(kind));
            }
        }
        group.definitions.insert(definition.name.clone(), Known { definition, revision, fresh });
    }

    /// Serves nothing of a definition any more.
    pub fn remove(&mut self, name: &str) {
        let of = group_of(name);
        let Some(group) = self.groups.get_mut(of) else { return };
        let group = Arc::make_mut(group);
        group.remove(name);
        if group.definitions.is_empty() {
            self.groups.remove(of);
        }
    }

    /// The kind under a group, version and plural name, served or not.
    pub(super) fn kind(&self, group: &str, version: &Str, plural: &Str) -> Option<&Arc<Kind>> {
        self.groups.get(group)?.kinds.get(&(version.clone(), plural.clone()))
    }

    /// The definitions that are served, by group and name.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<custom::Definition>> {
        let all = self.groups.values().flat_map(|group| group.definitions.values());
        all.map(|known| &known.definition).filter(|definition| definition.established)
    }

    /// The definitions of a group, served or not.
    pub fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<custom::Definition>> {
        let known = self.groups.get(group).into_iter().flat_map(|group| group.definitions.values());
        known.map(|known| &known.definition)
    }

    fn known(&self, name: &str) -> Option<&Known> {
        self.groups.get(group_of(name))?.definitions.get(name)
    }

    /// Since when objects of a definition are stored as its schema wants them.
    pub fn fresh(&self, name: &str) -> Option<Arc<Fresh>> {
        self.known(name).map(|known| Arc::clone(&known.fresh))
    }

    /// The definition called `name`, served or not.
    pub fn definition(&self, name: &str) -> Option<&Arc<custom::Definition>> {
        self.known(name).map(|known| &known.definition)
    }

    /// The revision of the definition called `name`.
    pub fn revision(&self, name: &str) -> Option<u64> {
        self.known(name).map(|known| known.revision)
    }
}

/// The group in the name of a definition, which is its plural name and its group.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

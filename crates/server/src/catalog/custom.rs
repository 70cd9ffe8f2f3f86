//! The kinds of the stored definitions, by group: a change copies the group it is about and not all of them, of which there may be
//! thousands.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// The name of the definition that a kind or list kind belongs to.
    owners: HashMap<Str, Str>,
    /// The names of the stored definitions that cannot be read. Which kinds they have is not known.
    unreadable: BTreeSet<Str>,
}

/// A definition, and the revision at which it was stored so.
#[derive(Clone, Debug)]
struct Known {
    definition: Arc<custom::Definition>,
    revision: u64,
    fresh: Arc<Fresh>,
    /// Whether its status claims a kind that another definition has.
    lost_kind: bool,
}

impl Group {
    fn remove(&mut self, name: &str) {
        self.unreadable.remove(name);
        let Some(Known { definition: former, .. }) = self.definitions.remove(name) else { return };
        for version in &former.versions {
            self.kinds.remove(&(version.name.clone(), former.names.plural.clone()));
        }
        for name in [&former.names.kind, &former.names.list_kind] {
            if self.owners.get(name) == Some(&former.name) {
                self.owners.remove(name);
            }
        }
    }

    /// Gives a definition the kind that its status claims; `false` if another definition has that kind, whatever both statuses say.
    /// Policies, webhooks and owner references name kinds: with two definitions of one kind they would find the wrong objects.
    fn claim_kind(&mut self, definition: &custom::Definition) -> bool {
        let names = [&definition.names.kind, &definition.names.list_kind];
        let names = names.into_iter().filter(|name| !name.is_empty());
        if names.clone().any(|name| self.owners.contains_key(name)) {
            return false;
        }
        self.owners.extend(names.map(|name| (name.clone(), definition.name.clone())));
        true
    }
}

impl CustomKinds {
    /// Serves a definition, stored at `revision`, instead of what was served under its name. One that is not established serves
    /// nothing. Versions that are not served have kinds, too: objects are stored in them, or shown in them to policies and webhooks.
    pub fn set(&mut self, mut definition: custom::Definition, revision: u64, fresh: Arc<Fresh>) {
        let group = Arc::make_mut(self.groups.entry(definition.group.clone()).or_default());
        group.remove(&definition.name);
        let lost_kind = definition.established && !group.claim_kind(&definition);
        if lost_kind {
            definition.lose_kind();
        }
        let definition = Arc::new(definition);
        if let Some(stored) = definition.stored().filter(|_| definition.established) {
            for version in &definition.versions {
                let kind = Kind::custom(&definition, version, stored, Arc::clone(&fresh));
                let key = (version.name.clone(), definition.names.plural.clone());
                group.kinds.insert(key, Arc::new(kind));
            }
        }
        group.definitions.insert(definition.name.clone(), Known { definition, revision, fresh, lost_kind });
    }

    /// Serves nothing of a definition any more.
    pub fn remove(&mut self, name: &str) {
        let of = group_of(name);
        let Some(group) = self.groups.get_mut(of) else { return };
        let group = Arc::make_mut(group);
        group.remove(name);
        if group.definitions.is_empty() && group.unreadable.is_empty() {
            self.groups.remove(of);
        }
    }

    /// Serves nothing of a definition any more, because what is stored of it cannot be read.
    pub fn set_unreadable(&mut self, name: &str) {
        let group = Arc::make_mut(self.groups.entry(group_of(name).into()).or_default());
        group.remove(name);
        group.unreadable.insert(name.into());
    }

    /// The name of a definition of a group that is stored and cannot be read. While there is one, it is not known which kinds of
    /// the group are whose.
    pub fn unreadable(&self, group: &str) -> Option<&Str> {
        self.groups.get(group)?.unreadable.first()
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

    /// Whether the status of a definition claims a kind that another definition has.
    pub fn lost_kind(&self, name: &str) -> bool {
        self.known(name).is_some_and(|known| known.lost_kind)
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

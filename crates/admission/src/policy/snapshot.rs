//! The policies in force, and the index by which a request finds the few that can match it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use value::Str;

use super::{Binding, MutatingPolicy, Policy, ValidatingPolicy};
use crate::Operation;
use crate::matching::{Asked, Exempt, Operations, Rule, exempt};

/// Where a policy came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A manifest file. These run first, and guard policies, too.
    Manifest,
    /// The API.
    Api,
}

/// A policy of either kind.
pub trait Policies: Send + Sync {
    /// What both kinds have.
    fn policy(&self) -> &Policy;
}

impl Policies for ValidatingPolicy {
    fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl Policies for MutatingPolicy {
    fn policy(&self) -> &Policy {
        &self.policy
    }
}

/// A policy with its bindings. A policy without any is not in force.
#[derive(Clone, Debug)]
pub struct Hook<P> {
    /// Where it came from.
    pub source: Source,
    /// The policy.
    pub policy: Arc<P>,
    /// Its bindings, by name.
    pub bindings: Vec<Arc<Binding>>,
}

/// The policies in force, in the order in which they run. Immutable.
#[derive(Debug)]
pub struct Snapshot<P> {
    hooks: Vec<Hook<P>>,
    index: Index,
}

impl<P> Default for Snapshot<P> {
    fn default() -> Self {
        Snapshot { hooks: Vec::new(), index: Index::default() }
    }
}

impl<P: Policies> Snapshot<P> {
    /// Of the policies and bindings of each source.
    pub fn new<'a>(
        sources: impl IntoIterator<Item = (Source, &'a BTreeMap<Str, Arc<P>>, &'a BTreeMap<Str, Arc<Binding>>)>,
    ) -> Self
    where
        P: 'a,
    {
        let mut hooks = Vec::new();
        for (source, policies, bindings) in sources {
            let mut bound: BTreeMap<&Str, Vec<Arc<Binding>>> = BTreeMap::new();
            for binding in bindings.values() {
                bound.entry(&binding.policy).or_default().push(Arc::clone(binding));
            }
            for (name, bindings) in bound {
                if let Some(policy) = policies.get(name) {
                    hooks.push(Hook { source, policy: Arc::clone(policy), bindings });
                }
            }
        }
        hooks.sort_by_key(|hook| hook.source);
        let index = Index::of(&hooks);
        Snapshot { hooks, index }
    }

    /// How many policies are in force.
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// The policies that may match a request, in order.
    pub(super) fn candidates<'s>(&'s self, asked: &Asked<'_>) -> impl Iterator<Item = &'s Hook<P>> {
        let only_manifests = match exempt(asked.attributes, asked.cluster) {
            Exempt::No | Exempt::FromWebhooks => Some(false),
            Exempt::FromAll => Some(true),
            Exempt::Always => None,
        };
        let found = match only_manifests {
            Some(_) if !self.hooks.is_empty() => self.index.find(asked),
            _ => Vec::new(),
        };
        let only_manifests = only_manifests.unwrap_or(true);
        found
            .into_iter()
            .filter_map(|position| self.hooks.get(position))
            .filter(move |hook| !only_manifests || hook.source == Source::Manifest)
    }
}

/// The most combinations of a group and a resource that one policy is found under: two long lists have as many as a disk has bytes.
const MOST_PLACES: usize = 10_000;

/// Which policy may be about a resource: under its group and resource, with stars apart.
#[derive(Debug, Default)]
struct Index {
    by_both: HashMap<(Str, Str), Vec<Posting>>,
    by_group: HashMap<Str, Vec<Posting>>,
    by_resource: HashMap<Str, Vec<Posting>>,
    all: Vec<Posting>,
}

#[derive(Clone, Debug)]
struct Posting {
    position: usize,
    /// `None` for any.
    subresource: Option<Str>,
    operations: Operations,
}

impl Posting {
    fn fits(&self, subresource: &str, operation: Operation) -> bool {
        self.operations.contains(operation) && self.subresource.as_ref().is_none_or(|s| s == subresource)
    }
}

impl Index {
    fn of<P: Policies>(hooks: &[Hook<P>]) -> Self {
        let mut index = Index::default();
        for (position, hook) in hooks.iter().enumerate() {
            let rules = hook.policy.policy().criteria.as_ref().ok().and_then(|criteria| criteria.rules());
            let few = |rules: &&[Rule]| {
                let places = rules.iter().map(|rule| rule.groups().len() * rule.resources().len());
                places.sum::<usize>() <= MOST_PLACES
            };
            let Some(rules) = rules.filter(few) else {
                // What cannot be read, says nothing of resources, or has too many, must be looked at every time.
                index.all.push(Posting { position, subresource: None, operations: Operations::ALL });
                continue;
            };
            for rule in rules {
                for (resource, subresource) in rule.resources() {
                    let posting = Posting {
                        position,
                        subresource: (subresource != "*").then(|| subresource.clone()),
                        operations: rule.operations(),
                    };
                    for group in rule.groups() {
                        let list = match (group.as_str(), resource.as_str()) {
                            ("*", "*") => &mut index.all,
                            ("*", _) => index.by_resource.entry(resource.clone()).or_default(),
                            (_, "*") => index.by_group.entry(group.clone()).or_default(),
                            _ => index.by_both.entry((group.clone(), resource.clone())).or_default(),
                        };
                        list.push(posting.clone());
                    }
                }
            }
        }
        index
    }

    fn find(&self, asked: &Asked<'_>) -> Vec<usize> {
        let attributes = asked.attributes;
        let mut found = Vec::new();
        let mut add = |list: Option<&Vec<Posting>>| {
            let fitting = list.into_iter().flatten();
            let fitting = fitting.filter(|p| p.fits(&attributes.subresource, attributes.operation));
            found.extend(fitting.map(|posting| posting.position));
        };
        add(Some(&self.all));
        let own = &attributes.resource;
        let mut under = |group: &Str, resource: &Str| {
            if !self.by_both.is_empty() {
                add(self.by_both.get(&(group.clone(), resource.clone())));
            }
            add(self.by_group.get(group));
            add(self.by_resource.get(resource));
        };
        under(&own.group, &own.resource);
        for other in asked.equivalents() {
            if other.resource != *own {
                under(&other.resource.group, &other.resource.resource);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Policies that can be replaced while requests run: a request takes them once and keeps them.
#[derive(Debug)]
pub(super) struct Current<P>(ArcSwap<Snapshot<P>>);

impl<P> Default for Current<P> {
    fn default() -> Self {
        Current(ArcSwap::from_pointee(Snapshot::default()))
    }
}

impl<P> Current<P> {
    pub(super) fn replace(&self, snapshot: Snapshot<P>) {
        self.0.store(Arc::new(snapshot));
    }

    pub(super) fn take(&self) -> Arc<Snapshot<P>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests;

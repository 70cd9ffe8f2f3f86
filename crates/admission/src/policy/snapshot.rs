//! The policies in force, with an index to find those that can match a request.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use value::Str;

use super::{CompiledPolicy, MutatingPolicy, PolicyBinding, ValidatingPolicy};
use crate::Operation;
use crate::matching::{AdmissionRule, Exemption, Operations, RequestContext, exemption};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicySource {
    /// A manifest file. These policies run first, and apply to policies and bindings, too.
    Manifest,
    Api,
}

/// A validating or mutating policy.
pub trait AnyPolicy: Send + Sync {
    fn policy(&self) -> &CompiledPolicy;
}

impl AnyPolicy for ValidatingPolicy {
    fn policy(&self) -> &CompiledPolicy {
        &self.policy
    }
}

impl AnyPolicy for MutatingPolicy {
    fn policy(&self) -> &CompiledPolicy {
        &self.policy
    }
}

/// A policy with its bindings. Policies without bindings are not in force.
#[derive(Clone, Debug)]
pub struct BoundPolicy<P> {
    pub source: PolicySource,
    pub policy: Arc<P>,
    /// The bindings, sorted by name.
    pub bindings: Vec<Arc<PolicyBinding>>,
}

/// The policies in force, in the order in which they run. Immutable.
#[derive(Debug)]
pub struct PolicySnapshot<P> {
    policies: Vec<BoundPolicy<P>>,
    index: PolicyIndex,
}

impl<P> Default for PolicySnapshot<P> {
    fn default() -> Self {
        PolicySnapshot { policies: Vec::new(), index: PolicyIndex::default() }
    }
}

impl<P: AnyPolicy> PolicySnapshot<P> {
    /// `sources` yields the policies and bindings of each source, by name. Bindings to missing policies are ignored.
    pub fn new<'a>(
        sources: impl IntoIterator<
            Item = (PolicySource, &'a BTreeMap<Str, Arc<P>>, &'a BTreeMap<Str, Arc<PolicyBinding>>),
        >,
    ) -> Self
    where
        P: 'a,
    {
        let mut policies = Vec::new();
        for (source, by_name, bindings) in sources {
            let mut by_policy: BTreeMap<&Str, Vec<Arc<PolicyBinding>>> = BTreeMap::new();
            for binding in bindings.values() {
                by_policy.entry(&binding.policy).or_default().push(Arc::clone(binding));
            }
            for (name, bindings) in by_policy {
                if let Some(policy) = by_name.get(name) {
                    policies.push(BoundPolicy { source, policy: Arc::clone(policy), bindings });
                }
            }
        }
        policies.sort_by_key(|bound| bound.source);
        let index = PolicyIndex::of(&policies);
        PolicySnapshot { policies, index }
    }

    pub fn len(&self) -> usize {
        self.policies.len()
    }

    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// The policies that may match a request, in order.
    pub(super) fn candidates<'s>(
        &'s self,
        context: &RequestContext<'_>,
    ) -> impl Iterator<Item = &'s BoundPolicy<P>> {
        let only_manifests = match exemption(context.attributes, context.cluster) {
            Exemption::None | Exemption::FromApiWebhooks => Some(false),
            Exemption::FromApi => Some(true),
            Exemption::Total => None,
        };
        let found = match only_manifests {
            Some(_) if !self.policies.is_empty() => self.index.find(context),
            _ => Vec::new(),
        };
        let only_manifests = only_manifests.unwrap_or(true);
        found
            .into_iter()
            .filter_map(|position| self.policies.get(position))
            .filter(move |bound| !only_manifests || bound.source == PolicySource::Manifest)
    }
}

/// Policies with more pairs of group and resource than this are not indexed: two long lists could multiply to
/// any size.
const MAX_INDEX_ENTRIES: usize = 10_000;

/// Indexes policies by group and resource. Rules with `*` have maps of their own.
#[derive(Debug, Default)]
struct PolicyIndex {
    by_both: HashMap<(Str, Str), Vec<Posting>>,
    by_group: HashMap<Str, Vec<Posting>>,
    by_resource: HashMap<Str, Vec<Posting>>,
    all: Vec<Posting>,
}

#[derive(Clone, Debug)]
struct Posting {
    position: usize,
    /// `None` matches any subresource.
    subresource: Option<Str>,
    operations: Operations,
}

impl Posting {
    fn matches(&self, subresource: &str, operation: Operation) -> bool {
        self.operations.contains(operation) && self.subresource.as_ref().is_none_or(|s| s == subresource)
    }
}

impl PolicyIndex {
    fn of<P: AnyPolicy>(policies: &[BoundPolicy<P>]) -> Self {
        let mut index = PolicyIndex::default();
        for (position, bound) in policies.iter().enumerate() {
            let rules = bound.policy.policy().criteria.as_ref().ok().and_then(|criteria| criteria.rules());
            let is_indexable = |rules: &&[AdmissionRule]| {
                let entries = rules.iter().map(|rule| rule.groups().len() * rule.resources().len());
                entries.sum::<usize>() <= MAX_INDEX_ENTRIES
            };
            let Some(rules) = rules.filter(is_indexable) else {
                // Rules that cannot be read, match everything or are too many: check the policy for every
                // request.
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

    fn find(&self, context: &RequestContext<'_>) -> Vec<usize> {
        let attributes = context.attributes;
        let mut found = Vec::new();
        let mut add = |list: Option<&Vec<Posting>>| {
            let fitting = list.into_iter().flatten();
            let fitting = fitting.filter(|p| p.matches(&attributes.subresource, attributes.operation));
            found.extend(fitting.map(|posting| posting.position));
        };
        add(Some(&self.all));
        let own = &attributes.resource;
        let mut add_resource = |group: &Str, resource: &Str| {
            if !self.by_both.is_empty() {
                add(self.by_both.get(&(group.clone(), resource.clone())));
            }
            add(self.by_group.get(group));
            add(self.by_resource.get(resource));
        };
        add_resource(&own.group, &own.resource);
        for other in context.equivalents() {
            if other.resource != *own {
                add_resource(&other.resource.group, &other.resource.resource);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Policies that can be replaced while requests run. A request takes the current snapshot once.
#[derive(Debug)]
pub(super) struct CurrentPolicies<P>(ArcSwap<PolicySnapshot<P>>);

impl<P> Default for CurrentPolicies<P> {
    fn default() -> Self {
        CurrentPolicies(ArcSwap::from_pointee(PolicySnapshot::default()))
    }
}

impl<P> CurrentPolicies<P> {
    pub(super) fn replace(&self, snapshot: PolicySnapshot<P>) {
        self.0.store(Arc::new(snapshot));
    }

    pub(super) fn load(&self) -> Arc<PolicySnapshot<P>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests;

//! Lists the rules of a user, for SelfSubjectRulesReviews.

use api::field::aggregate;
use authn::User;

use crate::rbac::index::RbacIndex;
use crate::rbac::rule::PolicyRule;
use crate::rbac::subject::RoleRef;

/// Maximum number of rule entries in a list: thousands of bindings can give the same large role.
const MAX_ENTRIES: usize = 1_000_000;
/// Maximum size of a list in bytes of JSON, roughly. Names in a role may be long.
const MAX_BYTES: usize = 16 << 20;
/// Size of a binding whose role has no rules, or does not exist.
const BYTES_OF_BINDING: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectRules {
    pub rules: Vec<PolicyRule>,
    /// Whether there may be more rules.
    pub incomplete: bool,
    pub error: Option<String>,
}

impl RbacIndex {
    /// The rules of a user in a namespace, or cluster-wide if it is empty; once per binding, up to [`MAX_ENTRIES`] and [`MAX_BYTES`].
    pub fn rules_for(&self, user: &User, namespace: &str) -> SubjectRules {
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        let mut left = ListAllowance { entries: MAX_ENTRIES, bytes: MAX_BYTES };
        self.each_binding(user, namespace, |role, given| match given {
            Some(given) => rules.extend(given.iter().take_while(|rule| left.take_rule(rule)).cloned()),
            None if left.take_missing(role) => missing.push(role.clone()),
            None => {}
        });
        let error = (!missing.is_empty()).then(|| aggregate(missing.iter().map(RoleRef::missing)));
        SubjectRules { rules, incomplete: left.is_used_up(), error }
    }

    /// The size of [`RbacIndex::rules_for`] in bytes, or a part of it that is at least `enough`.
    pub fn listing_size(&self, user: &User, namespace: &str, enough: usize) -> usize {
        let mut size = 0_usize;
        for (rules, bindings) in self.binding_counts(user, namespace) {
            size = size.saturating_add(bindings.saturating_mul(BYTES_OF_BINDING));
            for rule in rules.iter().flat_map(|rules| rules.iter()) {
                if size >= enough {
                    return size;
                }
                size = size.saturating_add(size_of_rule(rule).saturating_mul(bindings));
            }
        }
        size
    }
}

/// Size of a rule in a list, in bytes.
fn size_of_rule(rule: &PolicyRule) -> usize {
    let PolicyRule { verbs, groups, resources, resource_names, urls } = rule;
    let lists = [verbs, groups, resources, resource_names, urls];
    // Two quotes and a comma for each text, and the names of the lists.
    let texts = lists.into_iter().flatten().map(|text| text.len() + 3);
    BYTES_OF_BINDING + texts.sum::<usize>()
}

/// The entries and bytes that a list may still contain.
struct ListAllowance {
    entries: usize,
    bytes: usize,
}

impl ListAllowance {
    /// Deducts a rule. Returns false if something is used up, also for all later rules.
    fn take_rule(&mut self, rule: &PolicyRule) -> bool {
        self.take(rule.entries(), size_of_rule(rule))
    }

    /// Like [`ListAllowance::take_rule`], for the message that a role does not exist.
    fn take_missing(&mut self, role: &RoleRef) -> bool {
        self.take(1, role.name.len() + BYTES_OF_BINDING)
    }

    fn take(&mut self, entries: usize, bytes: usize) -> bool {
        self.entries = self.entries.saturating_sub(entries);
        self.bytes = self.bytes.saturating_sub(bytes);
        !self.is_used_up()
    }

    fn is_used_up(&self) -> bool {
        self.entries == 0 || self.bytes == 0
    }
}

//! An index of a user's rules, so that a rule is compared only with rules that share an element with it.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};

use value::Str;

use crate::rbac::rule::PolicyRule;

/// Maximum number of lookups, a few tenths of a second of work.
const MAX_LOOKUPS: usize = 20_000_000;

/// Bytes of a path that are compared in about the time of one lookup.
const BYTES: usize = 16;

/// Rules with their indexes by verb, group, resource and path.
pub(super) struct HeldRules<'r> {
    rules: Vec<RuleSets<'r>>,
    by_verb: HashMap<&'r str, Vec<usize>>,
    by_group: HashMap<&'r str, Vec<usize>>,
    by_resource: HashMap<&'r str, Vec<usize>>,
    by_url: HashMap<&'r str, Vec<usize>>,
    /// Rules with path patterns.
    with_patterns: Vec<usize>,
    /// The remaining number of lookups.
    left: Cell<usize>,
}

struct RuleSets<'r> {
    verbs: HashSet<&'r str>,
    groups: HashSet<&'r str>,
    resources: HashSet<&'r str>,
    names: HashSet<&'r str>,
    urls: HashSet<&'r str>,
    /// The path patterns without their `*`, and the lengths of these prefixes.
    prefixes: HashSet<&'r str>,
    prefix_lengths: BTreeSet<usize>,
}

/// The comparison exceeds its limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyRules;

fn set(list: &[Str]) -> HashSet<&str> {
    list.iter().map(Str::as_str).collect()
}

impl<'r> HeldRules<'r> {
    /// Indexes the rules. Thousands of bindings can give the same role, so equal rules are stored once.
    pub(super) fn new(rules: impl IntoIterator<Item = &'r PolicyRule>) -> Self {
        let distinct: BTreeSet<&PolicyRule> = rules.into_iter().collect();
        let mut held = HeldRules {
            rules: Vec::with_capacity(distinct.len()),
            by_verb: HashMap::new(),
            by_group: HashMap::new(),
            by_resource: HashMap::new(),
            by_url: HashMap::new(),
            with_patterns: Vec::new(),
            left: Cell::new(MAX_LOOKUPS),
        };
        for (position, rule) in distinct.into_iter().enumerate() {
            let lists = RuleSets::of(rule);
            for (index, list) in [
                (&mut held.by_verb, &rule.verbs),
                (&mut held.by_group, &rule.groups),
                (&mut held.by_resource, &rule.resources),
                (&mut held.by_url, &rule.urls),
            ] {
                for item in list {
                    let positions = index.entry(item.as_str()).or_default();
                    if positions.last() != Some(&position) {
                        positions.push(position);
                    }
                }
            }
            if !lists.prefixes.is_empty() {
                held.with_patterns.push(position);
            }
            held.rules.push(lists);
        }
        held
    }

    /// Whether a single rule covers all of `wanted`, which must have a verb and a resource or path.
    pub(super) fn covers(&self, wanted: &PolicyRule) -> Result<bool, TooManyRules> {
        let candidates = self.candidates(wanted);
        let candidates = candidates.into_iter().flatten().filter_map(|position| self.rules.get(*position));
        for lists in candidates {
            if lists.covers(wanted, self)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Rules that may cover `wanted`: those with its first verb, group, resource or path, whichever are
    /// fewest.
    fn candidates(&self, wanted: &PolicyRule) -> Vec<&[usize]> {
        let mut offers: Vec<[Option<&Vec<usize>>; 3]> = Vec::with_capacity(4);
        if let Some(verb) = wanted.verbs.first() {
            offers.push([self.by_verb.get(verb.as_str()), self.by_verb.get("*"), None]);
        }
        if let Some(group) = wanted.groups.first() {
            offers.push([self.by_group.get(group.as_str()), self.by_group.get("*"), None]);
        }
        if let Some(resource) = wanted.resources.first() {
            let of_any = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            let of_any = of_any.and_then(|resource| self.by_resource.get(resource.as_str()));
            offers.push([self.by_resource.get(resource.as_str()), self.by_resource.get("*"), of_any]);
        }
        if let Some(url) = wanted.urls.first() {
            offers.push([self.by_url.get(url.as_str()), Some(&self.with_patterns), None]);
        }
        let count =
            |offer: &[Option<&Vec<usize>>; 3]| offer.iter().flatten().map(|list| list.len()).sum::<usize>();
        let fewest = offers.into_iter().min_by_key(count);
        fewest.into_iter().flatten().flatten().map(Vec::as_slice).collect()
    }

    fn look_up(&self, count: usize) -> Result<(), TooManyRules> {
        self.left.set(self.left.get().checked_sub(count).ok_or(TooManyRules)?);
        Ok(())
    }
}

impl<'r> RuleSets<'r> {
    fn of(rule: &'r PolicyRule) -> Self {
        let patterns = rule.urls.iter().filter(|url| url.ends_with('*'));
        let prefixes: HashSet<&str> = patterns.map(|url| url.trim_end_matches('*')).collect();
        RuleSets {
            verbs: set(&rule.verbs),
            groups: set(&rule.groups),
            resources: set(&rule.resources),
            names: set(&rule.resource_names),
            urls: set(&rule.urls),
            prefix_lengths: prefixes.iter().map(|prefix| prefix.len()).collect(),
            prefixes,
        }
    }

    fn covers(&self, wanted: &PolicyRule, held: &HeldRules<'_>) -> Result<bool, TooManyRules> {
        held.look_up(1)?;
        let all = |own: &HashSet<&str>, wanted: &[Str]| -> Result<bool, TooManyRules> {
            if own.contains("*") {
                return Ok(true);
            }
            for item in wanted {
                held.look_up(1)?;
                if !own.contains(item.as_str()) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        // Rules with resource names cannot cover paths.
        let is_about_names = !self.names.is_empty();
        if is_about_names && (wanted.resource_names.is_empty() || !wanted.urls.is_empty()) {
            return Ok(false);
        }
        if !all(&self.verbs, &wanted.verbs)? || !all(&self.groups, &wanted.groups)? {
            return Ok(false);
        }
        if !self.resources.contains("*") {
            for resource in &wanted.resources {
                held.look_up(1)?;
                let of_any = || resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
                if !self.resources.contains(resource.as_str())
                    && !of_any().is_some_and(|any| self.resources.contains(any.as_str()))
                {
                    return Ok(false);
                }
            }
        }
        for url in &wanted.urls {
            if !self.covers_url(url, held)? {
                return Ok(false);
            }
        }
        if !is_about_names {
            return Ok(true);
        }
        for name in &wanted.resource_names {
            held.look_up(1)?;
            if !self.names.contains(name.as_str()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether one of the rule's paths or patterns covers a path.
    fn covers_url(&self, url: &str, held: &HeldRules<'_>) -> Result<bool, TooManyRules> {
        held.look_up(1 + url.len() / BYTES)?;
        if self.urls.contains(url) {
            return Ok(true);
        }
        for length in self.prefix_lengths.range(..=url.len()) {
            held.look_up(1 + length / BYTES)?;
            if url.get(..*length).is_some_and(|prefix| self.prefixes.contains(prefix)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use api::non_resource_urls::non_resource_url_matches;

    /// The reference implementation: compares entry by entry.
    fn covers(rule: &PolicyRule, wanted: &PolicyRule) -> bool {
        let all = |own: &[Str], wanted: &[Str]| {
            own.iter().any(|item| item == "*") || wanted.iter().all(|item| own.contains(item))
        };
        let resource = |wanted: &Str| {
            let of_any = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
            rule.resources.iter().any(|own| own == wanted || own == "*" || of_any.as_deref() == Some(own))
        };
        let names = rule.resource_names.is_empty()
            || wanted.urls.is_empty()
                && !wanted.resource_names.is_empty()
                && wanted.resource_names.iter().all(|name| rule.resource_names.contains(name));
        all(&rule.verbs, &wanted.verbs)
            && all(&rule.groups, &wanted.groups)
            && wanted.resources.iter().all(resource)
            && wanted.urls.iter().all(|url| rule.urls.iter().any(|own| non_resource_url_matches(own, url)))
            && names
    }

    fn list(items: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<Str>> {
        prop::collection::vec(prop::sample::select(items).prop_map(Str::from), 0..=most)
    }

    fn rule() -> impl Strategy<Value = PolicyRule> {
        let lists = (
            list(&["get", "list", "*"], 3),
            list(&["", "apps", "*"], 2),
            list(&["pods", "pods/log", "*/log", "services", "*"], 3),
            list(&["a", "b"], 2),
            list(&["/a", "/a/b", "/a/*", "/é*", "/éa", "*", "/a**"], 3),
        );
        lists.prop_map(|(verbs, groups, resources, resource_names, urls)| PolicyRule {
            verbs,
            groups,
            resources,
            resource_names,
            urls,
        })
    }

    proptest! {
        #[test]
        fn indexed_rule_lookup_equals_comparing_all_rules(
            own in prop::collection::vec(rule(), 0..6),
            wanted in rule(),
        ) {
            prop_assume!(!wanted.verbs.is_empty());
            let naive = own.iter().any(|own| covers(own, &wanted));
            prop_assert_eq!(HeldRules::new(&own).covers(&wanted), Ok(naive), "{:?} of {:?}", wanted, own);
        }
    }

    #[test]
    fn rule_lookup_compares_only_rules_that_share_a_verb_and_resource() {
        let rules: Vec<PolicyRule> = (0..10_000)
            .map(|i| PolicyRule {
                verbs: vec!["get".into()],
                groups: vec!["".into()],
                resources: vec![format!("r{i}").into()],
                ..PolicyRule::default()
            })
            .collect();
        let held = HeldRules::new(&rules);
        assert!(rules.iter().all(|rule| held.covers(rule) == Ok(true)));
        assert!(MAX_LOOKUPS - held.left.get() < 10 * rules.len(), "each rule is compared with itself only");
    }

    #[test]
    fn rule_lookup_fails_when_the_comparison_limit_is_exceeded() {
        // Each rule has the verb or the resource, but none has both.
        let rule = |verb: String, resource: String| PolicyRule {
            verbs: vec![verb.into(), "other".into()],
            groups: vec!["".into()],
            resources: vec![resource.into(), "others".into()],
            ..PolicyRule::default()
        };
        let rules: Vec<PolicyRule> = (0..10_000)
            .flat_map(|i| [rule("get".to_owned(), format!("r{i}")), rule(format!("v{i}"), "pods".to_owned())])
            .collect();
        let held = HeldRules::new(&rules);
        let wanted = PolicyRule {
            verbs: vec!["get".into()],
            groups: vec!["".into()],
            resources: vec!["pods".into()],
            ..PolicyRule::default()
        };
        let outcomes: Vec<_> = (0..2_000).map(|_| held.covers(&wanted)).collect();
        assert_eq!(outcomes.first(), Some(&Ok(false)));
        assert_eq!(outcomes.last(), Some(&Err(TooManyRules)));
    }
}

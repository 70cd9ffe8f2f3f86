//! The rules that somebody holds, indexed, so that a rule is compared only with those that have something in common with it.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap, HashSet};

use value::Str;

use crate::rbac::rule::Rule;

/// How often an entry of a rule is looked up in a held rule: some tenths of a second.
const MOST_COMPARED: usize = 20_000_000;

/// How many bytes of a path are compared in the time of one look-up.
const BYTES: usize = 16;

/// Held rules by what is in them: their positions by verb, group, resource and path.
pub(super) struct Held<'r> {
    rules: Vec<Lists<'r>>,
    by_verb: HashMap<&'r str, Vec<usize>>,
    by_group: HashMap<&'r str, Vec<usize>>,
    by_resource: HashMap<&'r str, Vec<usize>>,
    by_url: HashMap<&'r str, Vec<usize>>,
    /// Rules with patterns of paths.
    with_patterns: Vec<usize>,
    /// The look-ups that are left.
    left: Cell<usize>,
}

/// The lists of one rule.
struct Lists<'r> {
    verbs: HashSet<&'r str>,
    groups: HashSet<&'r str>,
    resources: HashSet<&'r str>,
    names: HashSet<&'r str>,
    urls: HashSet<&'r str>,
    /// What is before the stars of patterns, and how long these are.
    prefixes: HashSet<&'r str>,
    prefix_lengths: BTreeSet<usize>,
}

/// There are too many rules to compare them all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

fn set(list: &[Str]) -> HashSet<&str> {
    list.iter().map(Str::as_str).collect()
}

impl<'r> Held<'r> {
    /// Of these rules. Thousands of bindings may give the same role, so equal ones are looked at once.
    pub(super) fn new(rules: impl IntoIterator<Item = &'r Rule>) -> Self {
        let distinct: BTreeSet<&Rule> = rules.into_iter().collect();
        let mut held = Held {
            rules: Vec::with_capacity(distinct.len()),
            by_verb: HashMap::new(),
            by_group: HashMap::new(),
            by_resource: HashMap::new(),
            by_url: HashMap::new(),
            with_patterns: Vec::new(),
            left: Cell::new(MOST_COMPARED),
        };
        for (position, rule) in distinct.into_iter().enumerate() {
            let lists = Lists::of(rule);
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

    /// Whether one held rule covers all of another rule, which has a verb and something that it is about.
    pub(super) fn covers(&self, wanted: &Rule) -> Result<bool, TooMany> {
        let candidates = self.candidates(wanted);
        let candidates = candidates.into_iter().flatten().filter_map(|position| self.rules.get(*position));
        for lists in candidates {
            if lists.covers(wanted, self)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The held rules that may cover a rule: those with its first verb, group, resource or path, whichever are fewest.
    fn candidates(&self, wanted: &Rule) -> Vec<&[usize]> {
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

    fn look_up(&self, count: usize) -> Result<(), TooMany> {
        self.left.set(self.left.get().checked_sub(count).ok_or(TooMany)?);
        Ok(())
    }
}

impl<'r> Lists<'r> {
    fn of(rule: &'r Rule) -> Self {
        let patterns = rule.urls.iter().filter(|url| url.ends_with('*'));
        let prefixes: HashSet<&str> = patterns.map(|url| url.trim_end_matches('*')).collect();
        Lists {
            verbs: set(&rule.verbs),
            groups: set(&rule.groups),
            resources: set(&rule.resources),
            names: set(&rule.resource_names),
            urls: set(&rule.urls),
            prefix_lengths: prefixes.iter().map(|prefix| prefix.len()).collect(),
            prefixes,
        }
    }

    /// Whether the rule covers every piece of another.
    fn covers(&self, wanted: &Rule, held: &Held<'_>) -> Result<bool, TooMany> {
        held.look_up(1)?;
        let all = |own: &HashSet<&str>, wanted: &[Str]| -> Result<bool, TooMany> {
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
        // Paths have no names: a rule with names covers none of them.
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
    fn covers_url(&self, url: &str, held: &Held<'_>) -> Result<bool, TooMany> {
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
    use crate::rbac::rule::url_covers;

    /// What covering means, one entry after the other.
    fn covers(rule: &Rule, wanted: &Rule) -> bool {
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
            && wanted.urls.iter().all(|url| rule.urls.iter().any(|own| url_covers(own, url)))
            && names
    }

    fn list(items: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<Str>> {
        prop::collection::vec(prop::sample::select(items).prop_map(Str::from), 0..=most)
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let lists = (
            list(&["get", "list", "*"], 3),
            list(&["", "apps", "*"], 2),
            list(&["pods", "pods/log", "*/log", "services", "*"], 3),
            list(&["a", "b"], 2),
            list(&["/a", "/a/b", "/a/*", "/é*", "/éa", "*", "/a**"], 3),
        );
        lists.prop_map(|(verbs, groups, resources, resource_names, urls)| Rule {
            verbs,
            groups,
            resources,
            resource_names,
            urls,
        })
    }

    proptest! {
        #[test]
        fn what_is_indexed_is_found_as_if_all_were_compared(
            own in prop::collection::vec(rule(), 0..6),
            wanted in rule(),
        ) {
            prop_assume!(!wanted.verbs.is_empty());
            let naive = own.iter().any(|own| covers(own, &wanted));
            prop_assert_eq!(Held::new(&own).covers(&wanted), Ok(naive), "{:?} of {:?}", wanted, own);
        }
    }

    #[test]
    fn look_ups_are_as_many_as_there_are_rules_with_something_in_common() {
        let rules: Vec<Rule> = (0..10_000)
            .map(|i| Rule {
                verbs: vec!["get".into()],
                groups: vec!["".into()],
                resources: vec![format!("r{i}").into()],
                ..Rule::default()
            })
            .collect();
        let held = Held::new(&rules);
        assert!(rules.iter().all(|rule| held.covers(rule) == Ok(true)));
        assert!(MOST_COMPARED - held.left.get() < 10 * rules.len(), "each rule is compared with itself only");
    }

    #[test]
    fn what_cannot_be_compared_within_bounds_is_not_answered() {
        // Every rule has the verb or the resource, and none has both.
        let rule = |verb: String, resource: String| Rule {
            verbs: vec![verb.into(), "other".into()],
            groups: vec!["".into()],
            resources: vec![resource.into(), "others".into()],
            ..Rule::default()
        };
        let rules: Vec<Rule> = (0..10_000)
            .flat_map(|i| [rule("get".to_owned(), format!("r{i}")), rule(format!("v{i}"), "pods".to_owned())])
            .collect();
        let held = Held::new(&rules);
        let wanted = Rule {
            verbs: vec!["get".into()],
            groups: vec!["".into()],
            resources: vec!["pods".into()],
            ..Rule::default()
        };
        let outcomes: Vec<_> = (0..2_000).map(|_| held.covers(&wanted)).collect();
        assert_eq!(outcomes.first(), Some(&Ok(false)));
        assert_eq!(outcomes.last(), Some(&Err(TooMany)));
    }
}

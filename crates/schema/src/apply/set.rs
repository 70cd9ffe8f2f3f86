//! [`FieldSet`]: a set of owned fields, as a tree of path elements.
//!
//! Each level is one sorted vector, so that every operation on two sets is a single walk along both. An entry exists because its own
//! path is in the set or because a path below it is.

use std::cmp::Ordering;

use value::steps;

use super::element::{Element, ManagedFieldPath};
use super::shape::Typed;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    // INVARIANT: strictly ascending by element; each entry is owned or has something below it.
    entries: Vec<FieldSetEntry>,
}

/// One element and the paths that go through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSetEntry {
    pub element: Element,
    /// Whether the path that ends at this element is in the set.
    pub owned: bool,
    /// The rest of the paths that continue below this element.
    pub below: FieldSet,
}

impl FieldSet {
    pub const EMPTY: FieldSet = FieldSet { entries: Vec::new() };

    /// A set of paths of field names, such as `["metadata.labels", "spec"]`.
    pub fn of(paths: &[&str]) -> Self {
        // Statics are initialized with it.
        steps::uninterrupted(|| {
            let mut set = FieldSet::default();
            for path in paths {
                set.insert(path.split('.').map(|name| Element::Field(name.into())));
            }
            set
        })
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The first elements of all paths, in order.
    pub fn entries(&self) -> &[FieldSetEntry] {
        &self.entries
    }

    /// A set of entries in any order; entries of the same element are merged. Sorting once avoids the quadratic cost of inserting one
    /// by one.
    pub(super) fn of_entries(mut entries: Vec<FieldSetEntry>) -> Self {
        steps::count(entries.len());
        entries.retain(|entry| entry.owned || !entry.below.is_empty());
        let ascends = |pair: &[FieldSetEntry]| matches!(pair, [a, b] if a.element < b.element);
        if entries.windows(2).all(ascends) {
            return FieldSet { entries };
        }
        entries.sort_by(|a, b| a.element.cmp(&b.element));
        let mut joined: Vec<FieldSetEntry> = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter().peekable();
        while let Some(mut entry) = entries.next() {
            let mut below = Vec::new();
            while let Some(same) = entries.next_if(|next| next.element == entry.element) {
                entry.owned |= same.owned;
                below.extend(same.below.entries);
            }
            if !below.is_empty() {
                let mut all = std::mem::take(&mut entry.below.entries);
                all.append(&mut below);
                entry.below = FieldSet::of_entries(all);
            }
            joined.push(entry);
        }
        FieldSet { entries: joined }
    }

    /// The union of several sets.
    pub(super) fn of_sets(sets: impl IntoIterator<Item = FieldSet>) -> Self {
        let mut sets = sets.into_iter();
        let mut all = sets.next().unwrap_or_default().entries;
        sets.for_each(|set| all.extend(set.entries));
        FieldSet::of_entries(all)
    }

    /// The number of paths in the set.
    pub fn len(&self) -> usize {
        self.entries.iter().map(|entry| usize::from(entry.owned) + entry.below.len()).sum()
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        steps::count(1);
        self.entries.binary_search_by(|entry| entry.element.cmp(element))
    }

    pub fn get(&self, element: &Element) -> Option<&FieldSetEntry> {
        self.entries.get(self.find(element).ok()?)
    }

    pub fn has(&self, path: &[Element]) -> bool {
        let Some((last, way)) = path.split_last() else { return false };
        let mut here = self;
        for element in way {
            match here.get(element) {
                Some(entry) => here = &entry.below,
                None => return false,
            }
        }
        here.get(last).is_some_and(|entry| entry.owned)
    }

    /// Adds a path. The root, which has no elements, is never in a set.
    pub fn insert(&mut self, path: impl IntoIterator<Item = Element>) {
        let mut path = path.into_iter();
        if let Some(first) = path.next() {
            self.insert_from(first, path);
        }
    }

    fn insert_from(&mut self, element: Element, mut rest: impl Iterator<Item = Element>) {
        let at = match self.find(&element) {
            Ok(at) => at,
            Err(at) => {
                steps::count(self.entries.len() - at);
                self.entries.insert(at, FieldSetEntry { element, owned: false, below: FieldSet::EMPTY });
                at
            }
        };
        let Some(entry) = self.entries.get_mut(at) else { return };
        // Recursion, because a loop would have to borrow the set of the entry and that of its parent at once.
        match rest.next() {
            None => entry.owned = true,
            Some(next) => entry.below.insert_boxed(next, &mut rest),
        }
    }

    fn insert_boxed(&mut self, element: Element, rest: &mut dyn Iterator<Item = Element>) {
        self.insert_from(element, rest);
    }

    /// Adds an entry, fastest if it comes after all others. Merges with an existing entry and ignores an empty one.
    pub(super) fn push(&mut self, element: Element, owned: bool, below: FieldSet) {
        if !owned && below.is_empty() {
            return;
        }
        let entry = FieldSetEntry { element, owned, below };
        if self.entries.last().is_none_or(|last| last.element < entry.element) {
            self.entries.push(entry);
            return;
        }
        match self.find(&entry.element) {
            Ok(at) => {
                if let Some(there) = self.entries.get_mut(at) {
                    there.owned |= entry.owned;
                    there.below.unite(entry.below);
                }
            }
            Err(at) => {
                steps::count(self.entries.len() - at);
                self.entries.insert(at, entry);
            }
        }
    }

    pub fn unite(&mut self, other: FieldSet) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        if other.entries.is_empty() {
            return;
        }
        let capacity = self.entries.len().max(other.entries.len());
        steps::count(self.entries.len() + other.entries.len());
        let mine = std::mem::replace(&mut self.entries, Vec::with_capacity(capacity));
        let mut mine = mine.into_iter().peekable();
        let mut theirs = other.entries.into_iter().peekable();
        loop {
            let found = match (mine.peek(), theirs.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let taken = match found {
                Ordering::Less => mine.next(),
                Ordering::Greater => theirs.next(),
                Ordering::Equal => mine.next().map(|mut entry| {
                    if let Some(other) = theirs.next() {
                        entry.owned |= other.owned;
                        entry.below.unite(other.below);
                    }
                    entry
                }),
            };
            self.entries.extend(taken);
        }
    }

    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut out = FieldSet::default();
        let mut theirs = other.entries.as_slice();
        for entry in &self.entries {
            let Some(other) = advance(&mut theirs, &entry.element) else { continue };
            let owned = entry.owned && other.owned;
            let below = if entry.below.is_empty() || other.below.is_empty() {
                FieldSet::EMPTY
            } else {
                entry.below.intersection(&other.below)
            };
            if owned || !below.is_empty() {
                out.entries.push(FieldSetEntry { element: entry.element.clone(), owned, below });
            }
        }
        out
    }

    pub fn subtract(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        let mut theirs = other.entries.as_slice();
        self.entries.retain_mut(|entry| {
            if let Some(other) = advance(&mut theirs, &entry.element) {
                entry.owned &= !other.owned;
                entry.below.subtract(&other.below);
            }
            entry.owned || !entry.below.is_empty()
        });
    }

    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> FieldSet {
        let mut out = self.clone();
        out.subtract(other);
        out
    }

    /// Whether every path of this set is in `other`.
    pub fn is_within(&self, other: &FieldSet) -> bool {
        let mut theirs = other.entries.as_slice();
        self.entries.iter().all(|entry| {
            advance(&mut theirs, &entry.element)
                .is_some_and(|other| (other.owned || !entry.owned) && entry.below.is_within(&other.below))
        })
    }

    /// Removes the paths of another set and all paths below them.
    pub fn subtract_with_below(&mut self, other: &FieldSet) {
        if other.is_empty() {
            return;
        }
        let mut theirs = other.entries.as_slice();
        self.entries.retain_mut(|entry| match advance(&mut theirs, &entry.element) {
            Some(other) if other.owned => false,
            Some(other) => {
                entry.below.subtract_with_below(&other.below);
                entry.owned || !entry.below.is_empty()
            }
            None => true,
        });
    }

    /// Retains the entries for which `keep` returns true; it may modify them.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut FieldSetEntry) -> bool) {
        self.entries.retain_mut(|entry| keep(entry) && (entry.owned || !entry.below.is_empty()));
    }

    /// Adds the path of each declared struct field that has paths below it. Pruning needs this form of the set.
    #[must_use]
    pub(super) fn with_struct_fields(&self, typed: Option<Typed<'_>>) -> FieldSet {
        let entries = self.entries.iter().map(|entry| {
            let (declared, child) = match (&entry.element, typed) {
                (Element::Field(name), Some(typed)) => match typed.field(name) {
                    Some((child, declared)) => (declared, Some(child)),
                    None => (false, None),
                },
                (Element::Key(_), Some(typed)) => (false, typed.items()),
                _ => (false, None),
            };
            let owned = entry.owned || declared && !entry.below.is_empty();
            FieldSetEntry {
                element: entry.element.clone(),
                owned,
                below: entry.below.with_struct_fields(child),
            }
        });
        FieldSet { entries: entries.collect() }
    }

    /// Every path. At each level, paths that end there come before paths that continue.
    pub fn paths(&self) -> Vec<ManagedFieldPath> {
        let mut out = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut out);
        out
    }

    fn collect_paths(&self, way: &mut Vec<Element>, out: &mut Vec<ManagedFieldPath>) {
        for entry in self.entries.iter().filter(|entry| entry.owned) {
            let mut path = way.clone();
            path.push(entry.element.clone());
            out.push(ManagedFieldPath(path));
        }
        for entry in self.entries.iter().filter(|entry| !entry.below.is_empty()) {
            way.push(entry.element.clone());
            entry.below.collect_paths(way, out);
            way.pop();
        }
    }
}

/// Advances `entries`, which are sorted, to `element` and returns its entry. Skips by exponential search, because a small set is
/// compared with a large one for each of many managers.
fn advance<'e>(entries: &mut &'e [FieldSetEntry], element: &Element) -> Option<&'e FieldSetEntry> {
    steps::count(1);
    let mut step = 1;
    while entries.get(step).is_some_and(|entry| entry.element < *element) {
        step *= 2;
    }
    let near = entries.get(..entries.len().min(step + 1)).unwrap_or_default();
    let at = near.partition_point(|entry| entry.element < *element);
    *entries = entries.get(at..).unwrap_or_default();
    let (first, rest) = entries.split_first()?;
    if first.element != *element {
        return None;
    }
    *entries = rest;
    Some(first)
}

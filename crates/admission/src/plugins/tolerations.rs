//! Comparing and merging tolerations.

use std::collections::{HashMap, HashSet};

use value::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Toleration<'a> {
    pub(crate) key: &'a str,
    pub(crate) operator: &'a str,
    pub(crate) value: &'a str,
    pub(crate) effect: &'a str,
    pub(crate) seconds: Option<i64>,
}

impl<'a> Toleration<'a> {
    pub(crate) fn of(toleration: &'a Value) -> Self {
        let text = |field| toleration.str_at(&[field]).unwrap_or_default();
        Toleration {
            key: text("key"),
            operator: text("operator"),
            value: text("value"),
            effect: text("effect"),
            seconds: toleration.int_at(&["tolerationSeconds"]),
        }
    }

    /// Whether this toleration tolerates everything that `other` does.
    pub(crate) fn covers(&self, other: &Toleration<'_>) -> bool {
        if self == other {
            return true;
        }
        if other.key != self.key && !(self.key.is_empty() && self.operator == "Exists") {
            return false;
        }
        if other.effect != self.effect && !self.effect.is_empty() {
            return false;
        }
        if self.effect == "NoExecute"
            && let Some(mine) = self.seconds
            && other.seconds.is_none_or(|theirs| theirs > mine)
        {
            return false;
        }
        match self.operator {
            "Equal" | "" => other.operator == "Equal" && other.value == self.value,
            operator => operator == "Exists",
        }
    }
}

/// A set of tolerations that finds one covering another without comparing all pairs.
#[derive(Default)]
struct TolerationSet<'a> {
    all: HashSet<Toleration<'a>>,
    /// By the properties that decide about covering: whether any value is covered, key, value, effect. For
    /// each combination, the two different tolerations with the longest duration: if one of the two is
    /// excluded, the other covers whatever the rest does.
    best: HashMap<(bool, &'a str, &'a str, &'a str), Vec<Toleration<'a>>>,
}

impl<'a> TolerationSet<'a> {
    fn insert(&mut self, one: Toleration<'a>) {
        if !self.all.insert(one) {
            return;
        }
        let slot = match one.operator {
            "Exists" => (true, one.key, "", one.effect),
            "Equal" | "" => (false, one.key, one.value, one.effect),
            // Other operators cover only equal tolerations.
            _ => return,
        };
        let best = self.best.entry(slot).or_default();
        best.push(one);
        best.sort_by_key(|one| std::cmp::Reverse(one.seconds.unwrap_or(i64::MAX)));
        best.truncate(2);
    }

    /// Whether an element covers `one`. An equal element counts only if `equal` is true.
    fn cover(&self, one: &Toleration<'a>, equal: bool) -> bool {
        let slots = ["", one.effect].into_iter().flat_map(|effect| {
            [(true, "", "", effect), (true, one.key, "", effect), (false, one.key, one.value, effect)]
        });
        let mut candidates = slots.filter_map(|slot| self.best.get(&slot)).flatten();
        (equal && self.all.contains(one)) || candidates.any(|other| other != one && other.covers(one))
    }
}

/// Merges both lists and drops entries that another one covers.
pub(crate) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut later = TolerationSet::default();
    let mut covered_later: Vec<bool> = Vec::with_capacity(all.len());
    for candidate in all.iter().rev() {
        let this = Toleration::of(candidate);
        // Of two equal entries the first stays.
        covered_later.push(later.cover(&this, false));
        later.insert(this);
    }
    let mut cached = TolerationSet::default();
    let mut merged: Vec<Value> = Vec::with_capacity(all.len());
    for (candidate, covered_later) in all.into_iter().zip(covered_later.into_iter().rev()) {
        let this = Toleration::of(candidate);
        if !covered_later && !cached.cover(&this, true) {
            cached.insert(this);
            merged.push(candidate.clone());
        }
    }
    merged
}

/// Whether one of `allowed` covers each of `tolerations`. An empty `allowed` allows everything.
pub(crate) fn all_allowed(tolerations: &[Value], allowed: &[Value]) -> bool {
    let mut coverers = TolerationSet::default();
    allowed.iter().map(Toleration::of).for_each(|one| coverers.insert(one));
    allowed.is_empty() || tolerations.iter().map(Toleration::of).all(|one| coverers.cover(&one, true))
}

#[cfg(test)]
mod tests {
    use fuzz::Dice;

    use super::*;

    /// Pseudo-random tolerations that depend on `seed`.
    fn some(seed: u64) -> Vec<Value> {
        let mut dice = Dice::new(seed);
        let mut pick = |words: &[&str]| dice.pick(words).map(|word| (*word).to_owned()).unwrap_or_default();
        let one = |_| {
            let mut one = Value::map([
                ("key", pick(&["", "a", "b"])),
                ("operator", pick(&["", "Equal", "Exists", "Gt"])),
                ("value", pick(&["", "x", "y"])),
                ("effect", pick(&["", "NoExecute", "NoSchedule"])),
            ]);
            if let Ok(seconds) = pick(&["", "1", "2", "3"]).parse::<i64>() {
                one.set_at(&["tolerationSeconds"], seconds);
            }
            one
        };
        (0..12).map(one).collect()
    }

    /// The reference implementation: compares each with all others.
    fn merged_one_by_one(all: &[Value]) -> Vec<Value> {
        let mut merged: Vec<&Value> = Vec::new();
        for (i, candidate) in all.iter().enumerate() {
            let this = Toleration::of(candidate);
            let cached = merged.iter().any(|cached| Toleration::of(cached).covers(&this));
            let mut later = all.iter().skip(i + 1).map(Toleration::of);
            if !cached && !later.any(|other| other != this && other.covers(&this)) {
                merged.push(candidate);
            }
        }
        merged.into_iter().cloned().collect()
    }

    #[test]
    fn merging_tolerations_equals_comparing_each_with_all_others() {
        for seed in 0..3000 {
            let all = some(seed);
            let (first, second) = all.split_at(usize::try_from(seed).unwrap() % all.len());
            assert_eq!(merge(first, second), merged_one_by_one(&all), "seed {seed}");
            let covered = |one: &Value| {
                let one = Toleration::of(one);
                second.iter().any(|may| Toleration::of(may).covers(&one))
            };
            let expected = second.is_empty() || first.iter().all(covered);
            assert_eq!(all_allowed(first, second), expected, "seed {seed}");
        }
    }
}

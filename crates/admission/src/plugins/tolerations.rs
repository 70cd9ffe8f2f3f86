//! Tolerations of pods: which covers which, and two lists made one.

use value::Value;

/// One toleration, read.
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// Whether this one tolerates all that `other` does.
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

/// Both lists in one, without what another entry covers.
pub(crate) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<&Value> = Vec::with_capacity(all.len());
    for (i, candidate) in all.iter().enumerate() {
        let this = Toleration::of(candidate);
        if merged.iter().any(|kept| Toleration::of(kept).covers(&this)) {
            continue;
        }
        // Of two equal ones the first stays.
        let later = all.get(i + 1..).unwrap_or_default();
        if later.iter().map(|other| Toleration::of(other)).any(|other| other != this && other.covers(&this)) {
            continue;
        }
        merged.push(candidate);
    }
    merged.into_iter().cloned().collect()
}

/// Whether each of `tolerations` is covered by one of `allowed`. An empty list allows everything.
pub(crate) fn all_allowed(tolerations: &[Value], allowed: &[Value]) -> bool {
    allowed.is_empty()
        || tolerations
            .iter()
            .map(Toleration::of)
            .all(|one| allowed.iter().any(|may| Toleration::of(may).covers(&one)))
}

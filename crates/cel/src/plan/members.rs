//! Constant lists in the form used for `in`.

use std::collections::HashSet;
use std::sync::Arc;

use crate::val::convert::{int_to_double, uint_to_double};
use crate::val::{Val, ValKind};

/// From this many elements on, membership is tested with hash sets. It is not part of the cost, so its time must not
/// depend on the length of the list.
const HASHED_MEMBERS: usize = 8;

/// Scalar elements of a constant list.
#[derive(Clone, Debug)]
pub(crate) enum ConstantMembers {
    Few(Vec<Val<'static>>),
    Hashed(Box<HashedMembers>),
}

/// Elements by type. Numbers of different types are equal if they are equal as doubles.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashedMembers {
    strings: HashSet<Arc<str>>,
    /// Length of the longest string in bytes.
    longest: usize,
    bools: HashSet<bool>,
    integers: HashSet<i128>,
    doubles: HashSet<u64>,
    /// Bits of all numbers as doubles.
    rounded: HashSet<u64>,
}

impl ConstantMembers {
    /// Prepares the elements of a list; `None` unless all are scalars.
    pub(super) fn of(members: Vec<Val<'static>>) -> Option<ConstantMembers> {
        let scalar = |val: &Val<'_>| {
            matches!(
                val.kind(),
                ValKind::Bool | ValKind::Int | ValKind::Uint | ValKind::Double | ValKind::String
            )
        };
        if !members.iter().all(scalar) {
            return None;
        }
        if members.len() < HASHED_MEMBERS {
            return Some(ConstantMembers::Few(members));
        }
        let mut hashed = HashedMembers::default();
        for member in &members {
            hashed.insert(member);
        }
        Some(ConstantMembers::Hashed(Box::new(hashed)))
    }

    pub(crate) fn contains_text(&self, text: &str) -> bool {
        match self {
            ConstantMembers::Few(members) => members.iter().any(|member| member.as_str() == Some(text)),
            ConstantMembers::Hashed(members) => members.contains_text(text),
        }
    }
}

/// Bits of a double, equal for equal numbers; `None` for NaN, which equals nothing.
fn bits(double: f64) -> Option<u64> {
    // Adding zero turns -0.0 into 0.0.
    (!double.is_nan()).then(|| (double + 0.0).to_bits())
}

impl HashedMembers {
    fn insert(&mut self, member: &Val<'_>) {
        let (integer, double) = match member {
            Val::String(text) => {
                self.longest = self.longest.max(text.len());
                self.strings.insert(Arc::from(text.as_str()));
                return;
            }
            Val::Bool(b) => {
                self.bools.insert(*b);
                return;
            }
            Val::Int(i) => (Some(i128::from(*i)), int_to_double(*i)),
            Val::Uint(u) => (Some(i128::from(*u)), uint_to_double(*u)),
            Val::Double(d) => (None, *d),
            _ => return,
        };
        let double = bits(double);
        self.rounded.extend(double);
        match integer {
            Some(integer) => {
                self.integers.insert(integer);
            }
            None => self.doubles.extend(double),
        }
    }

    fn contains_text(&self, text: &str) -> bool {
        text.len() <= self.longest && self.strings.contains(text)
    }

    /// True if the list has an element that equals `val`.
    pub(crate) fn contains(&self, val: &Val<'_>) -> bool {
        let is_double = |double: f64| bits(double).is_some_and(|bits| self.doubles.contains(&bits));
        match val {
            Val::String(text) => self.contains_text(text),
            Val::Bool(b) => self.bools.contains(b),
            Val::Int(i) => self.integers.contains(&i128::from(*i)) || is_double(int_to_double(*i)),
            Val::Uint(u) => self.integers.contains(&i128::from(*u)) || is_double(uint_to_double(*u)),
            Val::Double(d) => bits(*d).is_some_and(|bits| self.rounded.contains(&bits)),
            _ => false,
        }
    }
}

//! What calls cost when they are made.

use super::TRAVERSAL;
use crate::env::Env;
use crate::lib::Ext;
use crate::syntax::operator;
use crate::val::Val;

/// How the cost of a call follows from its arguments and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CostRule {
    /// A fixed cost.
    Units(u64),
    /// Going over an argument once.
    Traverse(usize),
    /// Going over the receiver and making as much again.
    Rebuild,
    /// Making the result twice over.
    Result,
    /// The number of elements of the second argument.
    InList,
    /// Going over the smaller argument.
    Smaller,
    /// As [`CostRule::Smaller`], but library values compare at once.
    Equals,
    /// Going over both arguments.
    Both,
    /// Matching a pattern.
    Pattern,
    /// Looking for the second argument in the first.
    Contains,
    /// Reading a selector.
    Selector,
    /// Going over everything inside the first argument.
    Deep,
    /// Comparing an address with a network; a string has to be read first.
    ContainsIp { string: bool },
    /// Comparing two networks.
    ContainsCidr { string: bool },
    /// Validating a string with a named format.
    Validate,
    /// Comparing all elements of two lists, some number of times.
    Sets(u64),
    /// Making the result, a list.
    Output,
    /// Going over a list as often as it is flattened.
    Flatten,
    /// Comparing all elements of an argument with each other.
    SelfCompare(usize),
}

impl CostRule {
    /// The rule of a call. The overload is empty where only the arguments decide it.
    pub(crate) fn of(function: &str, overload: &str, env: &Env) -> CostRule {
        if env.costs_of_lists() {
            match overload {
                "list_slice" | "lists_range" | "list_reverse" => return CostRule::Output,
                "list_flatten" | "list_flatten_int" => return CostRule::Flatten,
                "list_distinct" => return CostRule::SelfCompare(0),
                _ if function == "sort" && !overload.is_empty() => return CostRule::SelfCompare(0),
                _ if function == "@sortByAssociatedKeys" && !overload.is_empty() => {
                    return CostRule::SelfCompare(1);
                }
                _ => {}
            }
        }
        match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => return CostRule::Sets(1),
            "list_sets_equivalent_list" => return CostRule::Sets(2),
            _ => {}
        }
        match function {
            "check" => CostRule::Units(350_000),
            "fieldSelector" | "labelSelector" => CostRule::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => CostRule::Deep,
            "ip" if overload == "cidr_ip" => CostRule::Units(1),
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "ip"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver" => CostRule::Traverse(0),
            "replace" | "split" | "ip.isCanonical" => CostRule::Rebuild,
            "join" => CostRule::Result,
            "find" | "findAll" => CostRule::Pattern,
            "containsIP" => CostRule::ContainsIp { string: overload == "cidr_contains_ip_string" },
            "containsCIDR" => CostRule::ContainsCidr { string: overload == "cidr_contains_cidr_string" },
            "validate" => CostRule::Validate,
            operator::EQUALS => CostRule::Equals,
            _ => match overload {
                "starts_with_string" | "ends_with_string" => CostRule::Traverse(1),
                "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => {
                    CostRule::Traverse(0)
                }
                "in_list" => CostRule::InList,
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes" => CostRule::Smaller,
                "add_string" | "add_bytes" => CostRule::Both,
                "matches" | "matches_string" => CostRule::Pattern,
                "contains_string" => CostRule::Contains,
                _ => CostRule::Units(1),
            },
        }
    }

    /// The cost of comparing two values: that of the smaller, except that library values are equal or not at once.
    pub(crate) fn pair(left: &Val<'_>, right: &Val<'_>, equals: bool) -> u64 {
        match (left, right) {
            (Val::Bool(_) | Val::Int(_), Val::Bool(_) | Val::Int(_) | Val::Null | Val::Double(_)) => 1,
            (Val::Ext(_), _) if equals => 1,
            _ => traverse(left.cost_size().min(right.cost_size())),
        }
    }

    /// The cost of a call that was made.
    pub(crate) fn cost(self, args: &[Val<'_>], result: Option<&Val<'_>>) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Val::cost_size);
        let result = || result.map_or(1, Val::cost_size);
        match self {
            CostRule::Units(units) => units,
            CostRule::Traverse(at) => traverse(size(at)),
            CostRule::Rebuild => traverse(size(0).saturating_mul(2)),
            CostRule::Result => traverse(result().saturating_mul(2)),
            CostRule::InList => size(1),
            CostRule::Smaller | CostRule::Equals => match args {
                [left, right] => CostRule::pair(left, right, self == CostRule::Equals),
                _ => 1,
            },
            CostRule::Both => traverse(size(0).saturating_add(size(1))),
            CostRule::Pattern => matching(size(0), size(1)),
            CostRule::Contains => traverse(size(0)).saturating_mul(traverse(size(1))),
            CostRule::Selector => selector(size(1)),
            CostRule::Deep => args.first().map_or(0, |val| deep(val, &mut { MAX_COUNTED_PARTS })),
            CostRule::ContainsIp { string } => {
                let text = if string { traverse(size(1)) } else { 0 };
                traverse(2 * size(0)) + text
            }
            CostRule::ContainsCidr { string } => {
                let text = if string { traverse(size(1)) } else { 0 };
                traverse(2 * size(0)) + traverse(size(0)) + 1 + text
            }
            CostRule::Validate => match args.first() {
                Some(Val::Ext(ext)) => match &**ext {
                    Ext::Format(format) => {
                        let text = traverse(size(1).saturating_add(1));
                        text.saturating_mul(format.pattern_length.div_ceil(4))
                    }
                    _ => 1,
                },
                _ => 1,
            },
            CostRule::Sets(times) => size(0).saturating_mul(size(1)).saturating_mul(times).saturating_add(1),
            CostRule::Output => result().saturating_add(11),
            CostRule::Flatten => {
                let depth = match args.get(1) {
                    Some(Val::Int(depth)) => crate::val::convert::int_to_double(*depth),
                    _ => 1.0,
                };
                let depth = if depth < 0.0 { 1.0 } else { depth };
                floor(float(size(0)) * depth).saturating_add(11)
            }
            CostRule::SelfCompare(at) => {
                let squared = size(at).saturating_mul(size(at));
                let first = args.get(at).and_then(Val::as_list).and_then(|list| list.get(0));
                let factor =
                    if matches!(first, Some(Val::String(_) | Val::Bytes(_))) { 2.0 + TRAVERSAL } else { 2.0 };
                floor(float(squared) * factor).saturating_add(11)
            }
        }
    }
}

/// What it costs to go over so many characters: a tenth, rounded up. The reference multiplies by 0.1 in floating point, which
/// gives the same for every size there can be.
pub(crate) fn traverse(size: u64) -> u64 {
    size.div_ceil(10)
}

/// What it costs to match so many code points with a pattern of so many.
pub(crate) fn matching(text: u64, pattern: u64) -> u64 {
    traverse(text.saturating_add(1)).saturating_mul(pattern.div_ceil(4))
}

/// What it costs to read a selector: it is gone over once, and makes a requirement for every two characters.
fn selector(length: u64) -> u64 {
    10u64.saturating_add(traverse(length)).saturating_add(length.div_ceil(2).saturating_mul(50))
}

/// How many parts of a value are gone over; more has no value that does not share its parts.
const MAX_COUNTED_PARTS: u64 = 1 << 21;

/// What it costs to go over everything inside a value: more than anybody has where there are too many parts.
fn deep(val: &Val<'_>, left: &mut u64) -> u64 {
    let Some(less) = left.checked_sub(1) else { return u64::MAX };
    *left = less;
    match val {
        Val::String(s) => s.len() as u64 / 10,
        Val::Bytes(b) => b.len() as u64 / 10,
        Val::List(list) => list.iter().fold(0, |cost: u64, item| match cost {
            u64::MAX => cost,
            _ => cost.saturating_add(deep(&item, left)),
        }),
        Val::Map(map) => map.iter().fold(0, |cost: u64, (key, val)| match cost {
            u64::MAX => cost,
            _ => cost.saturating_add(deep(&key, left)).saturating_add(deep(&val, left)),
        }),
        _ => 1,
    }
}

#[expect(clippy::cast_precision_loss, reason = "the reference counts with doubles")]
fn float(size: u64) -> f64 {
    size as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "costs are positive and casts saturate"
)]
fn floor(cost: f64) -> u64 {
    cost as u64
}

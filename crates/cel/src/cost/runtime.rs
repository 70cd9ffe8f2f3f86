//! Actual cost of calls, charged at run time.

use super::{TRAVERSAL, is_text_comparison};
use crate::env::Env;
use crate::lib::Ext;
use crate::syntax::operator;
use crate::val::{Val, length, length_up_to};

/// How the cost of a call depends on its arguments and result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CostRule {
    /// A constant number of cost units.
    Units(u64),
    /// Traversal of one argument.
    Traverse(usize),
    /// Traversal of the receiver and allocation of a result of the same size.
    Rebuild,
    /// Twice the size of the result.
    Result,
    /// Size of the list in the second argument.
    InList,
    /// Traversal of the smaller argument.
    Smaller,
    /// Like [`CostRule::Smaller`], except that library values cost one.
    Equals,
    /// Traversal of both arguments.
    Both,
    /// Matching a regular expression.
    Pattern,
    /// Substring search of the second argument in the first.
    Contains,
    /// Parsing a selector string.
    Selector,
    /// Traversal of everything inside the first argument.
    Deep,
    /// Containment of an address in a network; a string argument is parsed first.
    ContainsIp { string: bool },
    /// Containment of a network in a network; a string argument is parsed first.
    ContainsCidr { string: bool },
    /// Validation of a string by a named format.
    Validate,
    /// Comparison of all pairs of two lists, times a factor.
    Sets(u64),
    /// Allocation of the result list.
    Output,
    /// Traversal of a list, times the flattened depth.
    Flatten,
    /// Comparison of all pairs within one argument.
    SelfCompare(usize),
}

impl CostRule {
    /// Selects the rule of a call. The overload is empty if it is chosen at run time.
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
                _ if is_text_comparison(overload) => CostRule::Smaller,
                "add_string" | "add_bytes" => CostRule::Both,
                "matches" | "matches_string" => CostRule::Pattern,
                "contains_string" => CostRule::Contains,
                _ => CostRule::Units(1),
            },
        }
    }

    /// Cost of comparing two values: the smaller one's traversal, or one for library values under `==`.
    pub(crate) fn pair(left: &Val<'_>, right: &Val<'_>, equals: bool) -> u64 {
        match (left, right) {
            (Val::Bool(_) | Val::Int(_), Val::Bool(_) | Val::Int(_) | Val::Null | Val::Double(_)) => 1,
            (Val::Ext(_), _) if equals => 1,
            // Only the shorter of two texts is read.
            (Val::String(a), Val::String(b)) if a.len() > b.len() => {
                traverse(length_up_to(a, length(b) as u64))
            }
            (Val::String(a), Val::String(b)) => traverse(length_up_to(b, length(a) as u64)),
            (Val::String(text), other) | (other, Val::String(text)) => {
                traverse(length_up_to(text, other.cost_size()))
            }
            _ => traverse(left.cost_size().min(right.cost_size())),
        }
    }

    /// Cost of a completed call.
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
            CostRule::Deep => args.first().map_or(0, |val| DeepCost::of(val).cost),
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

/// Cost of traversing `size` elements: a tenth, rounded up. cel-go multiplies by 0.1 in floating point, which gives
/// the same result for all possible sizes.
pub(crate) fn traverse(size: u64) -> u64 {
    size.div_ceil(10)
}

/// Cost of matching `text` code points with a pattern of `pattern` code points.
pub(crate) fn matching(text: u64, pattern: u64) -> u64 {
    traverse(text.saturating_add(1)).saturating_mul(pattern.div_ceil(4))
}

/// Cost of parsing a selector: one traversal, and one requirement for every two characters.
fn selector(length: u64) -> u64 {
    10u64.saturating_add(traverse(length)).saturating_add(length.div_ceil(2).saturating_mul(50))
}

/// Upper bound of counted parts. Only values that share parts exceed it.
const MAX_COUNTED_PARTS: u64 = 1 << 21;

/// The cost of traversing everything inside a value, with the number of visited parts.
pub(crate) struct DeepCost {
    pub(crate) cost: u64,
    pub(crate) parts: u64,
}

impl DeepCost {
    pub(crate) fn of(val: &Val<'_>) -> DeepCost {
        let mut left = MAX_COUNTED_PARTS;
        let cost = deep(val, &mut left);
        DeepCost { cost, parts: MAX_COUNTED_PARTS - left }
    }
}

/// Cost of traversing everything inside a value; exceeds every limit if there are too many parts.
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

#[expect(clippy::cast_precision_loss, reason = "cel-go counts with doubles")]
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

//! Cost estimates of calls, by function and overload.

use value::Str;

use super::{CallArgument, CallCost, Coster, EntrySize, EstimateRange, OverloadCall};
use crate::cost::{LONGEST_FORMAT, LONGEST_FORMAT_PATTERN, PATTERN, TRAVERSAL, is_text_comparison};
use crate::syntax::ast::{ExprKind, Literal};
use crate::syntax::operator;
use crate::types::Type;

impl<'c> Coster<'c> {
    /// Cost of a call of one overload; `costs` are those of its arguments.
    pub(super) fn function(&mut self, call: OverloadCall<'_, 'c>, costs: &[EstimateRange]) -> CallCost {
        let OverloadCall { expr, overload, args, .. } = call;
        let arg_cost = costs.iter().fold(EstimateRange::exactly(0), |sum, cost| sum.add(*cost));
        let library = self.extension(call).or_else(|| self.kubernetes(call)).or_else(|| self.language(call));
        if let Some(estimate) = library {
            return CallCost { cost: estimate.cost.add(arg_cost), result: estimate.result };
        }
        match (overload, costs, args) {
            ("logical_or" | "logical_and", [left, right], _) => {
                let cost = EstimateRange { min: left.min, max: left.max.saturating_add(right.max) };
                CallCost { cost, result: None }
            }
            ("conditional", [condition, truthy, falsy], [_, a, b]) => {
                let size =
                    a.size.unwrap_or(EstimateRange::UNKNOWN).union(b.size.unwrap_or(EstimateRange::UNKNOWN));
                let entry = EntrySize::union(self.entry_size(a.expr), self.entry_size(b.expr));
                self.set_entry_size(expr, entry);
                CallCost { cost: condition.add(truthy.union(*falsy)), result: Some(size) }
            }
            _ => CallCost { cost: EstimateRange::exactly(1).add(arg_cost), result: None },
        }
    }

    /// Estimates of cel-go's extension libraries.
    #[expect(clippy::match_same_arms, reason = "a table: one entry per group of functions")]
    fn extension(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { function, overload, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| self.hinted(arg);
        let listed = |factor: f64, size: EstimateRange| {
            CallCost::sized(
                size.scale(factor).add(EstimateRange::exactly(1)).add(EstimateRange::exactly(10)),
                size,
            )
        };
        let sets = |factor: f64| match args {
            [a, b] => CallCost::of(size(a).times(size(b)).scale(factor).add(EstimateRange::exactly(1))),
            _ => None,
        };
        match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => return sets(1.0),
            "list_sets_equivalent_list" => return sets(2.0),
            _ if !self.env.costs_of_lists() => return None,
            _ => {}
        }
        let number = |arg: &CallArgument<'c>, default: u64| match &arg.expr.kind {
            ExprKind::Literal(Literal::Int(i)) => u64::try_from(*i).unwrap_or(0),
            _ => default,
        };
        let compared = |arg: &CallArgument<'c>| {
            let textual = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
            let factor = if textual { 2.0 + TRAVERSAL } else { 2.0 };
            let size = size(arg);
            listed(factor, size.times(size))
        };
        match (overload, target, args) {
            ("list_slice", Some(list), [start, end]) => {
                let end = number(end, size(list).max);
                listed(1.0, EstimateRange::exactly(end.wrapping_sub(number(start, 0))))
            }
            ("lists_range", None, [count]) => listed(1.0, EstimateRange::exactly(number(count, u64::MAX))),
            ("list_reverse", Some(list), []) => listed(1.0, size(list)),
            ("list_flatten", Some(list), []) => listed(1.0, size(list)),
            ("list_flatten_int", Some(list), [depth]) => {
                #[expect(clippy::cast_precision_loss, reason = "cel-go estimates with doubles")]
                let depth = number(depth, u64::MAX) as f64;
                listed(depth, size(list))
            }
            ("list_distinct", Some(list), []) => {
                let size = size(list);
                listed(2.0, size.times(size))
            }
            (_, Some(list), []) if function == "sort" => compared(list),
            (_, Some(_), [keys]) if function == "@sortByAssociatedKeys" => compared(keys),
            _ => None,
        }
    }

    /// Size of an argument, with hints for those that are not computed.
    fn hinted(&self, arg: &CallArgument<'c>) -> EstimateRange {
        arg.size.or_else(|| self.hints.size(&arg.path, arg.ty)).unwrap_or(EstimateRange::UNKNOWN)
    }

    /// Type and size of a list's elements.
    fn element(&self, list: &CallArgument<'c>) -> Option<(&'c Type, EstimateRange)> {
        let element = *list.ty.parameters().first()?;
        let mut path = list.path.clone();
        if !path.is_empty() {
            path.push(Str::new_static("@items"));
        }
        Some((element, self.hints.size(&path, element).unwrap_or(EstimateRange::UNKNOWN)))
    }

    /// Estimates of Kubernetes' libraries and the strings extension. No function is in two of the groups.
    fn kubernetes(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        self.authorizer_call(call)
            .or_else(|| self.list_call(call))
            .or_else(|| self.string_call(call))
            .or_else(|| self.parse_or_accessor_call(call))
            .or_else(|| self.network_call(call))
            .or_else(|| Self::equality_of_library_types(call))
    }

    /// Calls of the authorizer library.
    fn authorizer_call(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { function, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| self.hinted(arg);
        let unit = EstimateRange::exactly(1);
        match (function, target, args) {
            ("check", ..) => CallCost::of(EstimateRange::exactly(350_000)),
            (
                "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
                | "allowed" | "reason" | "error" | "errored",
                ..,
            ) => CallCost::of(unit),
            ("fieldSelector" | "labelSelector", _, [selector]) => {
                let length = size(selector);
                let requirements = length.scale(0.5).scale(50.0);
                CallCost::of(EstimateRange::exactly(10).add(length.scale(TRAVERSAL)).add(requirements))
            }
            _ => None,
        }
    }

    /// Calls of Kubernetes' list library.
    fn list_call(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { function, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| self.hinted(arg);
        let unit = EstimateRange::exactly(1);
        match (function, target, args) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes", Some(list), _) => {
                match self.element(list) {
                    Some((element, element_size)) => {
                        let mut each = unit;
                        if matches!(element, Type::String | Type::Bytes) {
                            each = each.add(element_size.scale(TRAVERSAL));
                        }
                        CallCost::of(size(list).times(each))
                    }
                    None if function == "includes" => CallCost::of(size(list)),
                    None => CallCost::of(size(list).scale(TRAVERSAL)),
                }
            }
            _ => None,
        }
    }

    /// Calls of the strings extension and of Kubernetes' regex and format libraries.
    fn string_call(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { function, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| self.hinted(arg);
        let unit = EstimateRange::exactly(1);
        match (function, target, args) {
            ("jsonpatch.escapeKey", _, [text]) => CallCost::sized(size(text).scale(TRAVERSAL), size(text)),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
                CallCost::sized(size(text).scale(TRAVERSAL), size(text))
            }
            ("replace", Some(text), [from, to, ..]) => {
                let result = replaced(size(text), size(from), size(to));
                CallCost::sized(size(text).scale(2.0 * TRAVERSAL), result)
            }
            ("split", Some(text), _) => {
                let max = match args.get(1).map(|limit| &limit.expr.kind) {
                    #[expect(clippy::cast_sign_loss, reason = "cel-go does the same with a negative limit")]
                    Some(ExprKind::Literal(Literal::Int(i))) => *i as u64,
                    _ => size(text).max,
                };
                CallCost::sized(size(text).scale(2.0 * TRAVERSAL), EstimateRange { min: 0, max })
            }
            ("join", Some(list), _) => {
                let count = size(list);
                let mut length = EstimateRange::exactly(0);
                if let Some((_, element)) = self.element(list) {
                    length = count.times(element);
                }
                if let Some(separator) = args.first() {
                    let separators =
                        EstimateRange { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    length = length.add(size(separator).times(separators));
                }
                CallCost::sized(length.scale(TRAVERSAL), length)
            }
            ("find" | "findAll", Some(text), [pattern, ..]) => {
                let text = size(text);
                let cost = text.add(unit).scale(TRAVERSAL).times(size(pattern).scale(PATTERN));
                CallCost::sized(cost, EstimateRange { min: 0, max: text.max })
            }
            ("validate", _, [text, ..]) => {
                CallCost::of(size(text).scale(TRAVERSAL).scale(LONGEST_FORMAT_PATTERN * PATTERN))
            }
            _ => None,
        }
    }

    /// Parsing and methods of URLs, quantities and versions, and lookup of formats.
    fn parse_or_accessor_call(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { function, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| self.hinted(arg);
        let unit = EstimateRange::exactly(1);
        match (function, target, args) {
            ("url", _, [text]) => CallCost::sized(size(text).scale(TRAVERSAL), size(text)),
            ("quantity" | "isQuantity" | "semver" | "isSemver", _, [text, ..]) => {
                CallCost::of(size(text).scale(TRAVERSAL))
            }
            (
                "format.named" | "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan"
                | "isLessThan" | "compareTo" | "add" | "sub" | "major" | "minor" | "patch" | "getScheme"
                | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery",
                ..,
            ) => CallCost::of(unit),
            _ => None,
        }
    }

    /// Calls of the IP and CIDR libraries.
    fn network_call(&self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { function, overload, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| self.hinted(arg);
        let unit = EstimateRange::exactly(1);
        match (function, target, args) {
            ("ip", ..) if overload == "cidr_ip" => CallCost::of(unit),
            ("cidr" | "isIP" | "isCIDR" | "ip", _, [text, ..]) => CallCost::of(size(text).scale(TRAVERSAL)),
            ("ip.isCanonical", _, [text, ..]) => CallCost::of(size(text).scale(2.0 * TRAVERSAL)),
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast",
                ..,
            ) => CallCost::of(unit),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                // An IP address has 4 or 16 bytes.
                let bytes = EstimateRange { min: 4, max: 16 };
                let mut cost = bytes.add(bytes).scale(TRAVERSAL);
                if function == "containsCIDR" {
                    cost = cost.add(bytes.scale(TRAVERSAL)).add(unit);
                }
                if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.add(size(other).scale(TRAVERSAL));
                }
                CallCost::of(cost)
            }
            _ => None,
        }
    }

    /// `==` of two values of a type that a library of Kubernetes declares.
    fn equality_of_library_types(call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let (operator::EQUALS, [left, right]) = (call.function, call.args) else { return None };
        if left.ty.name() != right.ty.name() {
            return None;
        }
        let unit = EstimateRange::exactly(1);
        let known = match left.ty {
            Type::Opaque(name, _) => matches!(name.as_str(), "net.IP" | "net.CIDR").then_some(unit),
            Type::Struct(name) => match name.as_str() {
                "kubernetes.NamedFormat" => {
                    Some(EstimateRange { min: 1, max: LONGEST_FORMAT }.scale(TRAVERSAL))
                }
                "kubernetes.URL" => {
                    let size = right.size.unwrap_or(unit);
                    Some(EstimateRange { min: 1, max: size.max }.scale(TRAVERSAL))
                }
                "kubernetes.Quantity" | "kubernetes.Semver" => Some(unit),
                name if name.starts_with("kubernetes.authorization.") => Some(unit),
                _ => None,
            },
            _ => None,
        };
        known.and_then(CallCost::of)
    }

    /// Estimates of the standard functions, by overload.
    #[expect(clippy::match_same_arms, reason = "a table: one entry per group of functions")]
    fn language(&mut self, call: OverloadCall<'_, 'c>) -> Option<CallCost> {
        let OverloadCall { expr, overload, target, args, .. } = call;
        let size = |arg: &CallArgument<'c>| arg.size.unwrap_or(EstimateRange::UNKNOWN);
        let matched = |text: &CallArgument<'c>, pattern: &CallArgument<'c>| {
            let text = size(text).add(EstimateRange::exactly(1)).scale(TRAVERSAL);
            CallCost::of(text.times(size(pattern).scale(PATTERN)))
        };
        match (overload, target, args) {
            ("string_format", Some(format), _) => CallCost::of(size(format).scale(TRAVERSAL)),
            ("string_to_bytes", _, [text]) => {
                let size = size(text);
                let result = EstimateRange { min: size.min, max: size.max.wrapping_mul(4) };
                CallCost::sized(size.scale(TRAVERSAL), result)
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = size(bytes);
                CallCost::sized(size.scale(TRAVERSAL), EstimateRange { min: size.min / 4, max: size.max })
            }
            ("strings_quote", _, [text]) => {
                let size = size(text);
                let result = EstimateRange {
                    min: size.min.wrapping_add(2),
                    max: size.max.wrapping_mul(2).wrapping_add(2),
                };
                CallCost::sized(size.scale(TRAVERSAL), result)
            }
            ("starts_with_string" | "ends_with_string", _, [part]) => {
                CallCost::of(size(part).scale(TRAVERSAL))
            }
            ("in_list", _, [_, list]) => CallCost::of(size(list).scale(1.0)),
            ("matches_string", Some(text), [pattern]) => matched(text, pattern),
            ("matches", None, [text, pattern]) => matched(text, pattern),
            ("contains_string", Some(text), [part]) => {
                CallCost::of(size(text).scale(TRAVERSAL).times(size(part).scale(TRAVERSAL)))
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let result = size(left).add(size(right));
                let entry = EntrySize::union(self.entry_size(left.expr), self.entry_size(right.expr));
                self.set_entry_size(expr, entry);
                let cost =
                    if overload == "add_list" { EstimateRange::exactly(1) } else { result.scale(TRAVERSAL) };
                CallCost::sized(cost, result)
            }
            (_, _, [left, right])
                if matches!(overload, "equals" | "not_equals") || is_text_comparison(overload) =>
            {
                let max = size(left).max.min(size(right).max);
                CallCost::of(EstimateRange { min: u64::from(max > 0), max }.scale(TRAVERSAL))
            }
            _ => None,
        }
    }
}

/// Bounds of the length of `replace`'s result.
fn replaced(text: EstimateRange, from: EstimateRange, to: EstimateRange) -> EstimateRange {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cel-go estimates with doubles"
    )]
    let per = |length: u64, part: u64| (length as f64 / part as f64).ceil() as u64;
    let (max_count, max_unchanged) = if from.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if to.max <= from.min {
        (0, text.max)
    } else {
        (per(text.max, from.min), 0)
    };
    let (min_count, min_unchanged) = if from.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if from.max <= to.min {
        (0, text.min)
    } else {
        (per(text.min, from.max), 0)
    };
    EstimateRange { min: min_count, max: max_count }
        .times(to)
        .add(EstimateRange { min: min_unchanged, max: max_unchanged })
}

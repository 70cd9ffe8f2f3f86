//! What an expression may cost, estimated from its tree, its types and what is known of the sizes of the data.

use std::collections::HashMap;

use value::Str;

use super::{LONGEST_FORMAT, LONGEST_FORMAT_PATTERN, PATTERN, TRAVERSAL};
use crate::check::Checked;
use crate::env::Env;
use crate::plan::is_bind;
use crate::syntax::ast::{Comprehension, Expr, ExprKind, Id, Literal};
use crate::syntax::operator;
use crate::types::Type;

/// The least and the most something may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub min: u64,
    /// The most; `u64::MAX` where there is no bound.
    pub max: u64,
}

/// Knows the sizes of data: of variables and of what is inside them.
pub trait SizeHints: Sync {
    /// The size of what is at `path`: a variable, then field names, `@items`, `@keys`, `@values`. An empty path means only
    /// the type is known.
    fn size(&self, path: &[Str], ty: &Type) -> Option<Range>;
}

/// Knows nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoHints;

impl SizeHints for NoHints {
    fn size(&self, _: &[Str], _: &Type) -> Option<Range> {
        None
    }
}

impl Range {
    const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    /// Exactly so much.
    pub const fn exactly(size: u64) -> Range {
        Range { min: size, max: size }
    }

    fn add(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scale(self, factor: f64) -> Range {
        Range { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the reference estimates with doubles, and casts saturate"
)]
fn scale(size: u64, factor: f64) -> u64 {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let size = size as f64;
    if size > 0.0 && factor > 0.0 && size > u64::MAX as f64 / factor {
        return u64::MAX;
    }
    let cost = (size * factor).ceil();
    if cost >= END { u64::MAX } else { cost as u64 }
}

/// Estimates the cost of a checked expression.
pub(crate) fn estimate(checked: &Checked, env: &Env, hints: &dyn SizeHints) -> Range {
    let mut coster = Coster {
        checked,
        env,
        hints,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        locals: HashMap::new(),
    };
    coster.cost(&checked.ast.expr)
}

/// The sizes of the keys and values of a list or a map.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    is_list: bool,
    key: Range,
    value: Range,
}

impl EntrySize {
    fn union(a: Option<EntrySize>, b: Option<EntrySize>) -> Option<EntrySize> {
        let (a, b) = (a?, b?);
        Some(EntrySize { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

#[derive(Clone, Debug)]
struct Local {
    path: Vec<Str>,
    size: Option<Range>,
    entry: Option<EntrySize>,
}

/// An argument of a call, as the rules see it.
struct Arg<'c> {
    path: Vec<Str>,
    ty: &'c Type,
    expr: &'c Expr,
    size: Option<Range>,
}

/// What a call costs and how big its result is.
struct CallCost {
    cost: Range,
    result: Option<Range>,
}

impl CallCost {
    #[expect(clippy::unnecessary_wraps, reason = "every caller wants it wrapped")]
    fn of(cost: Range) -> Option<CallCost> {
        Some(CallCost { cost, result: None })
    }

    #[expect(clippy::unnecessary_wraps, reason = "every caller wants it wrapped")]
    fn sized(cost: Range, result: Range) -> Option<CallCost> {
        Some(CallCost { cost, result: Some(result) })
    }
}

struct Coster<'c> {
    checked: &'c Checked,
    env: &'c Env,
    hints: &'c dyn SizeHints,
    paths: HashMap<Id, Vec<Str>>,
    sizes: HashMap<Id, Range>,
    entries: HashMap<Id, EntrySize>,
    locals: HashMap<Str, Vec<Local>>,
}

impl<'c> Coster<'c> {
    fn type_of(&self, expr: &Expr) -> &'c Type {
        self.checked.type_of(expr.id)
    }

    fn local(&self, expr: &Expr) -> Option<&Local> {
        match &expr.kind {
            ExprKind::Ident(name) => self.locals.get(name)?.last(),
            _ => None,
        }
    }

    fn path(&self, expr: &Expr) -> Vec<Str> {
        match self.local(expr) {
            Some(local) => local.path.clone(),
            None => self.paths.get(&expr.id).cloned().unwrap_or_default(),
        }
    }

    fn longer(&self, expr: &Expr, step: &str) -> Vec<Str> {
        let mut path = self.path(expr);
        path.push(step.into());
        path
    }

    fn push(&mut self, name: &Str, local: Local) {
        self.locals.entry(name.clone()).or_default().push(local);
    }

    fn pop(&mut self, name: &Str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(Range::exactly(size));
        }
        let ty = self.type_of(expr);
        if let Some(size) = self.hints.size(&self.path(expr), ty) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(ty) {
            return Some(Range::exactly(1));
        }
        self.local(expr).and_then(|local| local.size)
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Range>) {
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
    }

    fn entry_size(&self, expr: &Expr) -> Option<EntrySize> {
        self.entries.get(&expr.id).copied().or_else(|| self.local(expr)?.entry)
    }

    fn set_entry_size(&mut self, expr: &Expr, size: Option<EntrySize>) {
        if let Some(size) = size {
            self.entries.insert(expr.id, size);
        }
    }

    fn cost(&mut self, expr: &'c Expr) -> Range {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) => Range::exactly(0),
            ExprKind::Ident(name) => {
                let path = self.local(expr).map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(expr.id, path);
                Range::exactly(1)
            }
            ExprKind::Select { operand, field, test_only } => {
                let mut cost = self.cost(operand);
                if *test_only {
                    return cost;
                }
                if matches!(self.type_of(operand), Type::Map(_) | Type::Struct(_) | Type::Param(_)) {
                    cost = cost.add(Range::exactly(1));
                }
                let path = self.longer(operand, field);
                self.paths.insert(expr.id, path);
                cost
            }
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, .. } => {
                let mut cost = Range::exactly(10);
                let mut item = Range { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for element in elements {
                    cost = cost.add(self.cost(element));
                    item = item.union(self.size_or_unknown(element));
                }
                let size = EntrySize { is_list: true, key: Range::exactly(1), value: item };
                self.set_entry_size(expr, Some(size));
                cost
            }
            ExprKind::Map(entries) => {
                let mut cost = Range::exactly(30);
                let none = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    cost = cost.add(self.cost(&entry.key)).add(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.set_entry_size(expr, Some(EntrySize { is_list: false, key, value }));
                cost
            }
            ExprKind::Struct { fields, .. } => {
                fields.iter().fold(Range::exactly(40), |cost, field| cost.add(self.cost(&field.value)))
            }
            ExprKind::Comprehension(c) if is_bind(c) => self.bind(expr, c),
            ExprKind::Comprehension(c) => self.comprehension(expr, c),
        }
    }

    fn bind(&mut self, expr: &Expr, c: &'c Comprehension) -> Range {
        let mut cost = self.cost(&c.range).add(self.cost(&c.init));
        self.push_accumulator(c);
        cost = cost.add(self.cost(&c.result));
        self.pop(&c.accu);
        let size = self.size(&c.result);
        self.set_size(expr, size);
        let entry = self.entry_size(&c.result);
        self.set_entry_size(expr, entry);
        cost
    }

    fn push_accumulator(&mut self, c: &Comprehension) {
        let path = self.path(&c.init);
        let entry = self.entry_size(&c.init);
        let size = self.size(&c.init);
        self.push(&c.accu, Local { path, size, entry });
    }

    fn comprehension(&mut self, expr: &Expr, c: &'c Comprehension) -> Range {
        let mut cost = self.cost(&c.range).add(self.cost(&c.init));
        self.push_accumulator(c);
        let entry = self.entry_size(&c.range);
        let is_list =
            entry.map_or_else(|| matches!(self.type_of(&c.range), Type::List(_)), |entry| entry.is_list);
        let mut push = |name: &Str, step: &str, size: Option<Range>| {
            let path = self.longer(&c.range, step);
            self.push(name, Local { path, size, entry: None });
        };
        let (key, value) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        match &c.var2 {
            Some(var2) => {
                push(&c.var, if is_list { "@indices" } else { "@keys" }, key);
                push(var2, if is_list { "@items" } else { "@values" }, value);
            }
            None if is_list => push(&c.var, "@items", value),
            None => push(&c.var, "@keys", key),
        }
        let condition = self.cost(&c.condition);
        let step = self.cost(&c.step);
        self.pop(&c.var);
        if let Some(var2) = &c.var2 {
            self.pop(var2);
        }
        cost = cost.add(self.cost(&c.result));
        self.pop(&c.accu);
        let turns = self.size_or_unknown(&c.range);
        cost = cost.add(turns.times(step.add(condition)));
        match &c.init.kind {
            ExprKind::Literal(_) => {
                let size = self.size(&c.init);
                self.set_size(expr, size);
            }
            ExprKind::List { .. } | ExprKind::Map(_) => {
                self.set_size(expr, Some(turns));
                let entry = self.entry_size(&c.step);
                self.set_entry_size(expr, entry);
            }
            _ => {}
        }
        cost
    }

    fn arg(&mut self, expr: &'c Expr) -> Arg<'c> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|first| first == "@result" || first == "__result__") {
            path.clear();
        }
        Arg { path, ty: self.type_of(expr), expr, size: self.size(expr) }
    }

    fn call(&mut self, expr: &'c Expr, function: &str, target: Option<&'c Expr>, args: &'c [Expr]) -> Range {
        if function == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(arg).add(Range::exactly(1));
            let size = self.size(arg);
            self.set_size(expr, size);
            let entry = self.entry_size(arg);
            self.set_entry_size(expr, entry);
            return cost;
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut nodes = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            nodes.push(self.arg(arg));
        }
        let overloads = self.checked.overloads(expr.id);
        if overloads.is_empty() {
            return Range::exactly(0);
        }
        let mut cost = Range::exactly(0);
        let target = target.map(|target| {
            cost = self.cost(target);
            self.arg(target)
        });
        let mut call = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let this = self.function(expr, function, overload, target.as_ref(), &nodes, &costs);
            call = call.union(this.cost);
            if let Some(size) = this.result {
                result = Some(result.map_or(size, |before| before.union(size)));
            }
            let step = match overload.as_str() {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(operand)) = (step, args.first()) {
                result = self.entry_size(operand).map(|entry| entry.value);
                let path = self.longer(operand, step);
                self.paths.insert(expr.id, path);
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        self.set_size(expr, result);
        cost.add(call)
    }

    fn function(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Arg<'c>>,
        args: &[Arg<'c>],
        costs: &[Range],
    ) -> CallCost {
        let arg_cost = costs.iter().fold(Range::exactly(0), |sum, cost| sum.add(*cost));
        let library = self
            .extension(function, overload, target, args)
            .or_else(|| self.kubernetes(function, overload, target, args))
            .or_else(|| self.language(expr, overload, target, args));
        if let Some(call) = library {
            return CallCost { cost: call.cost.add(arg_cost), result: call.result };
        }
        match (overload, costs, args) {
            ("logical_or" | "logical_and", [left, right], _) => {
                let cost = Range { min: left.min, max: left.max.saturating_add(right.max) };
                CallCost { cost, result: None }
            }
            ("conditional", [condition, truthy, falsy], [_, a, b]) => {
                let size = a.size.unwrap_or(Range::UNKNOWN).union(b.size.unwrap_or(Range::UNKNOWN));
                let entry = EntrySize::union(self.entry_size(a.expr), self.entry_size(b.expr));
                self.set_entry_size(expr, entry);
                CallCost { cost: condition.add(truthy.union(*falsy)), result: Some(size) }
            }
            _ => CallCost { cost: Range::exactly(1).add(arg_cost), result: None },
        }
    }

    /// The extension libraries' own estimates.
    #[expect(clippy::match_same_arms, reason = "a table: one entry per group of functions")]
    fn extension(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Arg<'c>>,
        args: &[Arg<'c>],
    ) -> Option<CallCost> {
        let size = |arg: &Arg<'c>| self.hinted(arg);
        let listed = |factor: f64, size: Range| {
            CallCost::sized(size.scale(factor).add(Range::exactly(1)).add(Range::exactly(10)), size)
        };
        let sets = |factor: f64| match args {
            [a, b] => CallCost::of(size(a).times(size(b)).scale(factor).add(Range::exactly(1))),
            _ => None,
        };
        match overload {
            "list_sets_contains_list" | "list_sets_intersects_list" => return sets(1.0),
            "list_sets_equivalent_list" => return sets(2.0),
            _ if !self.env.costs_of_lists() => return None,
            _ => {}
        }
        let number = |arg: &Arg<'c>, default: u64| match &arg.expr.kind {
            ExprKind::Literal(Literal::Int(i)) => u64::try_from(*i).unwrap_or(0),
            _ => default,
        };
        let compared = |arg: &Arg<'c>| {
            let textual = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
            let factor = if textual { 2.0 + TRAVERSAL } else { 2.0 };
            let size = size(arg);
            listed(factor, size.times(size))
        };
        match (overload, target, args) {
            ("list_slice", Some(list), [start, end]) => {
                let end = number(end, size(list).max);
                listed(1.0, Range::exactly(end.wrapping_sub(number(start, 0))))
            }
            ("lists_range", None, [count]) => listed(1.0, Range::exactly(number(count, u64::MAX))),
            ("list_reverse", Some(list), []) => listed(1.0, size(list)),
            ("list_flatten", Some(list), []) => listed(1.0, size(list)),
            ("list_flatten_int", Some(list), [depth]) => {
                #[expect(clippy::cast_precision_loss, reason = "the reference estimates with doubles")]
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

    /// The size of an argument, asking the hints once more where nothing is computed.
    fn hinted(&self, arg: &Arg<'c>) -> Range {
        arg.size.or_else(|| self.hints.size(&arg.path, arg.ty)).unwrap_or(Range::UNKNOWN)
    }

    /// The type of a list's elements and their size.
    fn element(&self, list: &Arg<'c>) -> Option<(&'c Type, Range)> {
        let element = *list.ty.parameters().first()?;
        let mut path = list.path.clone();
        if !path.is_empty() {
            path.push(Str::new_static("@items"));
        }
        Some((element, self.hints.size(&path, element).unwrap_or(Range::UNKNOWN)))
    }

    /// Kubernetes' estimates for its own and the string libraries.
    #[expect(clippy::match_same_arms, reason = "a table: one entry per group of functions")]
    fn kubernetes(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Arg<'c>>,
        args: &[Arg<'c>],
    ) -> Option<CallCost> {
        let size = |arg: &Arg<'c>| self.hinted(arg);
        let unit = Range::exactly(1);
        match (function, target, args) {
            ("check", ..) => CallCost::of(Range::exactly(350_000)),
            (
                "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name"
                | "allowed" | "reason" | "error" | "errored",
                ..,
            ) => CallCost::of(unit),
            ("fieldSelector" | "labelSelector", _, [selector]) => {
                let length = size(selector);
                let requirements = length.scale(0.5).scale(50.0);
                CallCost::of(Range::exactly(10).add(length.scale(TRAVERSAL)).add(requirements))
            }
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
            ("url" | "jsonpatch.escapeKey", _, [text]) => {
                CallCost::sized(size(text).scale(TRAVERSAL), size(text))
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
                CallCost::sized(size(text).scale(TRAVERSAL), size(text))
            }
            ("replace", Some(text), [from, to, ..]) => {
                let result = replaced(size(text), size(from), size(to));
                CallCost::sized(size(text).scale(2.0 * TRAVERSAL), result)
            }
            ("split", Some(text), _) => {
                let max = match args.get(1).map(|limit| &limit.expr.kind) {
                    #[expect(
                        clippy::cast_sign_loss,
                        reason = "the reference does the same with a negative limit"
                    )]
                    Some(ExprKind::Literal(Literal::Int(i))) => *i as u64,
                    _ => size(text).max,
                };
                CallCost::sized(size(text).scale(2.0 * TRAVERSAL), Range { min: 0, max })
            }
            ("join", Some(list), _) => {
                let count = size(list);
                let mut length = Range::exactly(0);
                if let Some((_, element)) = self.element(list) {
                    length = count.times(element);
                }
                if let Some(separator) = args.first() {
                    let separators =
                        Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    length = length.add(size(separator).times(separators));
                }
                CallCost::sized(length.scale(TRAVERSAL), length)
            }
            ("find" | "findAll", Some(text), [pattern, ..]) => {
                let text = size(text);
                let cost = text.add(unit).scale(TRAVERSAL).times(size(pattern).scale(PATTERN));
                CallCost::sized(cost, Range { min: 0, max: text.max })
            }
            ("ip", ..) if overload == "cidr_ip" => CallCost::of(unit),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [text, ..],
            ) => CallCost::of(size(text).scale(TRAVERSAL)),
            ("ip.isCanonical", _, [text, ..]) => CallCost::of(size(text).scale(2.0 * TRAVERSAL)),
            (
                "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                ..,
            ) => CallCost::of(unit),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                // An address has 4 or 16 bytes.
                let bytes = Range { min: 4, max: 16 };
                let mut cost = bytes.add(bytes).scale(TRAVERSAL);
                if function == "containsCIDR" {
                    cost = cost.add(bytes.scale(TRAVERSAL)).add(unit);
                }
                if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                    cost = cost.add(size(other).scale(TRAVERSAL));
                }
                CallCost::of(cost)
            }
            ("validate", _, [text, ..]) => {
                CallCost::of(size(text).scale(TRAVERSAL).scale(LONGEST_FORMAT_PATTERN * PATTERN))
            }
            (operator::EQUALS, _, [left, right]) if left.ty.name() == right.ty.name() => {
                let known = match left.ty {
                    Type::Opaque(name, _) => matches!(name.as_str(), "net.IP" | "net.CIDR").then_some(unit),
                    Type::Struct(name) => match name.as_str() {
                        "kubernetes.NamedFormat" => {
                            Some(Range { min: 1, max: LONGEST_FORMAT }.scale(TRAVERSAL))
                        }
                        "kubernetes.URL" => {
                            let size = right.size.unwrap_or(unit);
                            Some(Range { min: 1, max: size.max }.scale(TRAVERSAL))
                        }
                        "kubernetes.Quantity" | "kubernetes.Semver" => Some(unit),
                        name if name.starts_with("kubernetes.authorization.") => Some(unit),
                        _ => None,
                    },
                    _ => None,
                };
                known.and_then(CallCost::of)
            }
            _ => None,
        }
    }

    /// The language's own estimates, by overload.
    #[expect(clippy::match_same_arms, reason = "a table: one entry per group of functions")]
    fn language(
        &mut self,
        expr: &Expr,
        overload: &str,
        target: Option<&Arg<'c>>,
        args: &[Arg<'c>],
    ) -> Option<CallCost> {
        let size = |arg: &Arg<'c>| arg.size.unwrap_or(Range::UNKNOWN);
        let matched = |text: &Arg<'c>, pattern: &Arg<'c>| {
            let text = size(text).add(Range::exactly(1)).scale(TRAVERSAL);
            CallCost::of(text.times(size(pattern).scale(PATTERN)))
        };
        match (overload, target, args) {
            ("string_format", Some(format), _) => CallCost::of(size(format).scale(TRAVERSAL)),
            ("string_to_bytes", _, [text]) => {
                let size = size(text);
                let result = Range { min: size.min, max: size.max.wrapping_mul(4) };
                CallCost::sized(size.scale(TRAVERSAL), result)
            }
            ("bytes_to_string", _, [bytes]) => {
                let size = size(bytes);
                CallCost::sized(size.scale(TRAVERSAL), Range { min: size.min / 4, max: size.max })
            }
            ("strings_quote", _, [text]) => {
                let size = size(text);
                let result =
                    Range { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
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
                let cost = if overload == "add_list" { Range::exactly(1) } else { result.scale(TRAVERSAL) };
                CallCost::sized(cost, result)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = size(left).max.min(size(right).max);
                CallCost::of(Range { min: u64::from(max > 0), max }.scale(TRAVERSAL))
            }
            _ => None,
        }
    }
}

/// How long the result of `replace` may be.
fn replaced(text: Range, from: Range, to: Range) -> Range {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the reference estimates with doubles"
    )]
    let per = |length: u64, part: u64| (length as f64 / part as f64).ceil() as u64;
    let (max_count, max_kept) = if from.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if to.max <= from.min {
        (0, text.max)
    } else {
        (per(text.max, from.min), 0)
    };
    let (min_count, min_kept) = if from.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if from.max <= to.min {
        (0, text.min)
    } else {
        (per(text.min, from.max), 0)
    };
    Range { min: min_count, max: max_count }.times(to).add(Range { min: min_kept, max: max_kept })
}

/// The size of a literal, where it shows.
fn literal_size(expr: &Expr) -> Option<u64> {
    match &expr.kind {
        ExprKind::Literal(Literal::String(s)) => Some(s.chars().count() as u64),
        ExprKind::Literal(Literal::Bytes(b)) => Some(b.len() as u64),
        ExprKind::Literal(_) => Some(1),
        ExprKind::List { elements, .. } => Some(elements.len() as u64),
        ExprKind::Map(entries) => Some(entries.len() as u64),
        _ => None,
    }
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Wrapper(inner) => is_scalar(inner),
        _ => ty.optional_value().is_some_and(is_scalar),
    }
}

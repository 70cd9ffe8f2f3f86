//! Estimates the cost of an expression from its tree, its types and size hints.

mod calls;

use std::collections::HashMap;

use value::Str;

pub use super::range::{EstimateRange, NoHints, SizeHints};
use crate::check::CheckedAst;
use crate::env::Env;
use crate::plan::is_bind;
use crate::syntax::ast::{Comprehension, Expr, ExprKind, Literal, NodeId};
use crate::types::Type;

/// Estimates the cost of a checked expression.
pub(crate) fn estimate(checked: &CheckedAst, env: &Env, hints: &dyn SizeHints) -> EstimateRange {
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

/// Sizes of the keys and values of a list or map.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    is_list: bool,
    key: EstimateRange,
    value: EstimateRange,
}

impl EntrySize {
    fn union(a: Option<EntrySize>, b: Option<EntrySize>) -> Option<EntrySize> {
        let (a, b) = (a?, b?);
        Some(EntrySize { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

#[derive(Clone, Debug)]
struct LocalSize {
    path: Vec<Str>,
    size: Option<EstimateRange>,
    entry: Option<EntrySize>,
}

/// An argument of a call with its type, size and path.
struct CallArgument<'c> {
    path: Vec<Str>,
    ty: &'c Type,
    expr: &'c Expr,
    size: Option<EstimateRange>,
}

#[derive(Clone, Copy)]
struct OverloadCall<'x, 'c> {
    expr: &'x Expr,
    function: &'x str,
    overload: &'x str,
    target: Option<&'x CallArgument<'c>>,
    args: &'x [CallArgument<'c>],
}

/// Cost of a call and size of its result.
struct CallCost {
    cost: EstimateRange,
    result: Option<EstimateRange>,
}

impl CallCost {
    #[expect(clippy::unnecessary_wraps, reason = "every caller wants it wrapped")]
    fn of(cost: EstimateRange) -> Option<CallCost> {
        Some(CallCost { cost, result: None })
    }

    #[expect(clippy::unnecessary_wraps, reason = "every caller wants it wrapped")]
    fn sized(cost: EstimateRange, result: EstimateRange) -> Option<CallCost> {
        Some(CallCost { cost, result: Some(result) })
    }
}

struct Coster<'c> {
    checked: &'c CheckedAst,
    env: &'c Env,
    hints: &'c dyn SizeHints,
    paths: HashMap<NodeId, Vec<Str>>,
    sizes: HashMap<NodeId, EstimateRange>,
    entries: HashMap<NodeId, EntrySize>,
    locals: HashMap<Str, Vec<LocalSize>>,
}

impl<'c> Coster<'c> {
    fn type_of(&self, expr: &Expr) -> &'c Type {
        self.checked.type_of(expr.id)
    }

    fn local(&self, expr: &Expr) -> Option<&LocalSize> {
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

    fn push(&mut self, name: &Str, local: LocalSize) {
        self.locals.entry(name.clone()).or_default().push(local);
    }

    fn pop(&mut self, name: &Str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn size(&mut self, expr: &Expr) -> Option<EstimateRange> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(EstimateRange::exactly(size));
        }
        let ty = self.type_of(expr);
        if let Some(size) = self.hints.size(&self.path(expr), ty) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(ty) {
            return Some(EstimateRange::exactly(1));
        }
        self.local(expr).and_then(|local| local.size)
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> EstimateRange {
        self.size(expr).unwrap_or(EstimateRange::UNKNOWN)
    }

    fn set_size(&mut self, expr: &Expr, size: Option<EstimateRange>) {
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

    fn cost(&mut self, expr: &'c Expr) -> EstimateRange {
        match &expr.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) => EstimateRange::exactly(0),
            ExprKind::Ident(name) => {
                let path = self.local(expr).map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(expr.id, path);
                EstimateRange::exactly(1)
            }
            ExprKind::Select { operand, field, test_only } => {
                let mut cost = self.cost(operand);
                if *test_only {
                    return cost;
                }
                if matches!(self.type_of(operand), Type::Map(_) | Type::Struct(_) | Type::Param(_)) {
                    cost = cost.add(EstimateRange::exactly(1));
                }
                let path = self.longer(operand, field);
                self.paths.insert(expr.id, path);
                cost
            }
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, .. } => {
                let mut cost = EstimateRange::exactly(10);
                let mut item = EstimateRange { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
                for element in elements {
                    cost = cost.add(self.cost(element));
                    item = item.union(self.size_or_unknown(element));
                }
                let size = EntrySize { is_list: true, key: EstimateRange::exactly(1), value: item };
                self.set_entry_size(expr, Some(size));
                cost
            }
            ExprKind::Map(entries) => {
                let mut cost = EstimateRange::exactly(30);
                let none = EstimateRange { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    cost = cost.add(self.cost(&entry.key)).add(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.set_entry_size(expr, Some(EntrySize { is_list: false, key, value }));
                cost
            }
            ExprKind::Struct { fields, .. } => fields
                .iter()
                .fold(EstimateRange::exactly(40), |cost, field| cost.add(self.cost(&field.value))),
            ExprKind::Comprehension(c) if is_bind(c) => self.bind(expr, c),
            ExprKind::Comprehension(c) => self.comprehension(expr, c),
        }
    }

    fn bind(&mut self, expr: &Expr, c: &'c Comprehension) -> EstimateRange {
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
        self.push(&c.accu, LocalSize { path, size, entry });
    }

    fn comprehension(&mut self, expr: &Expr, c: &'c Comprehension) -> EstimateRange {
        let mut cost = self.cost(&c.range).add(self.cost(&c.init));
        self.push_accumulator(c);
        let entry = self.entry_size(&c.range);
        let is_list =
            entry.map_or_else(|| matches!(self.type_of(&c.range), Type::List(_)), |entry| entry.is_list);
        let mut push = |name: &Str, step: &str, size: Option<EstimateRange>| {
            let path = self.longer(&c.range, step);
            self.push(name, LocalSize { path, size, entry: None });
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

    fn arg(&mut self, expr: &'c Expr) -> CallArgument<'c> {
        let mut path = self.path(expr);
        if path.first().is_some_and(|first| first == "@result" || first == "__result__") {
            path.clear();
        }
        CallArgument { path, ty: self.type_of(expr), expr, size: self.size(expr) }
    }

    fn call(
        &mut self,
        expr: &'c Expr,
        function: &str,
        target: Option<&'c Expr>,
        args: &'c [Expr],
    ) -> EstimateRange {
        if function == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(arg).add(EstimateRange::exactly(1));
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
            return EstimateRange::exactly(0);
        }
        let mut cost = EstimateRange::exactly(0);
        let target = target.map(|target| {
            cost = self.cost(target);
            self.arg(target)
        });
        let mut call = EstimateRange { min: u64::MAX, max: 0 };
        let mut result: Option<EstimateRange> = None;
        for overload in overloads {
            let one = OverloadCall { expr, function, overload, target: target.as_ref(), args: &nodes };
            let this = self.function(one, &costs);
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
}

/// Size of a literal; `None` for other expressions.
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

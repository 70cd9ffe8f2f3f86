//! Plans a checked expression as a [`Program`](crate::Program): resolves variables to indices and calls to
//! implementations, folds constants, and recognizes loops and conditions.

pub(crate) mod condition;
mod fold;
pub(crate) mod members;
pub(crate) mod node;

use std::cell::Cell;

use value::Str;

use crate::check::{CheckedAst, Constant, ResolvedReference};
use crate::cost::runtime::CostRule;
use crate::env::Env;
use crate::eval::{Error, go_type, run_constant};
use crate::lib::{messages, pattern};
use crate::schema::is_mutation_type;
use crate::syntax::ast::{Comprehension, Expr, ExprKind, Literal};
use crate::syntax::operator;
use crate::types::Type;
use crate::val::{Val, ValKind};
use members::ConstantMembers;
use node::{
    Attribute, AttributeBase, BindNode, CallImplementation, CallNode, Conditional, Folded, ListNode, MapNode,
    PatternCall, PlanNode, Qualifier, QualifierKey, StructNode,
};

/// A planned expression: its root node and the number of comprehension slots.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) root: PlanNode,
    pub(crate) slots: usize,
    /// True if evaluation recurses deeply and needs a large stack.
    pub(crate) deep: bool,
    /// True if a regular expression is not constant, so that it is compiled during evaluation.
    pub(crate) compiles_data: bool,
    /// True if the expression matches regular expressions at all.
    pub(crate) matches: bool,
}

/// Nesting depth from which a plan runs on a large stack.
const DEEP_LEVELS: usize = 80;

/// How to plan an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanOptions {
    /// Folds calls with constant arguments and recognizes conditions. Neither changes the cost that is charged.
    pub(crate) fold: bool,
    /// The expression was type-checked. Otherwise undeclared names fail when they are evaluated.
    pub(crate) checked: bool,
}

/// Plans an expression. Fails if a constant subexpression always fails.
pub(crate) fn plan(checked: &CheckedAst, env: &Env, options: PlanOptions) -> Result<Plan, Error> {
    let mut planner = Planner {
        checked,
        env,
        options,
        scopes: Vec::new(),
        slots: 0,
        compiles_data: Cell::new(false),
        matches: Cell::new(false),
    };
    let mut root = planner.plan(&checked.ast.expr)?;
    if options.fold {
        condition::insert_conditions(&mut root);
    }
    let deep = depth(&checked.ast.expr) > DEEP_LEVELS;
    let (compiles_data, matches) = (planner.compiles_data.get(), planner.matches.get());
    Ok(Plan { root, slots: planner.slots, deep, compiles_data, matches })
}

fn depth(expr: &Expr) -> usize {
    let mut deepest = 0;
    expr.children(&mut |child| deepest = deepest.max(depth(child)));
    deepest + 1
}

/// Converts a literal to its value.
pub(crate) fn literal(literal: &Literal) -> Val<'static> {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(i) => Val::Int(*i),
        Literal::Uint(u) => Val::Uint(*u),
        Literal::Double(d) => Val::Double(*d),
        Literal::String(s) => Val::string(s.as_str()),
        Literal::Bytes(b) => Val::Bytes(b.as_slice().into()),
    }
}

struct Planner<'p> {
    checked: &'p CheckedAst,
    env: &'p Env,
    options: PlanOptions,
    /// Comprehension variables in scope with their slots, innermost last.
    scopes: Vec<(Str, usize)>,
    slots: usize,
    compiles_data: Cell<bool>,
    matches: Cell<bool>,
}

/// Functions that are folded if their only argument is constant, at no cost, as cel-go does.
const FOLDED_FREE: [&str; 10] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];

/// Functions that are folded if all arguments are constant; the call's cost is charged when the program runs.
const FOLDED_AT_COST: [&str; 17] = [
    "quantity",
    "isQuantity",
    "ip",
    "isIP",
    "ip.isCanonical",
    "cidr",
    "isCIDR",
    "semver",
    "isSemver",
    "url",
    "isURL",
    "format.named",
    "-_",
    "size",
    "lowerAscii",
    "upperAscii",
    "optional.none",
];

impl Planner<'_> {
    fn plan(&mut self, expr: &Expr) -> Result<PlanNode, Error> {
        match &expr.kind {
            ExprKind::Unspecified => Err(Error::new("unsupported expr")),
            ExprKind::Literal(value) => Ok(PlanNode::Const(literal(value))),
            ExprKind::Ident(name) => self.ident(expr, name),
            ExprKind::Select { operand, field, test_only } => {
                let mut node = self.plan(operand)?;
                if *test_only && matches!(&node, PlanNode::Attribute(attribute) if attribute.test_only) {
                    node = operand_of(node);
                }
                let key = QualifierKey::Field(field.as_str().into());
                let typed = matches!(self.checked.type_of(operand.id), Type::Struct(_));
                Ok(push_qualifier(node, Qualifier { key, optional: false, typed }, *test_only))
            }
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List { elements, optional } => {
                let elements = elements
                    .iter()
                    .enumerate()
                    .map(|(i, element)| Ok((self.plan(element)?, optional.binary_search(&i).is_ok())))
                    .collect::<Result<Box<[_]>, Error>>()?;
                let constant = elements.iter().all(|(element, _)| matches!(element, PlanNode::Const(_)));
                Ok(fold_literal_if(constant, PlanNode::List(Box::new(ListNode { elements }))))
            }
            ExprKind::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| Ok((self.plan(&entry.key)?, self.plan(&entry.value)?, entry.optional)))
                    .collect::<Result<Box<[_]>, Error>>()?;
                let constant = entries
                    .iter()
                    .all(|(key, value, _)| matches!((key, value), (PlanNode::Const(_), PlanNode::Const(_))));
                Ok(fold_literal_if(constant, PlanNode::Map(Box::new(MapNode { entries }))))
            }
            ExprKind::Struct { type_name, fields } => {
                if self.options.checked && !self.env.has_struct(type_name) {
                    return Err(Error::new(format!("unknown type: {type_name}")));
                }
                let fields = fields
                    .iter()
                    .map(|field| Ok((field.name.clone(), self.plan(&field.value)?, field.optional)))
                    .collect::<Result<Box<[_]>, Error>>()?;
                Ok(PlanNode::Struct(Box::new(StructNode { type_name: type_name.clone(), fields })))
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn ident(&self, expr: &Expr, name: &str) -> Result<PlanNode, Error> {
        if let Some(ResolvedReference::Constant(constant)) = self.checked.references.get(&expr.id) {
            return Ok(PlanNode::Const(match constant {
                Constant::Type(name) if is_mutation_type(name) || messages::is_other_type(name) => {
                    return Err(Error::new(format!("reference to undefined type: {name}")));
                }
                Constant::Type(name) => Val::of_type(name),
                Constant::Int(i) => Val::Int(*i),
            }));
        }
        let local = self.scopes.iter().rev().find(|(local, _)| local == name);
        let base = if let Some((_, slot)) = local {
            AttributeBase::Slot(*slot)
        } else {
            let name = name.strip_prefix('.').unwrap_or(name);
            let Some(at) = self.env.variable(name) else {
                let error = Error::new(format!("no such attribute(s): {name}"));
                if self.options.checked {
                    return Err(error);
                }
                return Ok(PlanNode::Folded(Box::new(Folded { outcome: Err(error), cost: 0 })));
            };
            AttributeBase::Variable(at)
        };
        Ok(attribute(base))
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &Str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Result<PlanNode, Error> {
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            nodes.push(self.plan(arg)?);
        }
        let overloads = self.checked.overloads(expr.id);
        match (function.as_str(), nodes.as_slice()) {
            (operator::AND, [_, _]) => return Ok(PlanNode::And(Box::new(pair(nodes)))),
            (operator::OR, [_, _]) => return Ok(PlanNode::Or(Box::new(pair(nodes)))),
            (operator::EQUALS, [_, _]) => return Ok(PlanNode::Equals(Box::new(pair(nodes)))),
            (operator::NOT_EQUALS, [_, _]) => return Ok(PlanNode::NotEquals(Box::new(pair(nodes)))),
            (operator::CONDITIONAL, [_, _, _]) => {
                let mut nodes = nodes.into_iter();
                let mut next = || nodes.next().unwrap_or(PlanNode::Const(Val::Null));
                let (condition, truthy, falsy) = (next(), next(), next());
                return Ok(PlanNode::Conditional(Box::new(Conditional {
                    condition,
                    truthy,
                    falsy,
                    path: Vec::new(),
                })));
            }
            (operator::INDEX | operator::OPT_INDEX | operator::OPT_SELECT, [_, _]) => {
                let optional = function != operator::INDEX;
                let (operand, index) = pair(nodes);
                let key = match index {
                    PlanNode::Const(Val::String(name)) => QualifierKey::Field(name.as_str().into()),
                    PlanNode::Const(val) if is_key(&val) => QualifierKey::Constant(val),
                    PlanNode::Const(val) => {
                        return Err(Error::new(format!("invalid qualifier type: {}", go_type(&val))));
                    }
                    index => QualifierKey::Computed(index),
                };
                return Ok(push_qualifier(operand, Qualifier { key, optional, typed: false }, false));
            }
            (operator::NOT_STRICTLY_FALSE, [_]) => {
                let arg = nodes.pop().unwrap_or(PlanNode::Const(Val::Null));
                return Ok(PlanNode::NotStrictlyFalse(Box::new(arg)));
            }
            ("or", [_, _]) if single(overloads, "optional_or_optional") => {
                return Ok(PlanNode::OptionalOr(Box::new(pair(nodes))));
            }
            ("orValue", [_, _]) if single(overloads, "optional_orValue_value") => {
                return Ok(PlanNode::OptionalOrValue(Box::new(pair(nodes))));
            }
            (operator::IN, [_, PlanNode::Const(Val::List(list))]) if single(overloads, "in_list") => {
                if list.len() == 0 {
                    return Ok(PlanNode::Const(Val::Bool(false)));
                }
                let members: Vec<Val<'static>> = list.iter().collect();
                if let Some(members) = ConstantMembers::of(members) {
                    let arg = nodes.swap_remove(0);
                    return Ok(PlanNode::InConstant(Box::new((arg, members))));
                }
            }
            _ => {}
        }
        let overload = match overloads {
            [only] => only.as_str(),
            _ => "",
        };
        let (run, stops_early) = self.call_implementation(function, overload, &nodes)?;
        let rule = CostRule::of(function, overload, self.env);
        let call = CallNode {
            id: expr.id,
            function: function.clone(),
            args: nodes.into_boxed_slice(),
            run,
            rule,
            stops_early,
            membership: function == operator::IN && rule == CostRule::Units(1),
        };
        self.fold_call(call)
    }

    /// Finds the implementation of a call, and whether it stops evaluating arguments at the first error.
    fn call_implementation(
        &self,
        function: &str,
        overload: &str,
        args: &[PlanNode],
    ) -> Result<(CallImplementation, bool), Error> {
        let kind = match function {
            "matches" => Some(PatternCall::Matches),
            "find" => Some(PatternCall::Find),
            "findAll" => Some(PatternCall::FindAll),
            _ => None,
        };
        self.matches.set(self.matches.get() || kind.is_some());
        match (kind, args.get(1)) {
            (Some(kind), Some(PlanNode::Const(Val::String(text)))) => {
                return Ok((CallImplementation::Pattern(kind, pattern::compile(text)?), true));
            }
            (Some(_), _) => self.compiles_data.set(true),
            (None, _) => {}
        }
        let Some(declared) = self.env.function(function) else {
            return Ok((CallImplementation::Missing, false));
        };
        if let Some(singleton) = declared.singleton {
            return Ok((CallImplementation::Singleton(singleton), args.len() > 2));
        }
        let found = declared.overloads.iter().find(|candidate| candidate.id == overload);
        let implemented = declared.overloads.iter().filter(|candidate| candidate.run.is_some()).count();
        let found = match found {
            Some(found) if found.run.is_some() => Some(found),
            // A function with a single implementation needs no dispatch.
            _ if implemented == 1 => declared.overloads.iter().find(|candidate| candidate.run.is_some()),
            _ => None,
        };
        Ok(match found {
            Some(found) => match found.run {
                Some(run) => {
                    (CallImplementation::Overload(found.clone(), run, declared.guarded), found.stops_early)
                }
                None => (CallImplementation::Missing, false),
            },
            None if implemented == 0 => (CallImplementation::Missing, args.len() > 2),
            None => (CallImplementation::Dispatch(declared), true),
        })
    }

    /// Folds a call if possible, else plans it.
    fn fold_call(&self, call: CallNode) -> Result<PlanNode, Error> {
        let constant = call.args.iter().all(|arg| matches!(arg, PlanNode::Const(_)));
        let function = call.function.clone();
        let one = call.args.len() == 1;
        let known =
            constant || call.args.iter().all(|arg| matches!(arg, PlanNode::Const(_) | PlanNode::Folded(_)));
        let node = PlanNode::Call(Box::new(call));
        if constant && one && FOLDED_FREE.contains(&function.as_str()) {
            return run_constant(&node).0.map(PlanNode::Const);
        }
        if known && self.options.fold && FOLDED_AT_COST.contains(&function.as_str()) {
            let (outcome, cost) = run_constant(&node);
            return Ok(PlanNode::Folded(Box::new(Folded { outcome, cost })));
        }
        Ok(node)
    }

    fn slot(&mut self, name: &Str) -> usize {
        let slot = self.slots;
        self.slots += 1;
        self.scopes.push((name.clone(), slot));
        slot
    }

    fn comprehension(&mut self, c: &Comprehension) -> Result<PlanNode, Error> {
        let init = self.plan(&c.init)?;
        let range = self.plan(&c.range)?;
        let outer = self.scopes.len();
        let accu = self.slot(&c.accu);
        if is_bind(c) {
            let result = self.plan(&c.result)?;
            self.scopes.truncate(outer);
            return Ok(PlanNode::Bind(Box::new(BindNode { slot: accu, value: init, result })));
        }
        let inner = self.scopes.len();
        let var = self.slot(&c.var);
        let var2 = c.var2.as_ref().map(|name| self.slot(name));
        let condition = self.plan(&c.condition)?;
        let step = self.plan(&c.step)?;
        self.scopes.truncate(inner);
        let result = self.plan(&c.result)?;
        self.scopes.truncate(outer);
        Ok(fold::recognize_loop(
            range,
            (var, var2),
            fold::ComprehensionParts { accu, init, condition, step, result },
        ))
    }
}

/// True if the comprehension comes from `cel.bind`: a loop over an empty list that only names a value.
pub(crate) fn is_bind(c: &Comprehension) -> bool {
    matches!(&c.range.kind, ExprKind::List { elements, .. } if elements.is_empty())
        && matches!(&c.condition.kind, ExprKind::Literal(Literal::Bool(false)))
}

fn single(overloads: &[Str], wanted: &str) -> bool {
    matches!(overloads, [only] if only == wanted)
}

fn is_key(val: &Val<'_>) -> bool {
    matches!(val.kind(), ValKind::Int | ValKind::Uint | ValKind::Bool | ValKind::Double)
}

fn pair(nodes: Vec<PlanNode>) -> (PlanNode, PlanNode) {
    let mut nodes = nodes.into_iter();
    let mut next = || nodes.next().unwrap_or(PlanNode::Const(Val::Null));
    (next(), next())
}

fn attribute(base: AttributeBase) -> PlanNode {
    PlanNode::Attribute(Box::new(Attribute { base, path: Vec::new(), test_only: false, plain: true }))
}

fn operand_of(node: PlanNode) -> PlanNode {
    attribute(AttributeBase::Operand(node))
}

/// Appends a qualifier to a path, or starts a path.
fn push_qualifier(node: PlanNode, qualifier: Qualifier, test_only: bool) -> PlanNode {
    match node {
        PlanNode::Attribute(mut attribute) if !attribute.test_only => {
            attribute.plain &= !qualifier.optional && matches!(qualifier.key, QualifierKey::Field(_));
            attribute.path.push(qualifier);
            attribute.test_only = test_only;
            PlanNode::Attribute(attribute)
        }
        PlanNode::Conditional(mut conditional) if !test_only => {
            conditional.path.push(qualifier);
            PlanNode::Conditional(conditional)
        }
        other => push_qualifier(operand_of(other), qualifier, test_only),
    }
}

/// Folds a list or map literal if its parts are constant.
fn fold_literal_if(constant: bool, node: PlanNode) -> PlanNode {
    if !constant {
        return node;
    }
    match run_constant(&node).0 {
        Ok(val) => PlanNode::Const(val),
        Err(error) => PlanNode::Folded(Box::new(Folded { outcome: Err(error), cost: 0 })),
    }
}

//! Macros: calls that the parser replaces, mostly by comprehensions.

mod expansion;

use std::collections::BTreeMap;
use std::sync::Arc;

use value::Str;

use super::ast::{Comprehension, Expr, ExprKind, Literal, NodeId};
use super::{operator, work};
pub(crate) use expansion::Expansion;

/// Accumulator variable of the standard macros. Expressions cannot contain this name.
pub(crate) const ACCUMULATOR: &str = "@result";
/// Former name of the accumulator; still refused as an iteration variable.
const OLD_ACCUMULATOR: &str = "__result__";
/// Iteration variable of a loop that never runs.
const UNUSED: &str = "#unused";
/// Variable that holds the list sorted by `sortBy`.
const SORT_INPUT: &str = "@__sortBy_input__";

/// The expansion, or the node that is invalid and the error message.
type Expanded = Result<Expr, (NodeId, Str)>;

/// Expands a macro call, given its receiver and arguments.
pub(crate) type Expander = fn(&mut Expansion<'_, '_>, Option<Expr>, Vec<Expr>) -> Expanded;

/// Macros by name, number of arguments and whether they have a receiver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Macros(Arc<BTreeMap<(&'static str, usize, bool), Expander>>);

impl Macros {
    pub(crate) fn find(&self, function: &str, args: usize, receiver: bool) -> Option<Expander> {
        self.0.get(&(function, args, receiver)).copied()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|(name, _, _)| *name)
    }

    pub(crate) fn add(&mut self, table: &[(&'static str, usize, bool, Expander)]) {
        let macros = Arc::make_mut(&mut self.0);
        for &(name, args, receiver, expander) in table {
            macros.insert((name, args, receiver), expander);
        }
    }
}

/// Macros of the language itself.
pub(crate) const STANDARD: [(&str, usize, bool, Expander); 7] = [
    ("has", 1, false, has),
    ("all", 2, true, all),
    ("exists", 2, true, exists),
    ("exists_one", 2, true, exists_one),
    ("map", 2, true, map),
    ("map", 3, true, map),
    ("filter", 2, true, filter),
];

/// The macros of optional values.
pub(crate) const OPTIONAL: [(&str, usize, bool, Expander); 2] =
    [("optMap", 2, true, opt_map), ("optFlatMap", 2, true, opt_flat_map)];

/// The macros with two iteration variables.
pub(crate) const TWO_VARIABLES: [(&str, usize, bool, Expander); 10] = [
    ("all", 3, true, all2),
    ("exists", 3, true, exists2),
    ("existsOne", 3, true, exists_one2),
    ("exists_one", 3, true, exists_one2),
    ("transformList", 3, true, transform_list),
    ("transformList", 4, true, transform_list),
    ("transformMap", 3, true, transform_map),
    ("transformMap", 4, true, transform_map),
    ("transformMapEntry", 3, true, transform_map_entry),
    ("transformMapEntry", 4, true, transform_map_entry),
];

/// The macro of the list library.
pub(crate) const LISTS: [(&str, usize, bool, Expander); 1] = [("sortBy", 2, true, sort_by)];

/// The macro of the bindings library.
pub(crate) const BIND: [(&str, usize, bool, Expander); 1] = [("bind", 3, true, cel_bind)];

/// Destructures a call into its receiver and `N` arguments; the macro table guarantees their number.
fn parts<const N: usize>(
    call: NodeId,
    target: Option<Expr>,
    args: Vec<Expr>,
) -> Result<(Expr, [Expr; N]), (NodeId, Str)> {
    let wrong = || (call, Str::new_static("wrong number of arguments to a macro"));
    let args = args.try_into().map_err(|_| wrong())?;
    Ok((target.ok_or_else(wrong)?, args))
}

fn variable(arg: &Expr, message: &'static str) -> Result<Str, (NodeId, Str)> {
    match &arg.kind {
        ExprKind::Ident(name) if *name == ACCUMULATOR || *name == OLD_ACCUMULATOR => {
            Err((arg.id, "iteration variable overwrites accumulator variable".into()))
        }
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err((arg.id, message.into())),
    }
}

const NOT_A_NAME: &str = "argument must be a simple name";
const NOT_AN_IDENTIFIER: &str = "argument is not an identifier";

fn has(x: &mut Expansion<'_, '_>, _: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let arg = args.pop().ok_or((x.call, Str::new_static("invalid argument to has() macro")))?;
    match arg.kind {
        ExprKind::Select { operand, field, test_only: false } => {
            Ok(x.node(ExprKind::Select { operand, field, test_only: true }))
        }
        _ => Err((arg.id, "invalid argument to has() macro".into())),
    }
}

enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

fn quantify(
    x: &mut Expansion<'_, '_>,
    quantifier: &Quantifier,
    range: Expr,
    (var, var2): (Str, Option<Str>),
    predicate: Expr,
) -> Expr {
    let (init, condition, step, result);
    match quantifier {
        Quantifier::All => {
            init = x.bool(true);
            let accu = x.accu();
            condition = x.call(operator::NOT_STRICTLY_FALSE, vec![accu]);
            let accu = x.accu();
            step = x.call(operator::AND, vec![accu, predicate]);
            result = x.accu();
        }
        Quantifier::Exists => {
            init = x.bool(false);
            let accu = x.accu();
            let not = x.call(operator::NOT, vec![accu]);
            condition = x.call(operator::NOT_STRICTLY_FALSE, vec![not]);
            let accu = x.accu();
            step = x.call(operator::OR, vec![accu, predicate]);
            result = x.accu();
        }
        Quantifier::ExistsOne => {
            init = x.literal(Literal::Int(0));
            condition = x.bool(true);
            let accu = x.accu();
            let one = x.literal(Literal::Int(1));
            let more = x.call(operator::ADD, vec![accu, one]);
            let same = x.accu();
            step = x.call(operator::CONDITIONAL, vec![predicate, more, same]);
            let accu = x.accu();
            let one = x.literal(Literal::Int(1));
            result = x.call(operator::EQUALS, vec![accu, one]);
        }
    }
    x.comprehension(Comprehension {
        range,
        var,
        var2,
        accu: ACCUMULATOR.into(),
        init,
        condition,
        step,
        result,
    })
}

fn quantifier(x: &mut Expansion<'_, '_>, q: &Quantifier, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (range, [var, predicate]) = parts(x.call, target, args)?;
    let var = variable(&var, NOT_A_NAME)?;
    Ok(quantify(x, q, range, (var, None), predicate))
}

fn all(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    quantifier(x, &Quantifier::All, target, args)
}

fn exists(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    quantifier(x, &Quantifier::Exists, target, args)
}

fn exists_one(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    quantifier(x, &Quantifier::ExistsOne, target, args)
}

fn map(x: &mut Expansion<'_, '_>, target: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let filter = (args.len() == 3).then(|| args.remove(1));
    let (range, [var, transform]) = parts(x.call, target, args)?;
    let var = variable(&var, NOT_AN_IDENTIFIER)?;
    let init = x.list(Vec::new());
    let condition = x.bool(true);
    let step = append(x, transform, filter);
    let result = x.accu();
    let accu = ACCUMULATOR.into();
    Ok(x.comprehension(Comprehension { range, var, var2: None, accu, init, condition, step, result }))
}

/// `@result + [element]`, or `@result` if `filter` is false.
fn append(x: &mut Expansion<'_, '_>, element: Expr, filter: Option<Expr>) -> Expr {
    let accu = x.accu();
    let list = x.list(vec![element]);
    let step = x.call(operator::ADD, vec![accu, list]);
    only_if(x, step, filter)
}

fn only_if(x: &mut Expansion<'_, '_>, step: Expr, filter: Option<Expr>) -> Expr {
    match filter {
        Some(filter) => {
            let accu = x.accu();
            x.call(operator::CONDITIONAL, vec![filter, step, accu])
        }
        None => step,
    }
}

fn filter(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (range, [element, predicate]) = parts(x.call, target, args)?;
    let var = variable(&element, NOT_AN_IDENTIFIER)?;
    let init = x.list(Vec::new());
    let condition = x.bool(true);
    let step = append(x, element, Some(predicate));
    let result = x.accu();
    let accu = ACCUMULATOR.into();
    Ok(x.comprehension(Comprehension { range, var, var2: None, accu, init, condition, step, result }))
}

fn variables(first: &Expr, second: &Expr) -> Result<(Str, Option<Str>), (NodeId, Str)> {
    let name = |arg: &Expr| match &arg.kind {
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err((arg.id, Str::new_static(NOT_A_NAME))),
    };
    let (var, var2) = (name(first)?, name(second)?);
    if var == var2 {
        return Err((second.id, format!("duplicate variable name: {var}").into()));
    }
    variable(first, NOT_A_NAME)?;
    variable(second, NOT_A_NAME)?;
    Ok((var, Some(var2)))
}

fn quantifier2(x: &mut Expansion<'_, '_>, q: &Quantifier, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (range, [first, second, predicate]) = parts(x.call, target, args)?;
    let names = variables(&first, &second)?;
    Ok(quantify(x, q, range, names, predicate))
}

fn all2(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    quantifier2(x, &Quantifier::All, target, args)
}

fn exists2(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    quantifier2(x, &Quantifier::Exists, target, args)
}

fn exists_one2(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    quantifier2(x, &Quantifier::ExistsOne, target, args)
}

fn transform_list(x: &mut Expansion<'_, '_>, target: Option<Expr>, mut args: Vec<Expr>) -> Expanded {
    let filter = (args.len() == 4).then(|| args.remove(2));
    let (range, [first, second, transform]) = parts(x.call, target, args)?;
    let (var, var2) = variables(&first, &second)?;
    let step = append(x, transform, filter);
    let init = x.list(Vec::new());
    let condition = x.bool(true);
    let result = x.accu();
    let accu = ACCUMULATOR.into();
    Ok(x.comprehension(Comprehension { range, var, var2, accu, init, condition, step, result }))
}

fn insert(x: &mut Expansion<'_, '_>, target: Option<Expr>, mut args: Vec<Expr>, keyed: bool) -> Expanded {
    let filter = (args.len() == 4).then(|| args.remove(2));
    let (range, [first, second, transform]) = parts(x.call, target, args)?;
    let (var, var2) = variables(&first, &second)?;
    let mut inserted = vec![x.accu()];
    if keyed {
        inserted.push(x.ident(&var));
    }
    inserted.push(transform);
    let step = x.call("cel.@mapInsert", inserted);
    let step = only_if(x, step, filter);
    let init = x.node(ExprKind::Map(Vec::new()));
    let condition = x.bool(true);
    let result = x.accu();
    let accu = ACCUMULATOR.into();
    Ok(x.comprehension(Comprehension { range, var, var2, accu, init, condition, step, result }))
}

fn transform_map(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    insert(x, target, args, true)
}

fn transform_map_entry(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    insert(x, target, args, false)
}

/// Binds `name` to a value: a loop over an empty list, whose result is evaluated with the variable in scope.
fn bind(x: &mut Expansion<'_, '_>, name: &str, value: Expr, result: Expr) -> Expr {
    // The nodes are created in cel-go's order: range, value, condition, step.
    let range = x.list(Vec::new());
    let condition = x.bool(false);
    let step = x.ident(name);
    let (var, accu) = (UNUSED.into(), name.into());
    x.comprehension(Comprehension { range, var, var2: None, accu, init: value, condition, step, result })
}

/// `cel.bind(name, value, result)`. A method `bind` of any other receiver is an ordinary call.
fn cel_bind(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (target, [name, value, result]) = parts(x.call, target, args)?;
    if !matches!(&target.kind, ExprKind::Ident(namespace) if namespace == "cel") {
        return Ok(x.method("bind", target, vec![name, value, result]));
    }
    let ExprKind::Ident(name) = &name.kind else {
        return Err((name.id, "cel.bind() variable names must be simple identifiers".into()));
    };
    Ok(bind(x, name, value, result))
}

fn optional(
    x: &mut Expansion<'_, '_>,
    name: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
    flat: bool,
) -> Expanded {
    let (target, [var, transform]) = parts(x.call, target, args)?;
    let ExprKind::Ident(var) = &var.kind else {
        return Err((var.id, format!("{name}() variable name must be a simple identifier").into()));
    };
    // The receiver occurs twice in the expansion, as in cel-go, so every link of a chain doubles its size.
    let mut size = 0;
    target.walk(&mut |_| size += 1);
    if !x.nodes.has_room_for_copies(size) {
        return Err((target.id, "expression is too large once its macros are expanded".into()));
    }
    work::count_stage(size);
    let copy = x.copy(&target);
    let present = x.method("hasValue", target, Vec::new());
    let value = x.method("value", copy, Vec::new());
    let bound = bind(x, var, value, transform);
    let some = if flat { bound } else { x.call("optional.of", vec![bound]) };
    let none = x.call("optional.none", Vec::new());
    Ok(x.call(operator::CONDITIONAL, vec![present, some, none]))
}

fn opt_map(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    optional(x, "optMap", target, args, false)
}

fn opt_flat_map(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    optional(x, "optFlatMap", target, args, true)
}

fn sort_by(x: &mut Expansion<'_, '_>, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (target, [var, key]) = parts(x.call, target, args)?;
    if !matches!(
        target.kind,
        ExprKind::List { .. }
            | ExprKind::Select { .. }
            | ExprKind::Ident(_)
            | ExprKind::Comprehension(_)
            | ExprKind::Call { .. }
    ) {
        let message =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return Err((target.id, message.into()));
    }
    let input = x.ident(SORT_INPUT);
    let range = x.copy(&input);
    let keys = map(x, Some(range), vec![var, key])?;
    let list = x.copy(&input);
    let sorted = x.method("@sortByAssociatedKeys", list, vec![keys]);
    Ok(bind(x, SORT_INPUT, target, sorted))
}

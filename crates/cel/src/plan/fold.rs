//! The loops behind the standard macros, found again in their expansion.

use super::node::{Attribute, Base, Fold, FoldKind, Node, Run};
use crate::cost::runtime::Rule;
use crate::val::Val;

/// The planned parts of a comprehension.
pub(super) struct Parts {
    pub(super) accu: usize,
    pub(super) init: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// A comprehension as one of the loops that run without instructions for the loop itself, if it is one.
pub(super) fn recognise(range: Node, (var, var2): (usize, Option<usize>), parts: Parts) -> Node {
    let kind = standard(&parts).unwrap_or(FoldKind::General {
        accu: parts.accu,
        init: parts.init,
        condition: parts.condition,
        step: parts.step,
        result: parts.result,
    });
    Node::Fold(Box::new(Fold { range, var, var2, kind }))
}

fn standard(parts: &Parts) -> Option<FoldKind> {
    let accu = parts.accu;
    let is_accu = |node: &Node| {
        matches!(node, Node::Attribute(attribute)
            if matches!(**attribute, Attribute { base: Base::Slot(slot), ref path, .. } if slot == accu && path.is_empty()))
    };
    let endless = matches!(parts.condition, Node::Const(Val::Bool(true)));
    match (&parts.init, &parts.condition, &parts.step) {
        (Node::Const(Val::Bool(true)), Node::NotStrictlyFalse(condition), Node::And(step))
            if is_accu(condition) && is_accu(&step.0) && is_accu(&parts.result) =>
        {
            Some(FoldKind::All(step.1.clone()))
        }
        (Node::Const(Val::Bool(false)), Node::NotStrictlyFalse(condition), Node::Or(step))
            if is_accu(&step.0) && is_accu(&parts.result) =>
        {
            let Node::Call(not) = &**condition else { return None };
            let [arg] = &*not.args else { return None };
            (not.function == crate::syntax::operator::NOT && is_accu(arg))
                .then(|| FoldKind::Exists(step.1.clone()))
        }
        (Node::Const(Val::Int(0)), _, Node::Conditional(step)) if endless => {
            let Node::Call(add) = &step.truthy else { return None };
            let [base, Node::Const(Val::Int(1))] = &*add.args else { return None };
            let Node::Equals(result) = &parts.result else { return None };
            (is_accu(base)
                && is_accu(&step.falsy)
                && is_accu(&result.0)
                && matches!(result.1, Node::Const(Val::Int(1)))
                && add.rule == Rule::Units(1))
            .then(|| FoldKind::ExistsOne(step.condition.clone()))
        }
        (Node::Const(Val::List(_) | Val::Map(_)), _, step) if endless && is_accu(&parts.result) => {
            let (filter, grow) = match step {
                Node::Conditional(conditional) if is_accu(&conditional.falsy) => {
                    (Some(conditional.condition.clone()), &conditional.truthy)
                }
                other => (None, other),
            };
            let Node::Call(call) = grow else { return None };
            if call.rule != Rule::Units(1) {
                return None;
            }
            match (call.function.as_str(), &*call.args, &call.run) {
                (crate::syntax::operator::ADD, [base, items], Run::Singleton(_))
                    if is_accu(base) && matches!(parts.init, Node::Const(Val::List(_))) =>
                {
                    Some(FoldKind::Append { filter, items: items.clone() })
                }
                ("cel.@mapInsert", [base, key, value], _) if is_accu(base) => {
                    Some(FoldKind::Insert { filter, key: Some(key.clone()), value: value.clone() })
                }
                ("cel.@mapInsert", [base, value], _) if is_accu(base) => {
                    Some(FoldKind::Insert { filter, key: None, value: value.clone() })
                }
                _ => None,
            }
        }
        _ => None,
    }
}

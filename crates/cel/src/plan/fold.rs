//! Recognizes the loops of the standard macros in their expansions.

use super::node::{Attribute, AttributeBase, CallImplementation, Fold, FoldKind, PlanNode};
use crate::cost::runtime::CostRule;
use crate::val::Val;

/// The planned parts of a comprehension, as in the syntax tree.
pub(super) struct ComprehensionParts {
    pub(super) accu: usize,
    pub(super) init: PlanNode,
    pub(super) condition: PlanNode,
    pub(super) step: PlanNode,
    pub(super) result: PlanNode,
}

/// Plans a comprehension as a specialized loop (`all`, `exists`, `map`, …) if its parts have that shape, else as a
/// general one.
pub(super) fn recognize_loop(
    range: PlanNode,
    (var, var2): (usize, Option<usize>),
    parts: ComprehensionParts,
) -> PlanNode {
    let kind = standard(&parts).unwrap_or(FoldKind::General {
        accu: parts.accu,
        init: parts.init,
        condition: parts.condition,
        step: parts.step,
        result: parts.result,
    });
    PlanNode::Fold(Box::new(Fold { range, var, var2, kind }))
}

fn standard(parts: &ComprehensionParts) -> Option<FoldKind> {
    let accu = parts.accu;
    let is_accu = |node: &PlanNode| {
        matches!(node, PlanNode::Attribute(attribute)
            if matches!(**attribute, Attribute { base: AttributeBase::Slot(slot), ref path, .. } if slot == accu && path.is_empty()))
    };
    let endless = matches!(parts.condition, PlanNode::Const(Val::Bool(true)));
    match (&parts.init, &parts.condition, &parts.step) {
        (PlanNode::Const(Val::Bool(true)), PlanNode::NotStrictlyFalse(condition), PlanNode::And(step))
            if is_accu(condition) && is_accu(&step.0) && is_accu(&parts.result) =>
        {
            Some(FoldKind::All(step.1.clone()))
        }
        (PlanNode::Const(Val::Bool(false)), PlanNode::NotStrictlyFalse(condition), PlanNode::Or(step))
            if is_accu(&step.0) && is_accu(&parts.result) =>
        {
            let PlanNode::Call(not) = &**condition else { return None };
            let [arg] = &*not.args else { return None };
            (not.function == crate::syntax::operator::NOT && is_accu(arg))
                .then(|| FoldKind::Exists(step.1.clone()))
        }
        (PlanNode::Const(Val::Int(0)), _, PlanNode::Conditional(step)) if endless => {
            let PlanNode::Call(add) = &step.truthy else { return None };
            let [base, PlanNode::Const(Val::Int(1))] = &*add.args else { return None };
            let PlanNode::Equals(result) = &parts.result else { return None };
            (is_accu(base)
                && is_accu(&step.falsy)
                && is_accu(&result.0)
                && matches!(result.1, PlanNode::Const(Val::Int(1)))
                && add.rule == CostRule::Units(1))
            .then(|| FoldKind::ExistsOne(step.condition.clone()))
        }
        (PlanNode::Const(Val::List(_) | Val::Map(_)), _, step) if endless && is_accu(&parts.result) => {
            let (filter, grow) = match step {
                PlanNode::Conditional(conditional) if is_accu(&conditional.falsy) => {
                    (Some(conditional.condition.clone()), &conditional.truthy)
                }
                other => (None, other),
            };
            let PlanNode::Call(call) = grow else { return None };
            if call.rule != CostRule::Units(1) {
                return None;
            }
            match (call.function.as_str(), &*call.args, &call.run) {
                (crate::syntax::operator::ADD, [base, items], CallImplementation::Singleton(_))
                    if is_accu(base) && matches!(parts.init, PlanNode::Const(Val::List(_))) =>
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

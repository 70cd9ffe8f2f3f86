//! Builds the nodes that replace a macro call.

use value::Str;

use super::ACCUMULATOR;
use crate::syntax::ast::{Comprehension, Expr, ExprKind, Literal, MapEntry, NodeId, StructField};
use crate::syntax::nodes::NodeIds;

/// Builds the nodes of an expansion, all at the source position of the call.
pub(crate) struct Expansion<'n, 's> {
    pub(crate) nodes: &'n mut NodeIds<'s>,
    pub(crate) call: NodeId,
}

impl Expansion<'_, '_> {
    pub(super) fn node(&mut self, kind: ExprKind) -> Expr {
        Expr { id: self.nodes.id_at(self.call), kind }
    }

    pub(super) fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    pub(super) fn bool(&mut self, value: bool) -> Expr {
        self.literal(Literal::Bool(value))
    }

    pub(super) fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.into()))
    }

    pub(super) fn accu(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    pub(super) fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(ExprKind::List { elements, optional: Vec::new() })
    }

    pub(super) fn call(&mut self, function: &'static str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call { function: Str::new_static(function), target: None, args })
    }

    pub(super) fn method(&mut self, function: &'static str, target: Expr, args: Vec<Expr>) -> Expr {
        let target = Some(Box::new(target));
        self.node(ExprKind::Call { function: Str::new_static(function), target, args })
    }

    pub(super) fn comprehension(&mut self, parts: Comprehension) -> Expr {
        self.node(ExprKind::Comprehension(Box::new(parts)))
    }

    /// Copies an expression: new ids, same source positions.
    pub(super) fn copy(&mut self, expr: &Expr) -> Expr {
        let id = self.nodes.id_at(expr.id);
        let kind = match &expr.kind {
            ExprKind::Select { operand, field, test_only } => ExprKind::Select {
                operand: Box::new(self.copy(operand)),
                field: field.clone(),
                test_only: *test_only,
            },
            ExprKind::Call { function, target, args } => {
                let args = args.iter().map(|arg| self.copy(arg)).collect();
                let target = target.as_ref().map(|target| Box::new(self.copy(target)));
                ExprKind::Call { function: function.clone(), target, args }
            }
            ExprKind::List { elements, optional } => ExprKind::List {
                elements: elements.iter().map(|element| self.copy(element)).collect(),
                optional: optional.clone(),
            },
            ExprKind::Map(entries) => ExprKind::Map(
                entries
                    .iter()
                    .map(|entry| MapEntry {
                        id: self.nodes.id_at(self.call),
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            ExprKind::Struct { type_name, fields } => ExprKind::Struct {
                type_name: type_name.clone(),
                fields: fields
                    .iter()
                    .map(|field| StructField {
                        id: self.nodes.id_at(self.call),
                        name: field.name.clone(),
                        value: self.copy(&field.value),
                        optional: field.optional,
                    })
                    .collect(),
            },
            ExprKind::Comprehension(c) => ExprKind::Comprehension(Box::new(Comprehension {
                range: self.copy(&c.range),
                var: c.var.clone(),
                var2: c.var2.clone(),
                accu: c.accu.clone(),
                init: self.copy(&c.init),
                condition: self.copy(&c.condition),
                step: self.copy(&c.step),
                result: self.copy(&c.result),
            })),
            kind @ (ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_)) => kind.clone(),
        };
        Expr { id, kind }
    }
}

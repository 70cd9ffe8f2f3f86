//! Checks calls: finds the function and the overloads that fit the types of the arguments.

use std::sync::Arc;

use value::Str;

use super::{Checker, ResolvedReference, assign, qualified};
use crate::decl::Function;
use crate::syntax::ast::{Expr, ExprKind, NodeId};
use crate::syntax::operator;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn check_call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Call { function, target, args } = &mut expr.kind else { return };
        if function == operator::OPT_SELECT {
            self.check_optional_select(id, args);
            return;
        }
        for arg in args.iter_mut() {
            self.check(arg);
        }
        let found = match target {
            None => self.env.function(function),
            Some(receiver) => {
                let namespaced = qualified(receiver)
                    .and_then(|names| self.env.function(&format!("{}.{function}", names.join("."))));
                if let Some(declared) = namespaced {
                    *target = None;
                    Some(declared)
                } else {
                    self.check(receiver);
                    self.env.function(function)
                }
            }
        };
        let Some(declared) = found else {
            self.set(id, Type::Error);
            let function = function.clone();
            self.undeclared(id, &function);
            return;
        };
        *function = declared.name.clone();
        let is_method = target.is_some();
        let arg_ids: Vec<NodeId> =
            target.iter().map(|target| target.id).chain(args.iter().map(|arg| arg.id)).collect();
        match self.resolve_overload(id, &declared, &arg_ids, is_method) {
            Some((ty, overloads)) => {
                self.set(id, ty);
                self.references.insert(id, ResolvedReference::Overloads(overloads));
            }
            None => self.set(id, Type::Error),
        }
    }

    fn check_optional_select(&mut self, id: NodeId, args: &mut [Expr]) {
        let [operand, field] = args else {
            self.report(
                id,
                format!(
                    "unsupported optional field selection: incorrect signature. argument count: {}",
                    args.len()
                ),
            );
            return;
        };
        let Some(name) = field.as_string().cloned() else {
            let message = format!("unsupported optional field selection: {:?}", field.kind);
            self.report(field.id, message);
            return;
        };
        let ty = self.check_field(id, operand, &name, true);
        let ty = self.mapping.substitute(&ty, false);
        self.set(id, ty);
        self.references
            .insert(id, ResolvedReference::Overloads(vec![Str::new_static("select_optional_field")]));
    }

    fn resolve_overload(
        &mut self,
        id: NodeId,
        function: &Arc<Function>,
        args: &[NodeId],
        is_method: bool,
    ) -> Option<(Type, Vec<Str>)> {
        let arg_types: Vec<Type> = args.iter().map(|arg| self.get(*arg)).collect();
        if function.name == operator::AND || function.name == operator::OR {
            let overload = function.overloads.first()?.id.clone();
            let mut failed = false;
            for (arg, ty) in args.iter().zip(&arg_types) {
                if !self.assignable(ty, &Type::Bool) {
                    self.mismatch(*arg, &Type::Bool, ty);
                    failed = true;
                }
            }
            return (!failed).then(|| (Type::Bool, vec![overload]));
        }
        let mut result: Option<Type> = None;
        let mut overloads = Vec::new();
        for overload in &function.overloads {
            if overload.member != is_method || self.env.is_disabled(&overload.id) {
                continue;
            }
            let names: Vec<(Str, Type)> =
                overload.parameters.iter().map(|name| (name.clone(), self.fresh())).collect();
            let candidates: Vec<Type> = overload.args.iter().map(|arg| assign::rename(arg, &names)).collect();
            let from: Vec<&Type> = arg_types.iter().collect();
            let to: Vec<&Type> = candidates.iter().collect();
            if !self.mapping.try_or_undo(|mapping| mapping.all_assignable(&from, &to)) {
                continue;
            }
            overloads.push(overload.id.clone());
            let this = self.mapping.substitute(&assign::rename(&overload.result, &names), false);
            result = Some(match result {
                None => this,
                Some(before) if !before.is_dyn() && !this.is_exactly(&before) => Type::Dyn,
                Some(before) => before,
            });
        }
        if result.is_none() {
            let mut names = arg_types.iter().map(|ty| self.mapping.substitute(ty, true).in_messages());
            let receiver = if is_method { names.next().map(|name| name + ".") } else { None };
            let signature =
                format!("{}({})", receiver.unwrap_or_default(), names.collect::<Vec<_>>().join(", "));
            let name = &function.name;
            self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
        }
        result.map(|ty| (ty, overloads))
    }
}

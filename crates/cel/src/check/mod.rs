//! The type checker: finds the type of every node and resolves names and calls.

pub(crate) mod assign;
mod calls;
mod resolve;
mod validate;

use std::collections::HashMap;
use std::sync::Arc;

use value::Str;

use crate::env::{Env, GlobalName};
use crate::syntax::ast::{Ast, Comprehension, Expr, ExprKind, Literal, NodeId};
use crate::syntax::source::{Issues, Location, Source};
use crate::types::{Type, TypeSort};
use assign::{TypeSubstitution, most_general};

pub(crate) use validate::{Validator, validate};

/// The meaning of a name or a call.
#[derive(Clone, Debug)]
pub(crate) enum ResolvedReference {
    /// A variable, by its name in the tree.
    Variable,
    /// A type name or an enum constant.
    Constant(Constant),
    /// Ids of the possible overloads, at least one.
    Overloads(Vec<Str>),
}

/// The value of a name that is not a variable.
#[derive(Clone, Debug)]
pub(crate) enum Constant {
    Type(Str),
    Int(i64),
}

/// A type-checked syntax tree: resolved names, with types and references by node id.
#[derive(Clone, Debug)]
pub(crate) struct CheckedAst {
    pub(crate) ast: Ast,
    pub(crate) types: Vec<Option<Type>>,
    pub(crate) references: HashMap<NodeId, ResolvedReference>,
}

impl CheckedAst {
    pub(crate) fn type_of(&self, id: NodeId) -> &Type {
        self.types.get(id as usize).and_then(Option::as_ref).unwrap_or(&Type::Dyn)
    }

    /// Ids of the overloads that a call may resolve to.
    pub(crate) fn overloads(&self, id: NodeId) -> &[Str] {
        match self.references.get(&id) {
            Some(ResolvedReference::Overloads(overloads)) => overloads,
            _ => &[],
        }
    }
}

/// Type-checks a parsed expression and runs the validators.
pub(crate) fn check(source: &Source, ast: Ast, env: &Env) -> Result<CheckedAst, Issues> {
    let mut ast = ast;
    let Checker { mut issues, mut types, references, mapping, .. } = Checker::walk(source, &mut ast, env);
    for ty in types.iter_mut().flatten() {
        *ty = mapping.substitute(ty, true);
    }
    if mapping.is_too_large() {
        issues.report(Location::NONE, "the types in the expression are too large");
    }
    if !issues.is_empty() {
        return Err(issues);
    }
    let checked = CheckedAst { ast, types, references };
    validate(source, &checked, env, &mut issues);
    if issues.is_empty() { Ok(checked) } else { Err(issues) }
}

/// Resolves names without checking types; overloads stay unresolved.
pub(crate) fn resolve_only(source: &Source, ast: Ast, env: &Env) -> CheckedAst {
    let mut ast = ast;
    let mut references = Checker::walk(source, &mut ast, env).references;
    references.retain(|_, reference| !matches!(reference, ResolvedReference::Overloads(_)));
    CheckedAst { ast, types: Vec::new(), references }
}

struct Checker<'e> {
    env: &'e Env,
    source: &'e Source,
    offsets: Vec<Option<u32>>,
    issues: Issues,
    types: Vec<Option<Type>>,
    references: HashMap<NodeId, ResolvedReference>,
    mapping: TypeSubstitution,
    fresh: usize,
    /// Comprehension variables in scope, innermost last.
    scopes: Vec<(Str, Type)>,
}

impl<'e> Checker<'e> {
    fn walk(source: &'e Source, ast: &mut Ast, env: &'e Env) -> Self {
        let mut walk = Checker {
            env,
            source,
            offsets: ast.offsets.clone(),
            issues: Issues::new(source),
            types: vec![None; ast.offsets.len()],
            references: HashMap::new(),
            mapping: TypeSubstitution::default(),
            fresh: 0,
            scopes: Vec::new(),
        };
        walk.check(&mut ast.expr);
        walk
    }
}

impl Checker<'_> {
    fn location(&self, id: NodeId) -> Location {
        let offset = self.offsets.get(id as usize).copied().flatten();
        offset.map_or(Location::NONE, |offset| self.source.location(offset))
    }

    fn report(&mut self, id: NodeId, message: String) {
        self.issues.report(self.location(id), message);
    }

    fn undeclared(&mut self, id: NodeId, name: &str) {
        let container = self.env.container();
        self.report(id, format!("undeclared reference to '{name}' (in container '{container}')"));
    }

    fn mismatch(&mut self, id: NodeId, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{}' but found '{}'", expected.in_messages(), found.in_messages()),
        );
    }

    fn set(&mut self, id: NodeId, ty: Type) {
        let ty = self.mapping.bounded(ty);
        if let Some(slot) = self.types.get_mut(id as usize) {
            *slot = Some(ty);
        }
    }

    fn get(&self, id: NodeId) -> Type {
        self.types.get(id as usize).cloned().flatten().unwrap_or(Type::Error)
    }

    fn fresh(&mut self) -> Type {
        let name = format!("_var{}", self.fresh);
        self.fresh += 1;
        Type::Param(name.into())
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.mapping.try_or_undo(|mapping| mapping.assignable(from, to))
    }

    fn check(&mut self, expr: &mut Expr) {
        let id = expr.id;
        match &mut expr.kind {
            ExprKind::Unspecified => self.report(id, "unexpected unspecified type: Expr".to_owned()),
            ExprKind::Literal(literal) => {
                let ty = match literal {
                    Literal::Null => Type::Null,
                    Literal::Bool(_) => Type::Bool,
                    Literal::Int(_) => Type::Int,
                    Literal::Uint(_) => Type::Uint,
                    Literal::Double(_) => Type::Double,
                    Literal::String(_) => Type::String,
                    Literal::Bytes(_) => Type::Bytes,
                };
                self.set(id, ty);
            }
            ExprKind::Ident(name) => {
                if let Some((resolved, ty, reference)) = self.resolve_name(name) {
                    *name = resolved;
                    self.set(id, ty);
                    self.references.insert(id, reference);
                } else {
                    self.set(id, Type::Error);
                    let name = name.clone();
                    self.undeclared(id, &name);
                }
            }
            ExprKind::Select { .. } => self.check_select(expr),
            ExprKind::Call { .. } => self.check_call(expr),
            ExprKind::List { .. } => self.check_list(expr),
            ExprKind::Map(_) => self.check_map(expr),
            ExprKind::Struct { .. } => self.check_struct(expr),
            ExprKind::Comprehension(comprehension) => self.check_comprehension(id, comprehension),
        }
    }

    fn check_select(&mut self, expr: &mut Expr) {
        let id = expr.id;
        if let Some((resolved, ty, reference)) =
            qualified(expr).and_then(|names| self.resolve_qualified(&names))
        {
            self.set(id, ty);
            self.references.insert(id, reference);
            expr.kind = ExprKind::Ident(resolved);
            return;
        }
        let ExprKind::Select { operand, field, test_only } = &mut expr.kind else { return };
        let test_only = *test_only;
        let field = field.clone();
        let ty = self.check_field(id, operand, &field, false);
        let ty = if test_only { Type::Bool } else { self.mapping.substitute(&ty, false) };
        self.set(id, ty);
    }

    /// Checks `operand` and returns the type of its field.
    fn check_field(&mut self, id: NodeId, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.mapping.substitute(&self.get(operand.id), false);
        let (target, was_optional) = match operand.optional_value() {
            Some(inner) => (inner.clone(), true),
            None => (operand, false),
        };
        let ty = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Struct(name) => self.field_type(id, name, field).unwrap_or(Type::Error),
            Type::Param(_) => {
                self.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            _ => {
                if !matches!(target.sort(), TypeSort::Dyn | TypeSort::Error) {
                    self.report(
                        id,
                        format!("type '{}' does not support field selection", target.in_messages()),
                    );
                }
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(ty) } else { ty }
    }

    fn field_type(&mut self, id: NodeId, type_name: &str, field: &str) -> Option<Type> {
        if !self.env.has_struct(type_name) {
            self.report(id, format!("unexpected failed resolution of '{type_name}'"));
            return None;
        }
        let ty = self.env.field_type(type_name, field);
        if ty.is_none() {
            self.report(id, format!("undefined field '{field}'"));
        }
        ty
    }

    /// The type inside the optional that `?` requires.
    fn unwrap_optional(&mut self, id: NodeId, ty: Type) -> Type {
        if let Some(inner) = ty.optional_value() {
            inner.clone()
        } else {
            if !ty.is_dyn() {
                self.mismatch(id, &Type::optional(ty.clone()), &ty);
            }
            ty
        }
    }

    fn join(&mut self, before: Option<Type>, this: Type) -> Type {
        let Some(before) = before else { return this };
        if self.assignable(&before, &this) {
            return most_general(&before, &this).clone();
        }
        // Heterogeneous literals are dyn here; the validator reports them where they are not allowed.
        Type::Dyn
    }

    fn check_list(&mut self, expr: &mut Expr) {
        let ExprKind::List { elements, optional } = &mut expr.kind else { return };
        let mut joined = None;
        for (i, element) in elements.iter_mut().enumerate() {
            self.check(element);
            let mut ty = self.get(element.id);
            if optional.binary_search(&i).is_ok() {
                ty = self.unwrap_optional(element.id, ty);
            }
            joined = Some(self.join(joined, ty));
        }
        let element = joined.unwrap_or_else(|| self.fresh());
        self.set(expr.id, Type::list(element));
    }

    fn check_map(&mut self, expr: &mut Expr) {
        let ExprKind::Map(entries) = &mut expr.kind else { return };
        let mut keys = None;
        let mut values = None;
        for entry in entries.iter_mut() {
            self.check(&mut entry.key);
            let ty = self.get(entry.key.id);
            keys = Some(self.join(keys, ty));
            self.check(&mut entry.value);
            let mut ty = self.get(entry.value.id);
            if entry.optional {
                ty = self.unwrap_optional(entry.value.id, ty);
            }
            values = Some(self.join(values, ty));
        }
        let key = keys.unwrap_or_else(|| self.fresh());
        let value = values.unwrap_or_else(|| self.fresh());
        self.set(expr.id, Type::map(key, value));
    }

    fn check_struct(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let ExprKind::Struct { type_name, fields } = &mut expr.kind else { return };
        let Some((resolved, ty)) = self.env.resolve_type(type_name) else {
            let name = type_name.clone();
            self.undeclared(id, &name);
            self.set(id, Type::Error);
            return;
        };
        *type_name = resolved;
        // The fields are those of the protobuf message, even if CEL has another name for the type.
        let message = match &ty {
            Type::List(element) if **element == Type::Dyn => Str::new_static("google.protobuf.ListValue"),
            Type::Null => Str::new_static("google.protobuf.NullValue"),
            _ => type_name.clone(),
        };
        let is_message = matches!(ty, Type::Struct(_) | Type::Null) || self.env.has_struct(&message);
        if is_message {
            self.set(id, ty);
        } else {
            self.report(id, format!("'{}' is not a message type", ty.name()));
            self.set(id, Type::Error);
        }
        for field in fields.iter_mut() {
            self.check(&mut field.value);
            let declared = self.field_type(field.id, &message, &field.name).unwrap_or(Type::Error);
            let mut ty = self.get(field.value.id);
            if field.optional {
                ty = self.unwrap_optional(field.value.id, ty);
            }
            if !self.assignable(&declared, &ty) {
                let message = format!(
                    "expected type of field '{}' is '{}' but provided type is '{}'",
                    field.name,
                    declared.in_messages(),
                    ty.in_messages()
                );
                self.report(field.id, message);
            }
        }
    }

    fn check_comprehension(&mut self, id: NodeId, comprehension: &mut Comprehension) {
        self.check(&mut comprehension.range);
        self.check(&mut comprehension.init);
        let range = self.mapping.substitute(&self.get(comprehension.range.id), false);
        let accu = self.get(comprehension.init.id);
        let two = comprehension.var2.is_some();
        let (var, var2) = match &range {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            _ => {
                self.report(
                    comprehension.range.id,
                    format!(
                        "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                        range.in_messages()
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        self.scopes.push((comprehension.accu.clone(), accu.clone()));
        let outer = self.scopes.len();
        self.scopes.push((comprehension.var.clone(), var));
        if let Some(name) = &comprehension.var2 {
            self.scopes.push((name.clone(), var2));
        }
        self.check(&mut comprehension.condition);
        self.assert(comprehension.condition.id, &Type::Bool);
        self.check(&mut comprehension.step);
        self.assert(comprehension.step.id, &accu);
        self.scopes.truncate(outer);
        self.check(&mut comprehension.result);
        self.scopes.truncate(outer - 1);
        let ty = self.mapping.substitute(&self.get(comprehension.result.id), false);
        self.set(id, ty);
    }

    fn assert(&mut self, id: NodeId, wanted: &Type) {
        let ty = self.get(id);
        if !self.assignable(wanted, &ty) {
            self.mismatch(id, wanted, &ty);
        }
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find(|(local, _)| local == name).map(|(_, ty)| ty)
    }
}

/// The identifiers of `a.b.c`, from the left.
fn qualified(expr: &Expr) -> Option<Vec<Str>> {
    let mut names = Vec::new();
    let mut here = expr;
    loop {
        match &here.kind {
            ExprKind::Ident(name) => {
                names.push(name.clone());
                names.reverse();
                return Some(names);
            }
            ExprKind::Select { operand, field, test_only: false } => {
                names.push(field.clone());
                here = operand;
            }
            _ => return None,
        }
    }
}

/// Type and reference of a global name, with the name under which the plan finds it.
fn global(name: &str, disambiguate: bool, found: GlobalName) -> (Str, Type, ResolvedReference) {
    let plain = Str::from(name);
    let name = if disambiguate { format!(".{name}").into() } else { plain.clone() };
    match found {
        GlobalName::Variable(ty) => (name, ty, ResolvedReference::Variable),
        GlobalName::Type(ty) => {
            let value = Constant::Type(plain);
            (name, Type::Type(Some(Arc::new(ty))), ResolvedReference::Constant(value))
        }
        GlobalName::Int(i) => (name, Type::Int, ResolvedReference::Constant(Constant::Int(i))),
    }
}

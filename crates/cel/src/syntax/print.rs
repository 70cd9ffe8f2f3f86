//! Prints syntax trees: as canonical CEL source, and in cel-go's debug format with types.

use std::fmt::Write as _;

use value::go::quote;

use super::ast::{Ast, Comprehension, Expr, ExprKind, Literal};
use super::operator;
use crate::check::CheckedAst;

/// Prints an expression as canonical source that parses to the same tree. Macro calls are printed if the parser kept
/// them.
pub(crate) fn print(ast: &Ast) -> String {
    let mut printer = Printer { ast, out: String::new() };
    printer.expr(&ast.expr, 0);
    printer.out
}

/// Binding strength: ternary 0, binary operators 1 to 5 ([`operator::written`]), unary 6, everything else 7.
const UNARY: u32 = 6;

struct Printer<'a> {
    ast: &'a Ast,
    out: String,
}

impl Printer<'_> {
    fn written<'x>(&'x self, expr: &'x Expr) -> &'x Expr {
        self.ast.macro_calls.iter().find(|(id, _)| *id == expr.id).map_or(expr, |(_, call)| call)
    }

    /// Prints an expression, in parentheses if it binds weaker than `least`.
    fn expr(&mut self, expr: &Expr, least: u32) {
        let expr = self.written(expr).clone();
        match &expr.kind {
            ExprKind::Unspecified => self.out.push_str("<unspecified>"),
            ExprKind::Literal(literal) => {
                // A negative number prints like unary minus applied to a number.
                let negative = matches!(literal, Literal::Int(i) if *i < 0)
                    || matches!(literal, Literal::Double(d) if d.is_sign_negative());
                self.parenthesized(negative && least > UNARY, |p| write_literal(&mut p.out, literal));
            }
            ExprKind::Ident(name) => self.out.push_str(name),
            ExprKind::Select { operand, field, test_only } => {
                if *test_only {
                    self.out.push_str("has(");
                }
                self.expr(operand, 7);
                self.out.push('.');
                self.field(field);
                if *test_only {
                    self.out.push(')');
                }
            }
            ExprKind::Call { function, target, args } => self.call(function, target.as_deref(), args, least),
            ExprKind::List { elements, optional } => {
                self.out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    self.separate(i, optional.binary_search(&i).is_ok());
                    self.expr(element, 0);
                }
                self.out.push(']');
            }
            ExprKind::Map(entries) => {
                self.out.push('{');
                for (i, entry) in entries.iter().enumerate() {
                    self.separate(i, entry.optional);
                    self.expr(&entry.key, 0);
                    self.out.push_str(": ");
                    self.expr(&entry.value, 0);
                }
                self.out.push('}');
            }
            ExprKind::Struct { type_name, fields } => {
                self.out.push_str(type_name);
                self.out.push('{');
                for (i, field) in fields.iter().enumerate() {
                    self.separate(i, field.optional);
                    self.field(&field.name);
                    self.out.push_str(": ");
                    self.expr(&field.value, 0);
                }
                self.out.push('}');
            }
            ExprKind::Comprehension(_) => self.out.push_str("<comprehension>"),
        }
    }

    fn separate(&mut self, i: usize, optional: bool) {
        if i > 0 {
            self.out.push_str(", ");
        }
        if optional {
            self.out.push('?');
        }
    }

    fn field(&mut self, name: &str) {
        let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !matches!(name, "in" | "true" | "false" | "null");
        if plain {
            self.out.push_str(name);
        } else {
            let _ = write!(self.out, "`{name}`");
        }
    }

    fn parenthesized(&mut self, needed: bool, write: impl FnOnce(&mut Self)) {
        if needed {
            self.out.push('(');
        }
        write(self);
        if needed {
            self.out.push(')');
        }
    }

    fn args(&mut self, args: &[Expr]) {
        self.out.push('(');
        for (i, arg) in args.iter().enumerate() {
            self.separate(i, false);
            self.expr(arg, 0);
        }
        self.out.push(')');
    }

    fn call(&mut self, function: &str, target: Option<&Expr>, args: &[Expr], least: u32) {
        match (function, target, args) {
            (_, None, [left, right]) if operator::written(function).is_some() => {
                let Some((sign, strength)) = operator::written(function) else { return };
                self.parenthesized(strength < least, |p| {
                    // The parser balances chains of && and ||, so operands of equal strength need no parentheses on
                    // either side.
                    let chain = matches!(function, operator::AND | operator::OR);
                    p.expr(left, strength);
                    let _ = write!(p.out, " {sign} ");
                    p.expr(right, if chain { strength } else { strength + 1 });
                });
            }
            (operator::CONDITIONAL, None, [condition, truthy, falsy]) => {
                self.parenthesized(least > 0, |p| {
                    p.expr(condition, 1);
                    p.out.push_str(" ? ");
                    p.expr(truthy, 1);
                    p.out.push_str(" : ");
                    p.expr(falsy, 0);
                });
            }
            (operator::NOT | operator::NEGATE, None, [operand]) => {
                self.parenthesized(least > UNARY, |p| {
                    p.out.push_str(if function == operator::NOT { "!" } else { "-" });
                    // Parentheses keep `-(1)` from being the literal -1, and `!(!x)` from canceling out.
                    let bare = matches!(
                        p.written(operand).kind,
                        ExprKind::Ident(_) | ExprKind::Select { .. }
                    ) || matches!(&p.written(operand).kind, ExprKind::Call { function, target, .. }
                        if target.is_some() || operator::written(function).is_none() && !function.starts_with(['_', '!', '-']));
                    let begin = p.out.len();
                    let start = p.out.len();
                    p.expr(operand, if bare { 7 } else { 0 });
                    // A number that comes first would absorb the minus sign.
                    let number = p.out.get(start..).is_some_and(|text| {
                        text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
                    });
                    if !bare || number {
                        p.out.insert(start, '(');
                        p.out.push(')');
                    }
                    // The same applies to the receiver in `-(0).f()`.
                    if p.out.get(begin..).is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit())) {
                        p.out.insert(begin, '(');
                        p.out.push(')');
                    }
                });
            }
            (operator::INDEX | operator::OPT_INDEX, None, [operand, index]) => {
                self.expr(operand, 7);
                self.out.push_str(if function == operator::INDEX { "[" } else { "[?" });
                self.expr(index, 0);
                self.out.push(']');
            }
            (operator::OPT_SELECT, None, [operand, field]) => {
                self.expr(operand, 7);
                self.out.push_str(".?");
                let name = field.as_string().cloned().unwrap_or_default();
                self.field(&name);
            }
            (_, None, args) => {
                self.out.push_str(function);
                self.args(args);
            }
            (_, Some(target), args) => {
                self.expr(target, 7);
                self.out.push('.');
                self.out.push_str(function);
                self.args(args);
            }
        }
    }
}

fn write_literal(out: &mut String, literal: &Literal) {
    let _ = match literal {
        Literal::Null => write!(out, "null"),
        Literal::Bool(b) => write!(out, "{b}"),
        Literal::Int(i) => write!(out, "{i}"),
        Literal::Uint(u) => write!(out, "{u}u"),
        Literal::Double(d) => write!(out, "{d:?}"),
        Literal::String(s) => write!(out, "{}", quote(s)),
        Literal::Bytes(b) => {
            out.push_str("b\"");
            for byte in b {
                let _ = write!(out, "\\{byte:03o}");
            }
            write!(out, "\"")
        }
    };
}

/// Prints a checked tree with types and overloads, in cel-go's debug format.
pub(crate) fn show(checked: &CheckedAst) -> String {
    let mut out = String::new();
    node(checked, &checked.ast.expr, 0, &mut out);
    out
}

fn node(checked: &CheckedAst, expr: &Expr, depth: usize, out: &mut String) {
    match &expr.kind {
        ExprKind::Unspecified => out.push_str("<unspecified>"),
        ExprKind::Literal(literal) => write_literal(out, literal),
        ExprKind::Ident(name) => out.push_str(name),
        ExprKind::Select { operand, field, test_only } => {
            node(checked, operand, depth, out);
            let _ = write!(out, ".{field}{}", if *test_only { "~test-only~" } else { "" });
        }
        ExprKind::Call { function, target, args } => {
            if let Some(target) = target {
                node(checked, target, depth, out);
                out.push('.');
            }
            out.push_str(function);
            bracketed(["(", ")"], args, depth, out, |arg, out| node(checked, arg, depth + 1, out));
        }
        ExprKind::List { elements, .. } => {
            bracketed(["[", "]"], elements, depth, out, |element, out| {
                node(checked, element, depth + 1, out);
            });
        }
        ExprKind::Map(entries) => bracketed(["{", "}"], entries, depth, out, |entry, out| {
            node(checked, &entry.key, depth + 1, out);
            out.push(':');
            node(checked, &entry.value, depth + 1, out);
        }),
        ExprKind::Struct { type_name, fields } => {
            out.push_str(type_name);
            bracketed(["{", "}"], fields, depth, out, |field, out| {
                let _ = write!(out, "{}:", field.name);
                node(checked, &field.value, depth + 1, out);
            });
        }
        ExprKind::Comprehension(c) => comprehension(checked, c, depth, out),
    }
    let overloads = checked.overloads(expr.id);
    let _ = write!(out, "~{}", checked.type_of(expr.id).in_messages());
    if !overloads.is_empty() {
        let _ = write!(out, "^{}", overloads.join("|"));
    }
}

/// Prints one item per line between brackets; an empty list prints on one line.
fn bracketed<T>(
    [open, close]: [&str; 2],
    items: &[T],
    depth: usize,
    out: &mut String,
    item_to: impl Fn(&T, &mut String),
) {
    let indent = "  ".repeat(depth);
    out.push_str(open);
    for (i, item) in items.iter().enumerate() {
        let _ = write!(out, "{}\n{indent}  ", if i > 0 { "," } else { "" });
        item_to(item, out);
    }
    if !items.is_empty() {
        let _ = write!(out, "\n{indent}");
    }
    out.push_str(close);
}

fn comprehension(checked: &CheckedAst, c: &Comprehension, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    let _ = write!(out, "__comprehension__(\n{indent}  // Variable\n{indent}  {},", c.var);
    if let Some(var2) = &c.var2 {
        let _ = write!(out, "\n{indent}  {var2},");
    }
    for (name, part) in [
        ("Target", &c.range),
        ("Accumulator", &c.init),
        ("LoopCondition", &c.condition),
        ("LoopStep", &c.step),
        ("Result", &c.result),
    ] {
        let _ = write!(out, "\n{indent}  // {name}\n{indent}  ");
        if name == "Accumulator" {
            let _ = write!(out, "{},\n{indent}  // Init\n{indent}  ", c.accu);
        }
        node(checked, part, depth + 1, out);
        if name != "Result" {
            out.push(',');
        }
    }
    out.push(')');
}

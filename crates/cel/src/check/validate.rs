//! Validators that run after type checking: they report literals that can only fail at run time, and heterogeneous
//! literals.

use super::CheckedAst;
use crate::env::Env;
use crate::lib::format_string;
use crate::lib::pattern::allowance::{self, PER_EXPRESSION};
use crate::lib::pattern::{self, PatternError};
use crate::syntax::ast::{Expr, ExprKind, Literal};
use crate::syntax::source::{Issues, Location, Source};
use crate::types::Type;
use crate::val::convert::convert;

/// A validator of checked expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validator {
    /// Arguments of `duration` that are literals must be valid.
    Durations,
    /// Arguments of `timestamp` that are literals must be valid.
    Timestamps,
    /// Literal regular expressions must be valid.
    Patterns,
    /// Literal lists and maps must have elements of one type.
    Homogeneous,
    /// Literal format strings must match their literal arguments.
    FormatStrings,
}

/// Runs the environment's validators.
pub(crate) fn validate(source: &Source, checked: &CheckedAst, env: &Env, issues: &mut Issues) {
    let validators = env.validators();
    if validators.is_empty() {
        return;
    }
    let mut validation =
        AstValidation { source, checked, issues, exempt: validators.contains(&Validator::FormatStrings) };
    for validator in validators {
        match validator {
            Validator::Durations => validation.calls("duration", |arg| literal_fails(arg, &Type::Duration)),
            Validator::Timestamps => {
                validation.calls("timestamp", |arg| literal_fails(arg, &Type::Timestamp));
            }
            Validator::Patterns => validation.patterns(),
            Validator::Homogeneous => validation.homogeneous(&checked.ast.expr, false),
            Validator::FormatStrings => validation.format_strings(&checked.ast.expr),
        }
    }
}

fn literal_fails(literal: &Literal, to: &Type) -> bool {
    convert(&crate::plan::literal(literal), to).is_err()
}

struct AstValidation<'w> {
    source: &'w Source,
    checked: &'w CheckedAst,
    issues: &'w mut Issues,
    /// Exempts the arguments of `format` from the homogeneity check.
    exempt: bool,
}

impl AstValidation<'_> {
    fn report(&mut self, id: u32, message: String) {
        let location =
            self.checked.ast.offset(id).map_or(Location::NONE, |offset| self.source.location(offset));
        self.issues.report(location, message);
    }

    /// Reports calls of `function` whose first argument is a literal that `fails`.
    fn calls(&mut self, function: &str, fails: impl Fn(&Literal) -> bool) {
        let mut bad = Vec::new();
        self.checked.ast.expr.walk(&mut |expr| {
            if let ExprKind::Call { function: called, args, .. } = &expr.kind
                && called == function
                && let Some(Expr { id, kind: ExprKind::Literal(literal) }) = args.first()
                && fails(literal)
            {
                bad.push(*id);
            }
        });
        for id in bad {
            self.report(id, format!("invalid {function} argument"));
        }
    }

    /// Reports literal patterns that are invalid or take too much work to compile.
    fn patterns(&mut self) {
        let mut bad = Vec::new();
        allowance::within(PER_EXPRESSION, || {
            self.checked.ast.expr.walk(&mut |expr| {
                if let ExprKind::Call { function, args, .. } = &expr.kind
                    && matches!(function.as_str(), "matches" | "find" | "findAll")
                    && let Some(Expr { id, kind: ExprKind::Literal(Literal::String(text)) }) = args.first()
                    && let Err(error) = pattern::compile(text)
                {
                    match error {
                        PatternError::Syntax(_) if function != "matches" => {}
                        PatternError::Syntax(_) => bad.push((*id, "invalid matches argument".to_owned())),
                        PatternError::Exhausted(_) | PatternError::Unmatched(_) => {
                            bad.push((*id, error.to_string()));
                        }
                    }
                }
            });
        });
        for (id, message) in bad {
            self.report(id, message);
        }
    }

    fn mismatch(&mut self, id: u32, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{}' but found '{}'", expected.in_messages(), found.in_messages()),
        );
    }

    fn homogeneous(&mut self, expr: &Expr, exempt: bool) {
        let exempt = exempt
            || (self.exempt && matches!(&expr.kind, ExprKind::Call { function, .. } if function == "format"));
        let unwrapped = |id: u32, optional: bool| {
            let ty = self.checked.type_of(id);
            if optional { ty.parameters().first().copied().unwrap_or(ty) } else { ty }
        };
        let mut bad = Vec::new();
        match &expr.kind {
            ExprKind::List { elements, optional } if !exempt => {
                let mut first: Option<&Type> = None;
                for (i, element) in elements.iter().enumerate() {
                    let ty = unwrapped(element.id, optional.binary_search(&i).is_ok());
                    let first = *first.get_or_insert(ty);
                    if !first.is_equivalent(ty) {
                        bad.push((element.id, first.clone(), ty.clone()));
                        break;
                    }
                }
            }
            ExprKind::Map(entries) if !exempt => {
                let mut first: Option<(&Type, &Type)> = None;
                for entry in entries {
                    let key = unwrapped(entry.key.id, false);
                    let value = unwrapped(entry.value.id, entry.optional);
                    let first = *first.get_or_insert((key, value));
                    if !first.0.is_equivalent(key) {
                        bad.push((entry.key.id, first.0.clone(), key.clone()));
                    }
                    if !first.1.is_equivalent(value) {
                        bad.push((entry.value.id, first.1.clone(), value.clone()));
                    }
                }
            }
            _ => {}
        }
        for (id, expected, found) in bad {
            self.mismatch(id, &expected, &found);
        }
        expr.children(&mut |child| self.homogeneous(child, exempt));
    }

    fn format_strings(&mut self, root: &Expr) {
        let mut found = Vec::new();
        root.walk(&mut |expr| {
            if let ExprKind::Call { function, target: Some(target), args } = &expr.kind
                && function == "format"
                && let Some(format) = target.as_string()
                && let [Expr { kind: ExprKind::List { elements, .. }, .. }] = args.as_slice()
                && self.checked.overloads(expr.id).iter().any(|overload| overload == "string_format")
            {
                found.push((expr.id, format, elements));
            }
        });
        for (id, format, elements) in found {
            match format_string::check(format, elements, self.checked) {
                Ok(used) if elements.len() > used => self.report(
                    id,
                    format!(
                        "too many arguments supplied to string.format (expected {used}, got {})",
                        elements.len()
                    ),
                ),
                Ok(_) => {}
                Err((wrong, message)) => self.report(wrong.unwrap_or(id), message),
            }
        }
    }
}

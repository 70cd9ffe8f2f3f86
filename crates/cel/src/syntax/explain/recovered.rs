//! The parse tree that ANTLR keeps of an expression with syntax errors, and the errors that cel-go finds in it.
//!
//! A rule that failed stays in the tree with the parts that were parsed. cel-go visits this tree too, and reports
//! reserved words, invalid literals and wrong macro arguments along with the syntax errors.

use value::Str;

use super::grammar::{
    AND, CALC, ESCAPE_IDENT, EXPR, EXPR_LIST, FIELD_INIT, LIST_INIT, LITERAL, MAP_INIT, MEMBER, OPT_EXPR,
    OPT_FIELD, OR, PRIMARY, RELATION, RuleId, UNARY,
};
use crate::syntax::ast::{Expr, ExprKind, Literal, MapEntry, StructField};
use crate::syntax::nodes::NO_OFFSET;
use crate::syntax::operator;
use crate::syntax::parser::{MAX_NESTING, Parser, balance, call};
use crate::syntax::source::Location;
use crate::syntax::token::{RESERVED, Token, TokenKind};

/// A parsed, possibly incomplete, grammar rule.
#[derive(Debug)]
pub(super) struct RecoveredTree {
    pub(super) rule: RuleId,
    /// The first token of the rule.
    pub(super) first: Token,
    /// The alternative that was chosen, if the rule has several.
    pub(super) alternative: Option<usize>,
    pub(super) parts: Vec<TreePart>,
}

/// A part of a parsed rule.
#[derive(Debug)]
pub(super) enum TreePart {
    /// A token; false if recovery inserted it, at the position of the token found instead.
    Token(Token, bool),
    /// A nested rule by the id it is used under. Its tree may be of another rule, because rules that only wrap
    /// another one are simplified away.
    Rule(RuleId, RecoveredTree),
    /// Start of another operator in a left-recursive rule, by its alternative.
    Link(usize),
}

impl RecoveredTree {
    /// Returns the inner tree of a rule that only wraps another one.
    pub(super) fn simplified(mut self) -> RecoveredTree {
        let passes_on = match self.rule {
            EXPR => token(&self.parts, TokenKind::Question).is_none(),
            OR => token(&self.parts, TokenKind::Or).is_none(),
            AND => token(&self.parts, TokenKind::And).is_none(),
            RELATION | CALC | MEMBER => !self.parts.iter().any(|part| matches!(part, TreePart::Link(_))),
            UNARY => self.alternative == Some(0),
            PRIMARY => matches!(self.alternative, Some(2 | 6)),
            _ => false,
        };
        let at = self.parts.iter().position(|part| matches!(part, TreePart::Rule(..)));
        match at {
            Some(at) if passes_on => match self.parts.swap_remove(at) {
                TreePart::Rule(_, tree) => tree,
                _ => self,
            },
            _ => self,
        }
    }
}

fn token(parts: &[TreePart], kind: TokenKind) -> Option<Token> {
    tokens(parts, kind).next()
}

fn tokens(parts: &[TreePart], kind: TokenKind) -> impl Iterator<Item = Token> {
    parts.iter().filter_map(move |part| match part {
        TreePart::Token(token, _) if token.kind == kind => Some(*token),
        _ => None,
    })
}

/// The nested rules used under a rule id.
fn rules(parts: &[TreePart], rule: RuleId) -> impl Iterator<Item = &RecoveredTree> {
    parts.iter().filter_map(move |part| match part {
        TreePart::Rule(slot, tree) if *slot == rule => Some(tree),
        _ => None,
    })
}

fn rule(parts: &[TreePart], wanted: RuleId) -> Option<&RecoveredTree> {
    rules(parts, wanted).next()
}

/// The tree nests deeper than the limit.
struct VisitTooDeep;

/// Visits a tree; errors go to the parser's issues.
pub(super) fn visit(parser: &mut Parser<'_>, tree: &RecoveredTree) {
    let mut visitor = Visitor { parser, depth: 0 };
    if visitor.rule(tree, EXPR).is_err() {
        parser.issues.report(Location::NONE, "max recursion depth exceeded");
    }
}

struct Visitor<'p, 's> {
    parser: &'p mut Parser<'s>,
    depth: u32,
}

type VisitedExpr = Result<Expr, VisitTooDeep>;

impl Visitor<'_, '_> {
    fn enter(&mut self, levels: usize) -> Result<(), VisitTooDeep> {
        self.depth = self.depth.saturating_add(u32::try_from(levels).unwrap_or(u32::MAX));
        if self.depth > MAX_NESTING { Err(VisitTooDeep) } else { Ok(()) }
    }

    fn node(&mut self, offset: u32, kind: ExprKind) -> Expr {
        Expr { id: self.parser.nodes.id(Some(offset)), kind }
    }

    fn missing_node(&mut self) -> Expr {
        self.node(NO_OFFSET, ExprKind::Unspecified)
    }

    /// Visits the first nested rule with the id `wanted`.
    fn rule(&mut self, tree: &RecoveredTree, wanted: RuleId) -> VisitedExpr {
        self.visit_or_missing(rule(&tree.parts, wanted))
    }

    fn visit_or_missing(&mut self, tree: Option<&RecoveredTree>) -> VisitedExpr {
        match tree {
            Some(tree) => self.visit(tree),
            None => Ok(self.missing_node()),
        }
    }

    fn visit(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        match tree.rule {
            EXPR => self.conditional(tree),
            OR => self.logic(tree, TokenKind::Or, operator::OR, AND),
            AND => self.logic(tree, TokenKind::And, operator::AND, RELATION),
            RELATION => self.operators(tree, CALC),
            CALC => self.operators(tree, UNARY),
            UNARY => self.unary(tree),
            MEMBER => self.member(tree),
            PRIMARY => self.primary(tree),
            LITERAL => Ok(self.literal(tree)),
            _ => Ok(self.missing_node()),
        }
    }

    fn conditional(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let Some(op) = token(&tree.parts, TokenKind::Question) else { return self.rule(tree, OR) };
        self.enter(1)?;
        let mut sides = rules(&tree.parts, OR);
        let condition = self.visit_or_missing(sides.next())?;
        let id = self.parser.nodes.id(Some(op.offset));
        let truthy = self.visit_or_missing(sides.next())?;
        let falsy = self.rule(tree, EXPR)?;
        self.depth -= 1;
        Ok(call(id, operator::CONDITIONAL, vec![condition, truthy, falsy]))
    }

    fn logic(
        &mut self,
        tree: &RecoveredTree,
        kind: TokenKind,
        function: &'static str,
        operand: RuleId,
    ) -> VisitedExpr {
        let mut operands = rules(&tree.parts, operand);
        let mut terms = vec![Some(self.visit_or_missing(operands.next())?)];
        let mut ops = Vec::new();
        for (op, operand) in tokens(&tree.parts, kind).zip(operands) {
            terms.push(Some(self.visit(operand)?));
            ops.push(self.parser.nodes.id(Some(op.offset)));
        }
        let Some(high) = ops.len().checked_sub(1) else {
            return Ok(terms.pop().flatten().unwrap_or_else(|| self.missing_node()));
        };
        match balance(function, &mut terms, &ops, 0, high) {
            Some(expr) => Ok(expr),
            None => Ok(self.missing_node()),
        }
    }

    /// Left-associative `a op b op c`; each operator adds a level to the tree.
    fn operators(&mut self, tree: &RecoveredTree, operand: RuleId) -> VisitedExpr {
        let links: Vec<&[TreePart]> = tree.parts.split(|part| matches!(part, TreePart::Link(_))).collect();
        let Some((first, links)) = links.split_first() else { return Ok(self.missing_node()) };
        self.enter(links.len())?;
        let mut left = self.visit_or_missing(rule(first, operand))?;
        for link in links {
            let op = link.iter().find_map(|part| match part {
                TreePart::Token(token, _) => Some(*token),
                _ => None,
            });
            let Some(op) = op else {
                left = self.parser.problem(tree.first, "operator not found");
                self.depth -= 1;
                continue;
            };
            let id = self.parser.nodes.id(Some(op.offset));
            let right = self.visit_or_missing(rule(link, tree.rule))?;
            let function = operator::relation(op.kind)
                .or(operator::calc(op.kind).map(|(function, _)| function))
                .unwrap_or_default();
            left = call(id, function, vec![left, right]);
            self.depth -= 1;
        }
        Ok(left)
    }

    fn unary(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let (kind, function) = match tree.alternative {
            Some(1) => (TokenKind::Not, operator::NOT),
            Some(2) => (TokenKind::Minus, operator::NEGATE),
            Some(_) => return self.rule(tree, MEMBER),
            None => {
                let text = ExprKind::Literal(Literal::String("<<error>>".into()));
                return Ok(self.node(tree.first.offset, text));
            }
        };
        let Some(first) = token(&tree.parts, kind).filter(|_| tokens(&tree.parts, kind).count() % 2 == 1)
        else {
            return self.rule(tree, MEMBER);
        };
        let id = self.parser.nodes.id(Some(first.offset));
        let operand = self.rule(tree, MEMBER)?;
        Ok(call(id, function, vec![operand]))
    }

    fn member(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let links: Vec<&[TreePart]> = tree.parts.split(|part| matches!(part, TreePart::Link(_))).collect();
        let kinds = tree.parts.iter().filter_map(|part| match part {
            TreePart::Link(alternative) => Some(*alternative),
            _ => None,
        });
        let Some((first, links)) = links.split_first() else { return Ok(self.missing_node()) };
        self.enter(links.len())?;
        let mut target = self.visit_or_missing(rule(first, PRIMARY))?;
        for (link, kind) in links.iter().zip(kinds) {
            target = match kind {
                0 => self.select(tree, link, target),
                1 => self.method(tree, link, target)?,
                _ => self.index(tree, link, target)?,
            };
            self.depth -= 1;
        }
        Ok(target)
    }

    fn select(&mut self, tree: &RecoveredTree, link: &[TreePart], target: Expr) -> Expr {
        let (Some(dot), Some(name)) = (token(link, TokenKind::Dot), rule(link, ESCAPE_IDENT)) else {
            return self.node(tree.first.offset, ExprKind::Unspecified);
        };
        let field = self.name(name);
        if field.is_none() {
            self.parser.problem(name.first, "unsupported ident kind");
        }
        let field = field.unwrap_or_default();
        if token(link, TokenKind::Question).is_none() {
            let kind = ExprKind::Select { operand: Box::new(target), field, test_only: false };
            return self.node(dot.offset, kind);
        }
        if !self.parser.options.optional_syntax {
            return self.parser.problem(dot, "unsupported syntax '.?'");
        }
        let field = self.node(name.first.offset, ExprKind::Literal(Literal::String(field)));
        let id = self.parser.nodes.id(Some(dot.offset));
        call(id, operator::OPT_SELECT, vec![target, field])
    }

    /// The text of an identifier, without backticks; `None` if it is missing.
    fn name(&self, tree: &RecoveredTree) -> Option<Str> {
        tree.alternative?;
        tree.parts.iter().find_map(|part| match part {
            TreePart::Token(token, true) => Some(self.parser.text(*token).trim_matches('`').into()),
            _ => None,
        })
    }

    fn method(&mut self, tree: &RecoveredTree, link: &[TreePart], target: Expr) -> VisitedExpr {
        let Some(name) = token(link, TokenKind::Identifier) else {
            return Ok(self.node(tree.first.offset, ExprKind::Unspecified));
        };
        let id = self.parser.nodes.id(token(link, TokenKind::LeftParen).map(|open| open.offset));
        let args = self.args(link)?;
        let function = Str::from(self.parser.text(name));
        Ok(self.parser.call_or_macro(id, function, Some(target), args))
    }

    fn args(&mut self, parts: &[TreePart]) -> Result<Vec<Expr>, VisitTooDeep> {
        let Some(list) = rule(parts, EXPR_LIST) else { return Ok(Vec::new()) };
        rules(&list.parts, EXPR).map(|arg| self.visit(arg)).collect()
    }

    fn index(&mut self, tree: &RecoveredTree, link: &[TreePart], target: Expr) -> VisitedExpr {
        let Some(open) = token(link, TokenKind::LeftBracket) else {
            return Ok(self.node(tree.first.offset, ExprKind::Unspecified));
        };
        let id = self.parser.nodes.id(Some(open.offset));
        let index = self.visit_or_missing(rule(link, EXPR))?;
        let function = match token(link, TokenKind::Question) {
            Some(_) if !self.parser.options.optional_syntax => {
                return Ok(self.parser.problem(open, "unsupported syntax '[?'"));
            }
            Some(_) => operator::OPT_INDEX,
            None => operator::INDEX,
        };
        Ok(call(id, function, vec![target, index]))
    }

    fn primary(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        match tree.alternative {
            Some(0 | 1) => self.identifier(tree),
            Some(2) => self.rule(tree, EXPR),
            Some(3) => self.list(tree),
            Some(4) => self.map(tree),
            Some(5) => self.message(tree),
            Some(_) => self.rule(tree, LITERAL),
            None => Ok(self.missing_node()),
        }
    }

    fn identifier(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let Some(name) = token(&tree.parts, TokenKind::Identifier) else {
            return Ok(self.node(tree.first.offset, ExprKind::Unspecified));
        };
        let word = self.parser.text(name);
        if RESERVED.contains(&word) {
            return Ok(self.parser.problem(tree.first, format!("reserved identifier: {word}")));
        }
        let dot = if token(&tree.parts, TokenKind::Dot).is_some() { "." } else { "" };
        let full = Str::from(format!("{dot}{word}"));
        if tree.alternative == Some(0) {
            return Ok(self.node(name.offset, ExprKind::Ident(full)));
        }
        let id = self.parser.nodes.id(token(&tree.parts, TokenKind::LeftParen).map(|open| open.offset));
        let args = self.args(&tree.parts)?;
        Ok(self.parser.call_or_macro(id, full, None, args))
    }

    fn list(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let open = token(&tree.parts, TokenKind::LeftBracket).unwrap_or(tree.first);
        let id = self.parser.nodes.id(Some(open.offset));
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        if let Some(list) = rule(&tree.parts, LIST_INIT) {
            for (at, element) in rules(&list.parts, OPT_EXPR).enumerate() {
                elements.push(self.rule(element, EXPR)?);
                match token(&element.parts, TokenKind::Question) {
                    Some(_) if self.parser.options.optional_syntax => optional.push(at),
                    Some(question) => {
                        self.parser.problem(question, "unsupported syntax '?'");
                    }
                    None => {}
                }
            }
        }
        Ok(Expr { id, kind: ExprKind::List { elements, optional } })
    }

    fn map(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let open = token(&tree.parts, TokenKind::LeftBrace).unwrap_or(tree.first);
        let id = self.parser.nodes.id(Some(open.offset));
        let mut entries = Vec::new();
        if let Some(list) = rule(&tree.parts, MAP_INIT) {
            let keys = rules(&list.parts, OPT_EXPR);
            let values = rules(&list.parts, EXPR);
            for (colon, (key, value)) in tokens(&list.parts, TokenKind::Colon).zip(keys.zip(values)) {
                let id = self.parser.nodes.id(Some(colon.offset));
                let optional = token(&key.parts, TokenKind::Question).is_some();
                if optional && !self.parser.options.optional_syntax {
                    self.parser.problem(key.first, "unsupported syntax '?'");
                    continue;
                }
                let key = self.rule(key, EXPR)?;
                let value = self.visit(value)?;
                entries.push(MapEntry { id, key, value, optional });
            }
        }
        Ok(Expr { id, kind: ExprKind::Map(entries) })
    }

    fn message(&mut self, tree: &RecoveredTree) -> VisitedExpr {
        let open = token(&tree.parts, TokenKind::LeftBrace).unwrap_or(tree.first);
        let id = self.parser.nodes.id(Some(open.offset));
        let mut fields = Vec::new();
        if let Some(list) = rule(&tree.parts, FIELD_INIT) {
            let values = rules(&list.parts, EXPR);
            let names = rules(&list.parts, OPT_FIELD);
            for (name, (colon, value)) in names.zip(tokens(&list.parts, TokenKind::Colon).zip(values)) {
                let id = self.parser.nodes.id(Some(colon.offset));
                let optional = token(&name.parts, TokenKind::Question).is_some();
                if optional && !self.parser.options.optional_syntax {
                    self.parser.problem(name.first, "unsupported syntax '?'");
                    continue;
                }
                let Some(name) = rule(&name.parts, ESCAPE_IDENT).and_then(|name| self.name(name)) else {
                    self.parser.problem(list.first, "unsupported ident kind");
                    continue;
                };
                let value = self.visit(value)?;
                fields.push(StructField { id, name, value, optional });
            }
        }
        let type_name = tokens(&tree.parts, TokenKind::Identifier)
            .map(|name| self.parser.text(name))
            .collect::<Vec<_>>()
            .join(".");
        Ok(Expr { id, kind: ExprKind::Struct { type_name: type_name.into(), fields } })
    }

    fn literal(&mut self, tree: &RecoveredTree) -> Expr {
        let minus = token(&tree.parts, TokenKind::Minus).is_some();
        let token = tree.parts.iter().find_map(|part| match part {
            TreePart::Token(token, true) if token.kind != TokenKind::Minus => Some(*token),
            _ => None,
        });
        let read = token.and_then(|token| self.parser.read_literal(tree.first, minus, token));
        read.unwrap_or_else(|| self.missing_node())
    }
}

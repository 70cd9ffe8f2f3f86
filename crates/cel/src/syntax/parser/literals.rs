//! Literals: numbers, strings, lists, maps and structs.

use super::{ParseStop, ParsedNode, Parser, Result};
use crate::syntax::ast::{Expr, ExprKind, Literal, MapEntry, StructField};
use crate::syntax::literal::unescape;
use crate::syntax::token::{Token, TokenKind};

impl Parser<'_> {
    pub(super) fn message(&mut self, open: usize) -> Result<ParsedNode> {
        let mut type_name = String::new();
        for _ in 0..open {
            let token = self.next();
            type_name.push_str(self.text(token));
        }
        let open = self.next();
        let id = self.nodes.id(Some(open.offset));
        let mut fields = Vec::new();
        let mut depth = 0;
        while !matches!(self.kind(), TokenKind::RightBrace | TokenKind::Comma) {
            let question = self.eat(TokenKind::Question);
            let (_, name) = self.escaped_identifier()?;
            let colon = self.expect(TokenKind::Colon)?;
            let field = self.nodes.id(Some(colon.offset));
            if let Some(question) = question
                && !self.options.optional_syntax
            {
                self.problem(question, "unsupported syntax '?'");
            }
            let value = self.expr()?;
            depth = depth.max(value.depth);
            let optional = question.is_some();
            fields.push(StructField { id: field, name, value: value.expr, optional });
            if !self.has_another_element(TokenKind::RightBrace)? {
                break;
            }
        }
        self.eat(TokenKind::Comma);
        self.expect(TokenKind::RightBrace)?;
        let kind = ExprKind::Struct { type_name: type_name.into(), fields };
        Ok(ParsedNode { expr: Expr { id, kind }, depth })
    }

    pub(super) fn list(&mut self) -> Result<ParsedNode> {
        let open = self.next();
        let id = self.nodes.id(Some(open.offset));
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        let mut depth = 0;
        while !matches!(self.kind(), TokenKind::RightBracket | TokenKind::Comma) {
            let question = self.eat(TokenKind::Question);
            let element = self.expr()?;
            depth = depth.max(element.depth);
            if let Some(question) = question {
                if self.options.optional_syntax {
                    optional.push(elements.len());
                } else {
                    self.problem(question, "unsupported syntax '?'");
                }
            }
            elements.push(element.expr);
            if !self.has_another_element(TokenKind::RightBracket)? {
                break;
            }
        }
        self.eat(TokenKind::Comma);
        self.expect(TokenKind::RightBracket)?;
        Ok(ParsedNode { expr: Expr { id, kind: ExprKind::List { elements, optional } }, depth })
    }

    pub(super) fn map(&mut self) -> Result<ParsedNode> {
        let open = self.next();
        let id = self.nodes.id(Some(open.offset));
        let mut entries = Vec::new();
        let mut depth = 0;
        while !matches!(self.kind(), TokenKind::RightBrace | TokenKind::Comma) {
            let question = self.eat(TokenKind::Question);
            let entry = self.nodes.id(None);
            if let Some(question) = question
                && !self.options.optional_syntax
            {
                self.problem(question, "unsupported syntax '?'");
            }
            let key = self.expr()?;
            let colon = self.expect(TokenKind::Colon)?;
            self.nodes.set_offset(entry, colon.offset);
            let value = self.expr()?;
            depth = depth.max(key.depth).max(value.depth);
            let optional = question.is_some();
            entries.push(MapEntry { id: entry, key: key.expr, value: value.expr, optional });
            if !self.has_another_element(TokenKind::RightBrace)? {
                break;
            }
        }
        self.eat(TokenKind::Comma);
        self.expect(TokenKind::RightBrace)?;
        Ok(ParsedNode { expr: Expr { id, kind: ExprKind::Map(entries) }, depth })
    }

    /// True if a comma and another element follow; false at `close`, before which a trailing comma is allowed.
    fn has_another_element(&mut self, close: TokenKind) -> Result<bool> {
        if self.kind() != TokenKind::Comma || self.peek(1).kind == close {
            return Ok(false);
        }
        self.next();
        if self.kind() == TokenKind::Comma { Err(ParseStop::Syntax) } else { Ok(true) }
    }

    pub(super) fn literal(&mut self) -> Result<Expr> {
        let first = self.token();
        let minus = self.eat(TokenKind::Minus).is_some();
        let token = self.next();
        self.read_literal(first, minus, token).ok_or(ParseStop::Syntax)
    }

    /// Reads the literal whose first token is `first`; `None` if `token` is not a literal.
    pub(in crate::syntax) fn read_literal(
        &mut self,
        first: Token,
        minus: bool,
        token: Token,
    ) -> Option<Expr> {
        let text = self.text(token);
        let signed = |digits: &str| if minus { format!("-{digits}") } else { digits.to_owned() };
        let literal = match token.kind {
            TokenKind::Int => match text.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(&signed(hex), 16).ok(),
                None => signed(text).parse().ok(),
            }
            .map(Literal::Int)
            .ok_or("invalid int literal"),
            TokenKind::Float => signed(text)
                .parse()
                .ok()
                .filter(|f: &f64| f.is_finite())
                .map(Literal::Double)
                .ok_or("invalid double literal"),
            _ if minus => return None,
            TokenKind::Uint => {
                let digits = text.trim_end_matches(['u', 'U']);
                match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).ok(),
                    None => digits.parse().ok(),
                }
                .map(Literal::Uint)
                .ok_or("invalid uint literal")
            }
            TokenKind::String => unescape(text, false)
                .map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into_owned().into())),
            TokenKind::Bytes => unescape(text.get(1..).unwrap_or_default(), true).map(Literal::Bytes),
            TokenKind::True => Ok(Literal::Bool(true)),
            TokenKind::False => Ok(Literal::Bool(false)),
            TokenKind::Null => Ok(Literal::Null),
            _ => return None,
        };
        Some(match literal {
            Ok(literal) => {
                let id = self.nodes.id(Some(first.offset));
                Expr { id, kind: ExprKind::Literal(literal) }
            }
            Err(message) => self.problem(first, message),
        })
    }
}

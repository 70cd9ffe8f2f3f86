//! Literals: numbers and text, lists, maps and messages.

use super::{Parsed, Parser, Result, Stop};
use crate::syntax::ast::{Expr, ExprKind, Literal, MapEntry, StructField};
use crate::syntax::literal::unescape;
use crate::syntax::token::{Kind, Token};

impl Parser<'_> {
    pub(super) fn message(&mut self, open: usize) -> Result<Parsed> {
        let mut type_name = String::new();
        for _ in 0..open {
            let token = self.next();
            type_name.push_str(self.text(token));
        }
        let open = self.next();
        let id = self.nodes.id(Some(open.offset));
        let mut fields = Vec::new();
        let mut depth = 0;
        while !matches!(self.kind(), Kind::RightBrace | Kind::Comma) {
            let question = self.eat(Kind::Question);
            let (_, name) = self.escaped_identifier()?;
            let colon = self.expect(Kind::Colon)?;
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
            if !self.another(Kind::RightBrace)? {
                break;
            }
        }
        self.eat(Kind::Comma);
        self.expect(Kind::RightBrace)?;
        let kind = ExprKind::Struct { type_name: type_name.into(), fields };
        Ok(Parsed { expr: Expr { id, kind }, depth })
    }

    pub(super) fn list(&mut self) -> Result<Parsed> {
        let open = self.next();
        let id = self.nodes.id(Some(open.offset));
        let mut elements = Vec::new();
        let mut optional = Vec::new();
        let mut depth = 0;
        while !matches!(self.kind(), Kind::RightBracket | Kind::Comma) {
            let question = self.eat(Kind::Question);
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
            if !self.another(Kind::RightBracket)? {
                break;
            }
        }
        self.eat(Kind::Comma);
        self.expect(Kind::RightBracket)?;
        Ok(Parsed { expr: Expr { id, kind: ExprKind::List { elements, optional } }, depth })
    }

    pub(super) fn map(&mut self) -> Result<Parsed> {
        let open = self.next();
        let id = self.nodes.id(Some(open.offset));
        let mut entries = Vec::new();
        let mut depth = 0;
        while !matches!(self.kind(), Kind::RightBrace | Kind::Comma) {
            let question = self.eat(Kind::Question);
            let entry = self.nodes.id(None);
            if let Some(question) = question
                && !self.options.optional_syntax
            {
                self.problem(question, "unsupported syntax '?'");
            }
            let key = self.expr()?;
            let colon = self.expect(Kind::Colon)?;
            self.nodes.place(entry, colon.offset);
            let value = self.expr()?;
            depth = depth.max(key.depth).max(value.depth);
            let optional = question.is_some();
            entries.push(MapEntry { id: entry, key: key.expr, value: value.expr, optional });
            if !self.another(Kind::RightBrace)? {
                break;
            }
        }
        self.eat(Kind::Comma);
        self.expect(Kind::RightBrace)?;
        Ok(Parsed { expr: Expr { id, kind: ExprKind::Map(entries) }, depth })
    }

    /// Whether something else follows in what ends with `close`; a comma may stand before that.
    fn another(&mut self, close: Kind) -> Result<bool> {
        if self.kind() != Kind::Comma || self.peek(1).kind == close {
            return Ok(false);
        }
        self.next();
        if self.kind() == Kind::Comma { Err(Stop::Syntax) } else { Ok(true) }
    }

    pub(super) fn literal(&mut self) -> Result<Expr> {
        let first = self.token();
        let minus = self.eat(Kind::Minus).is_some();
        let token = self.next();
        self.read_literal(first, minus, token).ok_or(Stop::Syntax)
    }

    /// The value of a literal that starts at `first`; `None` if the token is none.
    pub(in crate::syntax) fn read_literal(
        &mut self,
        first: Token,
        minus: bool,
        token: Token,
    ) -> Option<Expr> {
        let text = self.text(token);
        let signed = |digits: &str| if minus { format!("-{digits}") } else { digits.to_owned() };
        let literal = match token.kind {
            Kind::Int => match text.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(&signed(hex), 16).ok(),
                None => signed(text).parse().ok(),
            }
            .map(Literal::Int)
            .ok_or("invalid int literal"),
            Kind::Float => signed(text)
                .parse()
                .ok()
                .filter(|f: &f64| f.is_finite())
                .map(Literal::Double)
                .ok_or("invalid double literal"),
            _ if minus => return None,
            Kind::Uint => {
                let digits = text.trim_end_matches(['u', 'U']);
                match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).ok(),
                    None => digits.parse().ok(),
                }
                .map(Literal::Uint)
                .ok_or("invalid uint literal")
            }
            Kind::String => unescape(text, false)
                .map(|bytes| Literal::String(String::from_utf8_lossy(&bytes).into_owned().into())),
            Kind::Bytes => unescape(text.get(1..).unwrap_or_default(), true).map(Literal::Bytes),
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
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

//! Recursive-descent parser.
//!
//! Node ids are allocated in the order of cel-go's visitor, because one of its run-time messages contains them. The
//! first syntax error stops this parser; [`super::explain`] then reports all errors the way ANTLR does.

mod literals;

use value::Str;

use super::ast::{Ast, Expr, ExprKind, Literal, NodeId};
use super::lexer::lex;
use super::macros::{Expansion, Macros};
use super::nodes::NodeIds;
use super::source::{Issues, Location, Source};
use super::token::{RESERVED, Token, TokenKind};
use super::{explain, operator};

/// Upper bound of an expression's length in code points.
const MAX_CODE_POINTS: usize = 100_000;
/// Upper bound of nested grammar rules and of nested operators.
pub(super) const MAX_NESTING: u32 = 250;

/// Parser options of an environment.
#[derive(Clone, Debug)]
pub(crate) struct ParserOptions {
    pub(crate) macros: Macros,
    /// Allows `.?`, `[?` and `?` in literals.
    pub(crate) optional_syntax: bool,
    /// Keeps the macro calls as written, which printing needs.
    pub(crate) keep_macro_calls: bool,
}

/// Parses an expression; reports all syntax errors.
pub(crate) fn parse(source: &Source, options: &ParserOptions) -> Result<Ast, Issues> {
    let mut issues = Issues::new(source);
    if source.length() > MAX_CODE_POINTS {
        issues.report(
            Location::NONE,
            format!(
                "expression code point size exceeds limit: size: {}, limit {MAX_CODE_POINTS}",
                source.length()
            ),
        );
        return Err(issues);
    }
    let (tokens, skipped) = lex(source, &mut issues);
    let lexed = issues.is_empty();
    let mut parser = Parser::new(source, &tokens, options, Issues::new(source));
    let parsed = if lexed { parser.start() } else { Err(ParseStop::Syntax) };
    match parsed {
        Ok(parsed) => {
            if parsed.depth > MAX_NESTING {
                parser.issues.report(Location::NONE, "max recursion depth exceeded");
            }
            if parser.issues.is_empty() {
                let NodeIds { offsets, macro_calls, .. } = parser.nodes;
                Ok(Ast { expr: parsed.expr, offsets, macro_calls })
            } else {
                Err(parser.issues)
            }
        }
        Err(ParseStop::TooDeep) => {
            issues.report(Location::NONE, format!("expression recursion limit exceeded: {MAX_NESTING}"));
            Err(issues)
        }
        Err(ParseStop::Syntax) => {
            let mut parser = Parser::new(source, &tokens, options, issues);
            explain::explain(&mut parser, source, &skipped);
            Err(parser.issues)
        }
    }
}

enum ParseStop {
    Syntax,
    TooDeep,
}

/// A node, with the nesting depth of operators, selections and calls below it.
struct ParsedNode {
    expr: Expr,
    depth: u32,
}

/// Grammar rules whose nesting is limited.
#[derive(Clone, Copy)]
enum GrammarRule {
    Expr = 0,
    Relation = 1,
    Calc = 2,
}

pub(super) struct Parser<'s> {
    text: &'s str,
    pub(super) tokens: &'s [Token],
    at: usize,
    pub(super) options: &'s ParserOptions,
    pub(super) nodes: NodeIds<'s>,
    pub(super) issues: Issues,
    rules: [u32; 3],
}

type Result<T, E = ParseStop> = std::result::Result<T, E>;

impl<'s> Parser<'s> {
    fn new(source: &'s Source, tokens: &'s [Token], options: &'s ParserOptions, issues: Issues) -> Self {
        let nodes = NodeIds::new(source, tokens.len());
        Parser { text: source.text(), tokens, at: 0, options, nodes, issues, rules: [0; 3] }
    }

    fn token(&self) -> Token {
        self.peek(0)
    }

    fn peek(&self, ahead: usize) -> Token {
        let last = Token { kind: TokenKind::Eof, start: 0, end: 0, offset: 0 };
        self.tokens.get(self.at + ahead).or(self.tokens.last()).copied().unwrap_or(last)
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn next(&mut self) -> Token {
        let token = self.token();
        self.at += 1;
        token
    }

    fn eat(&mut self, kind: TokenKind) -> Option<Token> {
        (self.kind() == kind).then(|| self.next())
    }

    fn expect(&mut self, kind: TokenKind) -> Result<Token> {
        self.eat(kind).ok_or(ParseStop::Syntax)
    }

    pub(super) fn text(&self, token: Token) -> &'s str {
        token.text(self.text)
    }

    fn enter(&mut self, rule: GrammarRule) -> Result<()> {
        let Some(depth) = self.rules.get_mut(rule as usize) else { return Ok(()) };
        *depth += 1;
        if *depth > MAX_NESTING { Err(ParseStop::TooDeep) } else { Ok(()) }
    }

    fn leave(&mut self, rule: GrammarRule) {
        if let Some(depth) = self.rules.get_mut(rule as usize) {
            *depth -= 1;
        }
    }

    /// Reports an issue at a token and returns a placeholder node.
    pub(super) fn problem(&mut self, token: Token, message: impl Into<Str>) -> Expr {
        let id = self.nodes.id(Some(token.offset));
        self.issues.report(self.nodes.location(id), message);
        Expr { id, kind: ExprKind::Unspecified }
    }

    fn start(&mut self) -> Result<ParsedNode> {
        let parsed = self.expr()?;
        self.expect(TokenKind::Eof)?;
        Ok(parsed)
    }

    fn expr(&mut self) -> Result<ParsedNode> {
        self.enter(GrammarRule::Expr)?;
        let condition = self.or()?;
        let parsed = if let Some(question) = self.eat(TokenKind::Question) {
            let id = self.nodes.id(Some(question.offset));
            let truthy = self.or()?;
            self.expect(TokenKind::Colon)?;
            let falsy = self.expr()?;
            let depth = 1 + condition.depth.max(truthy.depth).max(falsy.depth);
            let args = vec![condition.expr, truthy.expr, falsy.expr];
            ParsedNode { expr: call(id, operator::CONDITIONAL, args), depth }
        } else {
            condition
        };
        self.leave(GrammarRule::Expr);
        Ok(parsed)
    }

    fn or(&mut self) -> Result<ParsedNode> {
        self.logic(TokenKind::Or, operator::OR, Self::and)
    }

    fn and(&mut self) -> Result<ParsedNode> {
        self.logic(TokenKind::And, operator::AND, |parser| parser.relation(0))
    }

    /// Parses `a op b op c …` as a balanced tree, so that long chains stay shallow.
    fn logic(
        &mut self,
        kind: TokenKind,
        function: &'static str,
        operand: impl Fn(&mut Self) -> Result<ParsedNode>,
    ) -> Result<ParsedNode> {
        let first = operand(self)?;
        if self.kind() != kind {
            return Ok(first);
        }
        let mut depth = first.depth;
        let mut terms = vec![Some(first.expr)];
        let mut ops = Vec::new();
        while let Some(op) = self.eat(kind) {
            let next = operand(self)?;
            depth = depth.max(next.depth);
            terms.push(Some(next.expr));
            ops.push(self.nodes.id(Some(op.offset)));
        }
        let high = ops.len() - 1;
        balance(function, &mut terms, &ops, 0, high)
            .map(|expr| ParsedNode { expr, depth })
            .ok_or(ParseStop::Syntax)
    }

    fn relation(&mut self, least: u32) -> Result<ParsedNode> {
        self.enter(GrammarRule::Relation)?;
        let mut left = self.calc(0)?;
        while least < 1
            && let Some(function) = operator::relation(self.kind())
        {
            left = self.binary(left, function, |parser| parser.relation(1))?;
        }
        self.leave(GrammarRule::Relation);
        Ok(left)
    }

    fn calc(&mut self, least: u32) -> Result<ParsedNode> {
        self.enter(GrammarRule::Calc)?;
        let mut left = self.unary()?;
        while let Some((function, strength)) = operator::calc(self.kind())
            && strength > least
        {
            left = self.binary(left, function, |parser| parser.calc(strength))?;
        }
        self.leave(GrammarRule::Calc);
        Ok(left)
    }

    fn binary(
        &mut self,
        left: ParsedNode,
        function: &'static str,
        operand: impl Fn(&mut Self) -> Result<ParsedNode>,
    ) -> Result<ParsedNode> {
        let op = self.next();
        let id = self.nodes.id(Some(op.offset));
        let right = operand(self)?;
        let depth = 1 + left.depth.max(right.depth);
        Ok(ParsedNode { expr: call(id, function, vec![left.expr, right.expr]), depth })
    }

    fn unary(&mut self) -> Result<ParsedNode> {
        let first = self.token();
        let function = match first.kind {
            TokenKind::Not => operator::NOT,
            // A minus before a number is part of the literal.
            TokenKind::Minus if !matches!(self.peek(1).kind, TokenKind::Int | TokenKind::Float) => {
                operator::NEGATE
            }
            _ => return self.member(),
        };
        let mut count = 0;
        while self.eat(first.kind).is_some() {
            count += 1;
        }
        if count % 2 == 0 {
            return self.member();
        }
        let id = self.nodes.id(Some(first.offset));
        let operand = self.member()?;
        Ok(ParsedNode { expr: call(id, function, vec![operand.expr]), depth: operand.depth })
    }

    fn member(&mut self) -> Result<ParsedNode> {
        let mut target = self.primary()?;
        loop {
            target = match self.kind() {
                TokenKind::Dot => self.select(target)?,
                TokenKind::LeftBracket => self.index(target)?,
                _ => return Ok(target),
            };
        }
    }

    fn select(&mut self, target: ParsedNode) -> Result<ParsedNode> {
        let dot = self.next();
        if self.kind() == TokenKind::Identifier && self.peek(1).kind == TokenKind::LeftParen {
            let name = self.next();
            let open = self.next();
            let id = self.nodes.id(Some(open.offset));
            let (args, depth) = self.args()?;
            let depth = 1 + target.depth.max(depth);
            let function = Str::from(self.text(name));
            return Ok(ParsedNode { expr: self.call_or_macro(id, function, Some(target.expr), args), depth });
        }
        let optional = self.eat(TokenKind::Question).is_some();
        let (token, field) = self.escaped_identifier()?;
        let depth = 1 + target.depth;
        if optional {
            if !self.options.optional_syntax {
                return Ok(ParsedNode { expr: self.problem(dot, "unsupported syntax '.?'"), depth });
            }
            let literal = self.nodes.id(Some(token.offset));
            let field = Expr { id: literal, kind: ExprKind::Literal(Literal::String(field)) };
            let id = self.nodes.id(Some(dot.offset));
            return Ok(ParsedNode { expr: call(id, operator::OPT_SELECT, vec![target.expr, field]), depth });
        }
        let id = self.nodes.id(Some(dot.offset));
        let kind = ExprKind::Select { operand: Box::new(target.expr), field, test_only: false };
        Ok(ParsedNode { expr: Expr { id, kind }, depth })
    }

    fn escaped_identifier(&mut self) -> Result<(Token, Str)> {
        let token = self.next();
        let text = self.text(token);
        match token.kind {
            TokenKind::Identifier => Ok((token, text.into())),
            TokenKind::EscapedIdentifier => Ok((token, text.trim_matches('`').into())),
            _ => Err(ParseStop::Syntax),
        }
    }

    fn index(&mut self, target: ParsedNode) -> Result<ParsedNode> {
        let open = self.next();
        let optional = self.eat(TokenKind::Question).is_some();
        let id = self.nodes.id(Some(open.offset));
        let index = self.expr()?;
        self.expect(TokenKind::RightBracket)?;
        let depth = 1 + target.depth.max(index.depth);
        if optional && !self.options.optional_syntax {
            return Ok(ParsedNode { expr: self.problem(open, "unsupported syntax '[?'"), depth });
        }
        let function = if optional { operator::OPT_INDEX } else { operator::INDEX };
        Ok(ParsedNode { expr: call(id, function, vec![target.expr, index.expr]), depth })
    }

    /// Parses arguments up to the closing parenthesis; also returns their nesting depth.
    fn args(&mut self) -> Result<(Vec<Expr>, u32)> {
        let mut args = Vec::new();
        let mut depth = 0;
        if self.eat(TokenKind::RightParen).is_some() {
            return Ok((args, depth));
        }
        loop {
            let arg = self.expr()?;
            depth = depth.max(arg.depth);
            args.push(arg.expr);
            if self.eat(TokenKind::Comma).is_none() {
                self.expect(TokenKind::RightParen)?;
                return Ok((args, depth));
            }
        }
    }

    fn primary(&mut self) -> Result<ParsedNode> {
        match self.kind() {
            TokenKind::LeftParen => {
                self.next();
                let inner = self.expr()?;
                self.expect(TokenKind::RightParen)?;
                Ok(inner)
            }
            TokenKind::LeftBracket => self.list(),
            TokenKind::LeftBrace => self.map(),
            TokenKind::Dot | TokenKind::Identifier => self.name(),
            _ => self.literal().map(|expr| ParsedNode { expr, depth: 0 }),
        }
    }

    fn name(&mut self) -> Result<ParsedNode> {
        if let Some(open) = self.message_ahead() {
            return self.message(open);
        }
        let first = self.token();
        let dot = self.eat(TokenKind::Dot);
        let token = self.expect(TokenKind::Identifier)?;
        let word = self.text(token);
        let name: Str = if dot.is_some() { format!(".{word}").into() } else { word.into() };
        let reserved = RESERVED.contains(&word);
        if let Some(open) = self.eat(TokenKind::LeftParen) {
            if reserved {
                self.args()?;
                let expr = self.problem(first, format!("reserved identifier: {word}"));
                return Ok(ParsedNode { expr, depth: 0 });
            }
            let id = self.nodes.id(Some(open.offset));
            let (args, depth) = self.args()?;
            return Ok(ParsedNode { expr: self.call_or_macro(id, name, None, args), depth });
        }
        if reserved {
            let expr = self.problem(first, format!("reserved identifier: {word}"));
            return Ok(ParsedNode { expr, depth: 0 });
        }
        let id = self.nodes.id(Some(token.offset));
        Ok(ParsedNode { expr: Expr { id, kind: ExprKind::Ident(name) }, depth: 0 })
    }

    /// Looks ahead for a struct literal: a type name and `{`. Returns the number of tokens before the brace.
    fn message_ahead(&self) -> Option<usize> {
        let mut ahead = usize::from(self.kind() == TokenKind::Dot);
        if self.peek(ahead).kind != TokenKind::Identifier {
            return None;
        }
        ahead += 1;
        while self.peek(ahead).kind == TokenKind::Dot && self.peek(ahead + 1).kind == TokenKind::Identifier {
            ahead += 2;
        }
        (self.peek(ahead).kind == TokenKind::LeftBrace).then_some(ahead)
    }

    /// Expands the call if a macro has its name and shape; else builds a call node.
    pub(super) fn call_or_macro(
        &mut self,
        id: NodeId,
        function: Str,
        target: Option<Expr>,
        args: Vec<Expr>,
    ) -> Expr {
        let Some(expander) = self.options.macros.find(&function, args.len(), target.is_some()) else {
            return Expr { id, kind: ExprKind::Call { function, target: target.map(Box::new), args } };
        };
        let written = self.options.keep_macro_calls.then(|| {
            let kind = ExprKind::Call { function, target: target.clone().map(Box::new), args: args.clone() };
            Expr { id: 0, kind }
        });
        let mut expansion = Expansion { nodes: &mut self.nodes, call: id };
        match expander(&mut expansion, target, args) {
            Ok(expr) => {
                self.nodes.delete(id);
                if let Some(written) = written {
                    self.nodes.macro_calls.push((expr.id, written));
                }
                expr
            }
            Err((wrong, message)) => {
                let location = self.nodes.location(wrong);
                let offset = self.nodes.offset(wrong);
                self.nodes.delete(id);
                let id = self.nodes.id(offset);
                self.issues.report(location, message);
                Expr { id, kind: ExprKind::Unspecified }
            }
        }
    }
}

pub(super) fn call(id: NodeId, function: &'static str, args: Vec<Expr>) -> Expr {
    Expr { id, kind: ExprKind::Call { function: Str::new_static(function), target: None, args } }
}

/// Builds a balanced tree of terms and the operators between them.
pub(super) fn balance(
    function: &'static str,
    terms: &mut [Option<Expr>],
    ops: &[NodeId],
    low: usize,
    high: usize,
) -> Option<Expr> {
    let middle = (low + high).div_ceil(2);
    let left = if middle == low {
        terms.get_mut(middle)?.take()?
    } else {
        balance(function, terms, ops, low, middle - 1)?
    };
    let right = if middle == high {
        terms.get_mut(middle + 1)?.take()?
    } else {
        balance(function, terms, ops, middle + 1, high)?
    };
    Some(call(*ops.get(middle)?, function, vec![left, right]))
}

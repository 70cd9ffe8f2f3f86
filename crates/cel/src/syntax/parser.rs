//! Tokens to a syntax tree, by recursive descent.
//!
//! Node numbers are given out in the order in which cel-go's visitor gives them out, because one of its run-time messages
//! contains them. A syntax error ends this parser; [`super::explain`] then finds all errors the way ANTLR finds them.

mod literals;

use value::Str;

use super::ast::{Ast, Expr, ExprKind, Id, Literal};
use super::lexer::lex;
use super::macros::{Expansion, Macros};
use super::nodes::Nodes;
use super::source::{Issues, Location, Source};
use super::token::{Kind, RESERVED, Token};
use super::{explain, operator};

/// The longest expression, in code points.
const MOST_POINTS: usize = 100_000;
/// How deep a grammar rule may nest in itself, and how deep operators may nest.
pub(super) const DEEPEST: u32 = 250;

/// What the parser accepts beyond the grammar.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) macros: Macros,
    /// Whether `.?`, `[?` and `?` in literals are part of the language.
    pub(crate) optional_syntax: bool,
    /// Whether the calls that macros replace are kept, for printing.
    pub(crate) keep_macro_calls: bool,
}

/// Parses an expression.
pub(crate) fn parse(source: &Source, options: &Options) -> Result<Ast, Issues> {
    let mut issues = Issues::new(source);
    if source.length() > MOST_POINTS {
        issues.report(
            Location::NONE,
            format!(
                "expression code point size exceeds limit: size: {}, limit {MOST_POINTS}",
                source.length()
            ),
        );
        return Err(issues);
    }
    let (tokens, skipped) = lex(source, &mut issues);
    let lexed = issues.is_empty();
    let mut parser = Parser::new(source, &tokens, options, Issues::new(source));
    let parsed = if lexed { parser.start() } else { Err(Stop::Syntax) };
    match parsed {
        Ok(parsed) => {
            if parsed.depth > DEEPEST {
                parser.issues.report(Location::NONE, "max recursion depth exceeded");
            }
            if parser.issues.is_empty() {
                let Nodes { offsets, macro_calls, .. } = parser.nodes;
                Ok(Ast { expr: parsed.expr, offsets, macro_calls })
            } else {
                Err(parser.issues)
            }
        }
        Err(Stop::TooDeep) => {
            issues.report(Location::NONE, format!("expression recursion limit exceeded: {DEEPEST}"));
            Err(issues)
        }
        Err(Stop::Syntax) => {
            let mut parser = Parser::new(source, &tokens, options, issues);
            explain::explain(&mut parser, source, &skipped);
            Err(parser.issues)
        }
    }
}

/// Why parsing ended early.
enum Stop {
    Syntax,
    TooDeep,
}

/// A node and how deep operators, selections and calls nest in it.
struct Parsed {
    expr: Expr,
    depth: u32,
}

/// The grammar rules whose nesting is counted.
#[derive(Clone, Copy)]
enum Rule {
    Expr = 0,
    Relation = 1,
    Calc = 2,
}

pub(super) struct Parser<'s> {
    text: &'s str,
    pub(super) tokens: &'s [Token],
    at: usize,
    pub(super) options: &'s Options,
    pub(super) nodes: Nodes<'s>,
    pub(super) issues: Issues,
    rules: [u32; 3],
}

type Result<T, E = Stop> = std::result::Result<T, E>;

impl<'s> Parser<'s> {
    fn new(source: &'s Source, tokens: &'s [Token], options: &'s Options, issues: Issues) -> Self {
        let nodes = Nodes { source, offsets: vec![None], macro_calls: Vec::new() };
        Parser { text: source.text(), tokens, at: 0, options, nodes, issues, rules: [0; 3] }
    }

    fn token(&self) -> Token {
        self.peek(0)
    }

    fn peek(&self, ahead: usize) -> Token {
        let last = Token { kind: Kind::Eof, start: 0, end: 0, offset: 0 };
        self.tokens.get(self.at + ahead).or(self.tokens.last()).copied().unwrap_or(last)
    }

    fn kind(&self) -> Kind {
        self.token().kind
    }

    fn next(&mut self) -> Token {
        let token = self.token();
        self.at += 1;
        token
    }

    fn eat(&mut self, kind: Kind) -> Option<Token> {
        (self.kind() == kind).then(|| self.next())
    }

    fn expect(&mut self, kind: Kind) -> Result<Token> {
        self.eat(kind).ok_or(Stop::Syntax)
    }

    pub(super) fn text(&self, token: Token) -> &'s str {
        token.text(self.text)
    }

    fn enter(&mut self, rule: Rule) -> Result<()> {
        let Some(depth) = self.rules.get_mut(rule as usize) else { return Ok(()) };
        *depth += 1;
        if *depth > DEEPEST { Err(Stop::TooDeep) } else { Ok(()) }
    }

    fn leave(&mut self, rule: Rule) {
        if let Some(depth) = self.rules.get_mut(rule as usize) {
            *depth -= 1;
        }
    }

    /// Reports a problem at a token and stands in a node for what is missing.
    pub(super) fn problem(&mut self, token: Token, message: impl Into<Str>) -> Expr {
        let id = self.nodes.id(Some(token.offset));
        self.issues.report(self.nodes.location(id), message);
        Expr { id, kind: ExprKind::Unspecified }
    }

    fn start(&mut self) -> Result<Parsed> {
        let parsed = self.expr()?;
        self.expect(Kind::Eof)?;
        Ok(parsed)
    }

    fn expr(&mut self) -> Result<Parsed> {
        self.enter(Rule::Expr)?;
        let condition = self.or()?;
        let parsed = if let Some(question) = self.eat(Kind::Question) {
            let id = self.nodes.id(Some(question.offset));
            let truthy = self.or()?;
            self.expect(Kind::Colon)?;
            let falsy = self.expr()?;
            let depth = 1 + condition.depth.max(truthy.depth).max(falsy.depth);
            let args = vec![condition.expr, truthy.expr, falsy.expr];
            Parsed { expr: call(id, operator::CONDITIONAL, args), depth }
        } else {
            condition
        };
        self.leave(Rule::Expr);
        Ok(parsed)
    }

    fn or(&mut self) -> Result<Parsed> {
        self.logic(Kind::Or, operator::OR, Self::and)
    }

    fn and(&mut self) -> Result<Parsed> {
        self.logic(Kind::And, operator::AND, |parser| parser.relation(0))
    }

    /// `a op b op c …` as a balanced tree, so that long chains stay shallow.
    fn logic(
        &mut self,
        kind: Kind,
        function: &'static str,
        operand: impl Fn(&mut Self) -> Result<Parsed>,
    ) -> Result<Parsed> {
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
        balance(function, &mut terms, &ops, 0, high).map(|expr| Parsed { expr, depth }).ok_or(Stop::Syntax)
    }

    fn relation(&mut self, least: u32) -> Result<Parsed> {
        self.enter(Rule::Relation)?;
        let mut left = self.calc(0)?;
        while least < 1
            && let Some(function) = operator::relation(self.kind())
        {
            left = self.binary(left, function, |parser| parser.relation(1))?;
        }
        self.leave(Rule::Relation);
        Ok(left)
    }

    fn calc(&mut self, least: u32) -> Result<Parsed> {
        self.enter(Rule::Calc)?;
        let mut left = self.unary()?;
        while let Some((function, strength)) = operator::calc(self.kind())
            && strength > least
        {
            left = self.binary(left, function, |parser| parser.calc(strength))?;
        }
        self.leave(Rule::Calc);
        Ok(left)
    }

    fn binary(
        &mut self,
        left: Parsed,
        function: &'static str,
        operand: impl Fn(&mut Self) -> Result<Parsed>,
    ) -> Result<Parsed> {
        let op = self.next();
        let id = self.nodes.id(Some(op.offset));
        let right = operand(self)?;
        let depth = 1 + left.depth.max(right.depth);
        Ok(Parsed { expr: call(id, function, vec![left.expr, right.expr]), depth })
    }

    fn unary(&mut self) -> Result<Parsed> {
        let first = self.token();
        let function = match first.kind {
            Kind::Not => operator::NOT,
            // A minus before a number belongs to the number.
            Kind::Minus if !matches!(self.peek(1).kind, Kind::Int | Kind::Float) => operator::NEGATE,
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
        Ok(Parsed { expr: call(id, function, vec![operand.expr]), depth: operand.depth })
    }

    fn member(&mut self) -> Result<Parsed> {
        let mut target = self.primary()?;
        loop {
            target = match self.kind() {
                Kind::Dot => self.select(target)?,
                Kind::LeftBracket => self.index(target)?,
                _ => return Ok(target),
            };
        }
    }

    fn select(&mut self, target: Parsed) -> Result<Parsed> {
        let dot = self.next();
        if self.kind() == Kind::Identifier && self.peek(1).kind == Kind::LeftParen {
            let name = self.next();
            let open = self.next();
            let id = self.nodes.id(Some(open.offset));
            let (args, depth) = self.args()?;
            let depth = 1 + target.depth.max(depth);
            let function = Str::from(self.text(name));
            return Ok(Parsed { expr: self.call_or_macro(id, function, Some(target.expr), args), depth });
        }
        let optional = self.eat(Kind::Question).is_some();
        let (token, field) = self.escaped_identifier()?;
        let depth = 1 + target.depth;
        if optional {
            if !self.options.optional_syntax {
                return Ok(Parsed { expr: self.problem(dot, "unsupported syntax '.?'"), depth });
            }
            let literal = self.nodes.id(Some(token.offset));
            let field = Expr { id: literal, kind: ExprKind::Literal(Literal::String(field)) };
            let id = self.nodes.id(Some(dot.offset));
            return Ok(Parsed { expr: call(id, operator::OPT_SELECT, vec![target.expr, field]), depth });
        }
        let id = self.nodes.id(Some(dot.offset));
        let kind = ExprKind::Select { operand: Box::new(target.expr), field, test_only: false };
        Ok(Parsed { expr: Expr { id, kind }, depth })
    }

    fn escaped_identifier(&mut self) -> Result<(Token, Str)> {
        let token = self.next();
        let text = self.text(token);
        match token.kind {
            Kind::Identifier => Ok((token, text.into())),
            Kind::EscapedIdentifier => Ok((token, text.trim_matches('`').into())),
            _ => Err(Stop::Syntax),
        }
    }

    fn index(&mut self, target: Parsed) -> Result<Parsed> {
        let open = self.next();
        let optional = self.eat(Kind::Question).is_some();
        let id = self.nodes.id(Some(open.offset));
        let index = self.expr()?;
        self.expect(Kind::RightBracket)?;
        let depth = 1 + target.depth.max(index.depth);
        if optional && !self.options.optional_syntax {
            return Ok(Parsed { expr: self.problem(open, "unsupported syntax '[?'"), depth });
        }
        let function = if optional { operator::OPT_INDEX } else { operator::INDEX };
        Ok(Parsed { expr: call(id, function, vec![target.expr, index.expr]), depth })
    }

    /// Arguments after an open parenthesis, and the parenthesis that closes them.
    fn args(&mut self) -> Result<(Vec<Expr>, u32)> {
        let mut args = Vec::new();
        let mut depth = 0;
        if self.eat(Kind::RightParen).is_some() {
            return Ok((args, depth));
        }
        loop {
            let arg = self.expr()?;
            depth = depth.max(arg.depth);
            args.push(arg.expr);
            if self.eat(Kind::Comma).is_none() {
                self.expect(Kind::RightParen)?;
                return Ok((args, depth));
            }
        }
    }

    fn primary(&mut self) -> Result<Parsed> {
        match self.kind() {
            Kind::LeftParen => {
                self.next();
                let inner = self.expr()?;
                self.expect(Kind::RightParen)?;
                Ok(inner)
            }
            Kind::LeftBracket => self.list(),
            Kind::LeftBrace => self.map(),
            Kind::Dot | Kind::Identifier => self.name(),
            _ => self.literal().map(|expr| Parsed { expr, depth: 0 }),
        }
    }

    fn name(&mut self) -> Result<Parsed> {
        if let Some(open) = self.message_ahead() {
            return self.message(open);
        }
        let first = self.token();
        let dot = self.eat(Kind::Dot);
        let token = self.expect(Kind::Identifier)?;
        let word = self.text(token);
        let name: Str = if dot.is_some() { format!(".{word}").into() } else { word.into() };
        let reserved = RESERVED.contains(&word);
        if let Some(open) = self.eat(Kind::LeftParen) {
            if reserved {
                self.args()?;
                let expr = self.problem(first, format!("reserved identifier: {word}"));
                return Ok(Parsed { expr, depth: 0 });
            }
            let id = self.nodes.id(Some(open.offset));
            let (args, depth) = self.args()?;
            return Ok(Parsed { expr: self.call_or_macro(id, name, None, args), depth });
        }
        if reserved {
            let expr = self.problem(first, format!("reserved identifier: {word}"));
            return Ok(Parsed { expr, depth: 0 });
        }
        let id = self.nodes.id(Some(token.offset));
        Ok(Parsed { expr: Expr { id, kind: ExprKind::Ident(name) }, depth: 0 })
    }

    /// Whether the tokens ahead are the name of a message and its open brace; if so, how far ahead the brace is.
    fn message_ahead(&self) -> Option<usize> {
        let mut ahead = usize::from(self.kind() == Kind::Dot);
        if self.peek(ahead).kind != Kind::Identifier {
            return None;
        }
        ahead += 1;
        while self.peek(ahead).kind == Kind::Dot && self.peek(ahead + 1).kind == Kind::Identifier {
            ahead += 2;
        }
        (self.peek(ahead).kind == Kind::LeftBrace).then_some(ahead)
    }

    /// A call, unless a macro of that name and shape replaces it.
    pub(super) fn call_or_macro(
        &mut self,
        id: Id,
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
            Err((place, message)) => {
                let location = self.nodes.location(place);
                let offset = self.nodes.offset(place);
                self.nodes.delete(id);
                let id = self.nodes.id(offset);
                self.issues.report(location, message);
                Expr { id, kind: ExprKind::Unspecified }
            }
        }
    }
}

pub(super) fn call(id: Id, function: &'static str, args: Vec<Expr>) -> Expr {
    Expr { id, kind: ExprKind::Call { function: Str::new_static(function), target: None, args } }
}

/// Terms and the operators between them as a balanced tree.
pub(super) fn balance(
    function: &'static str,
    terms: &mut [Option<Expr>],
    ops: &[Id],
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

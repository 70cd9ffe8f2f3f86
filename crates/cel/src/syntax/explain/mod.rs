//! Reproduces ANTLR's syntax errors.
//!
//! API clients see these messages, and they depend on how ANTLR predicts, reports and recovers. This module walks the
//! grammar's state machine as ANTLR's generated parser does. It runs only for expressions that [`super::parser`]
//! rejected.

mod grammar;
mod predict;
mod recovered;
mod recovery;

use std::ops::Range;
use std::sync::LazyLock;

use grammar::{
    CALC, ESCAPE_IDENT, EXPR, Grammar, LITERAL, MEMBER, PRIMARY, RELATION, RULES, RuleId, START, StateId,
    StateKind, TokenSet, Transition, UNARY,
};
use predict::{NoViable, predict};
use recovered::{RecoveredTree, TreePart};

use super::parser::{MAX_NESTING, Parser};
use super::source::{Issues, Location, Source};
use super::token::{Token, TokenKind};

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(Grammar::new);

/// Reports the syntax errors of a rejected expression, and the semantic errors in its recovered tree. `parser` must
/// be new.
pub(super) fn explain(parser: &mut Parser<'_>, source: &Source, skipped: &[Range<usize>]) {
    let grammar = &*GRAMMAR;
    let mut walk = ErrorWalk {
        grammar,
        source,
        tokens: parser.tokens,
        skipped,
        at: 0,
        issues: &mut parser.issues,
        frames: Vec::new(),
        tree: None,
        depths: [0; RULES],
        recovering: false,
        last_error: None,
        recoveries: 0,
    };
    let ended = walk.run();
    if ended == Err(WalkHalted) {
        // ANTLR reads tokens lazily: it has not seen errors after the current token.
        let offset = walk.token(0).offset;
        walk.issues.forget_after(source.location(offset));
    }
    if walk.issues.is_empty() {
        walk.issues.report(source.location(0), "Syntax error: invalid expression");
    }
    if let (Ok(()), Some(tree)) = (ended, walk.tree) {
        recovered::visit(parser, &tree);
    }
}

/// The walk was aborted: a limit was exceeded.
#[derive(Debug, PartialEq, Eq)]
struct WalkHalted;

/// An error that ends the current grammar rule.
enum RuleFailure {
    NoViable { start: usize, offending: usize },
    Mismatch(TokenSet),
}

/// A grammar rule that is being parsed.
struct RuleFrame {
    rule: RuleId,
    precedence: u32,
    /// State to continue in after the rule.
    follow: Option<StateId>,
    /// Index of the rule's first token.
    first: usize,
    /// The alternative that was chosen, if the rule has several.
    alternative: Option<usize>,
    /// Parts parsed so far.
    parts: Vec<TreePart>,
}

struct ErrorWalk<'w> {
    grammar: &'w Grammar,
    source: &'w Source,
    tokens: &'w [Token],
    /// Byte ranges that are not tokens.
    skipped: &'w [Range<usize>],
    at: usize,
    issues: &'w mut Issues,
    frames: Vec<RuleFrame>,
    /// The parse tree, once the start rule has ended.
    tree: Option<RecoveredTree>,
    depths: [u32; RULES],
    /// An error was reported and no token has matched since.
    recovering: bool,
    /// Token index and states of the last recovery, to detect a recovery without progress.
    last_error: Option<(usize, Vec<StateId>)>,
    recoveries: usize,
}

impl ErrorWalk<'_> {
    fn token(&self, ahead: usize) -> Token {
        let end = Token { kind: TokenKind::Eof, start: 0, end: 0, offset: 0 };
        self.tokens.get(self.at + ahead).or(self.tokens.last()).copied().unwrap_or(end)
    }

    fn kind(&self) -> TokenKind {
        self.token(0).kind
    }

    /// Appends a part to the current rule.
    fn read(&mut self, part: TreePart) {
        if let Some(frame) = self.frames.last_mut() {
            frame.parts.push(part);
        }
    }

    /// Records the chosen alternative. In left-recursive rules, each further operator is recorded as a link.
    fn choose(&mut self, sort: StateKind, alternative: usize) {
        let Some(frame) = self.frames.last_mut() else { return };
        match (frame.rule, sort) {
            (UNARY | PRIMARY | ESCAPE_IDENT | LITERAL, StateKind::Block { optional: false, .. }) => {
                frame.alternative = Some(alternative);
            }
            (CALC | MEMBER, StateKind::Block { optional: false, .. }) => {
                frame.parts.push(TreePart::Link(alternative));
            }
            (RELATION, StateKind::LoopEntry { .. }) if alternative == 0 => {
                frame.parts.push(TreePart::Link(0));
            }
            _ => {}
        }
    }

    fn consume(&mut self) {
        if self.kind() != TokenKind::Eof {
            self.at += 1;
        }
    }

    fn enter(
        &mut self,
        rule: RuleId,
        precedence: u32,
        follow: Option<StateId>,
    ) -> Result<StateId, WalkHalted> {
        self.frames.push(RuleFrame {
            rule,
            precedence,
            follow,
            first: self.at,
            alternative: None,
            parts: Vec::new(),
        });
        if let Some(depth) = self.depths.get_mut(rule) {
            *depth += 1;
            if *depth > MAX_NESTING && matches!(rule, EXPR | RELATION | CALC) {
                let message = format!("expression recursion limit exceeded: {MAX_NESTING}");
                self.issues.report(Location::NONE, message);
                return Err(WalkHalted);
            }
        }
        self.grammar.starts.get(rule).copied().ok_or(WalkHalted)
    }

    /// Ends the current rule; returns the state to continue in.
    fn leave(&mut self) -> Option<StateId> {
        let frame = self.frames.pop()?;
        if let Some(depth) = self.depths.get_mut(frame.rule) {
            *depth -= 1;
        }
        let first = self.tokens.get(frame.first).or(self.tokens.last()).copied();
        let first = first.unwrap_or(Token { kind: TokenKind::Eof, start: 0, end: 0, offset: 0 });
        let RuleFrame { rule, alternative, parts, .. } = frame;
        let tree = RecoveredTree { rule, first, alternative, parts }.simplified();
        match self.frames.last_mut() {
            Some(outer) => outer.parts.push(TreePart::Rule(rule, tree)),
            None => self.tree = Some(tree),
        }
        frame.follow
    }

    fn run(&mut self) -> Result<(), WalkHalted> {
        let mut state = self.enter(START, 0, None)?;
        // True if the state is a loop entry reached from the loop's end, which has synchronized already.
        let mut synced = false;
        loop {
            match self.visit(state, synced)? {
                NextStep::Next(next) => {
                    synced = self.grammar.sort(state) == StateKind::LoopBack;
                    state = next;
                }
                NextStep::Enter(rule, precedence, follow) => {
                    synced = false;
                    state = self.enter(rule, precedence, Some(follow))?;
                }
                NextStep::Leave => {
                    synced = false;
                    match self.leave() {
                        Some(next) => state = next,
                        None => return Ok(()),
                    }
                }
                NextStep::Fail(failure) => {
                    synced = false;
                    self.report(&failure);
                    self.recover(state)?;
                    match self.leave() {
                        Some(next) => state = next,
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    fn visit(&mut self, state: StateId, synced: bool) -> Result<NextStep, WalkHalted> {
        let sort = self.grammar.sort(state);
        match sort {
            StateKind::Stop => return Ok(NextStep::Leave),
            StateKind::Basic => {}
            StateKind::LoopEntry { .. } if synced => {}
            _ => {
                if let Some(failure) = self.sync(state, sort) {
                    return Ok(NextStep::Fail(failure));
                }
            }
        }
        let steps = self.grammar.get(state);
        let (StateKind::Block { one_token, .. }
        | StateKind::LoopEntry { one_token }
        | StateKind::PlusBack { one_token }) = sort
        else {
            return self.follow(state);
        };
        if !one_token {
            let precedence = self.frames.last().map_or(0, |frame| frame.precedence);
            let ahead = self.tokens.get(self.at..).unwrap_or_default();
            return Ok(match predict(self.grammar, state, precedence, ahead) {
                Ok(alternative) => {
                    self.choose(sort, alternative);
                    match steps.get(alternative) {
                        Some(Transition::Epsilon(next)) => NextStep::Next(*next),
                        _ => NextStep::Leave,
                    }
                }
                Err(NoViable(ahead)) => {
                    NextStep::Fail(RuleFailure::NoViable { start: self.at, offending: self.at + ahead })
                }
            });
        }
        let kind = self.kind();
        let mut last = None;
        for (alternative, step) in steps.iter().enumerate() {
            if let Transition::Epsilon(next) = step {
                if self.grammar.look(*next).0.contains(kind) {
                    self.choose(sort, alternative);
                    return Ok(NextStep::Next(*next));
                }
                last = Some(*next);
            }
        }
        // Take the empty alternative if there is one; otherwise no alternative is viable.
        Ok(match (sort, last) {
            (StateKind::Block { optional: false, .. }, _) | (_, None) => {
                NextStep::Fail(RuleFailure::NoViable { start: self.at, offending: self.at })
            }
            (_, Some(next)) => NextStep::Next(next),
        })
    }

    /// Follows the single transition of a state without alternatives.
    fn follow(&mut self, state: StateId) -> Result<NextStep, WalkHalted> {
        Ok(match self.grammar.get(state).first() {
            None => NextStep::Leave,
            Some(Transition::Epsilon(next) | Transition::Precedence(_, next)) => NextStep::Next(*next),
            Some(Transition::Rule(rule, precedence, follow)) => NextStep::Enter(*rule, *precedence, *follow),
            Some(Transition::Token(set, next)) => {
                if set.contains(self.kind()) {
                    self.recovering = false;
                    self.read(TreePart::Token(self.token(0), true));
                    self.consume();
                    return Ok(NextStep::Next(*next));
                }
                self.attempt()?;
                if self.delete_token(state) {
                    self.read(TreePart::Token(self.token(0), true));
                    self.consume();
                    return Ok(NextStep::Next(*next));
                }
                if self.insert_token(state, *next) {
                    let missing = self.missing(*set);
                    self.read(TreePart::Token(missing, false));
                    return Ok(NextStep::Next(*next));
                }
                NextStep::Fail(RuleFailure::Mismatch(self.expected(state)))
            }
        })
    }
}

/// Result of visiting a state.
enum NextStep {
    Next(StateId),
    Enter(RuleId, u32, StateId),
    Leave,
    Fail(RuleFailure),
}

//! Syntax errors in ANTLR's words.
//!
//! API clients see these messages, and they depend on how ANTLR predicts, reports and recovers. This module walks the
//! grammar's states as its generated parser would; it runs only for expressions the real parser refused.

mod grammar;
mod predict;
mod recovered;

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

/// How often recovery is attempted.
const MAX_RECOVERIES: usize = 30;
/// How many tokens one recovery may skip.
const MAX_SKIPPED: usize = 256;

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(Grammar::new);

/// Reports the syntax errors of an expression that the parser refused, and what is wrong in the rest of it. The parser is
/// a fresh one.
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
        // ANTLR reads tokens as it needs them: it has not seen what is wrong after the one at hand.
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

/// The walk is over before its end.
#[derive(Debug, PartialEq, Eq)]
struct WalkHalted;

/// An error of the kind that leaves the rule.
enum RuleFailure {
    NoViable { start: usize, offending: usize },
    Mismatch(TokenSet),
}

/// A rule that was entered.
struct RuleFrame {
    rule: RuleId,
    precedence: u32,
    /// The state after the rule, where it was used.
    follow: Option<StateId>,
    /// The first token of the rule.
    first: usize,
    /// The alternative that was chosen, where the rule has several.
    alternative: Option<usize>,
    /// What was read of the rule.
    parts: Vec<TreePart>,
}

struct ErrorWalk<'w> {
    grammar: &'w Grammar,
    source: &'w Source,
    tokens: &'w [Token],
    /// The byte ranges that are no tokens.
    skipped: &'w [Range<usize>],
    at: usize,
    issues: &'w mut Issues,
    frames: Vec<RuleFrame>,
    /// What was read, once the first rule has been left.
    tree: Option<RecoveredTree>,
    depths: [u32; RULES],
    /// Whether an error was reported and no token has matched since.
    recovering: bool,
    /// Where the last recovery was, and in which states.
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

    /// Adds to what was read of the rule.
    fn read(&mut self, part: TreePart) {
        if let Some(frame) = self.frames.last_mut() {
            frame.parts.push(part);
        }
    }

    /// Notes which alternative of a rule was chosen. What goes on after something that was read is one more link of it.
    fn choose(&mut self, sort: StateKind, alternative: usize) {
        let Some(frame) = self.frames.last_mut() else { return };
        match (frame.rule, sort) {
            (UNARY | PRIMARY | ESCAPE_IDENT | LITERAL, StateKind::Block { optional: false, .. }) => {
                frame.alternative = Some(alternative);
            }
            (CALC | MEMBER, StateKind::Block { optional: false, .. }) => {
                frame.parts.push(TreePart::Link(alternative))
            }
            (RELATION, StateKind::LoopEntry { .. }) if alternative == 0 => {
                frame.parts.push(TreePart::Link(0))
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

    /// Leaves a rule; gives the state to go on in.
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
        // Whether the state is a loop's entry that was reached from its end, where it was synchronised already.
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
        // Where there is a way around, it is taken; where there is none, no alternative fits.
        Ok(match (sort, last) {
            (StateKind::Block { optional: false, .. }, _) | (_, None) => {
                NextStep::Fail(RuleFailure::NoViable { start: self.at, offending: self.at })
            }
            (_, Some(next)) => NextStep::Next(next),
        })
    }

    /// Takes the one step of a state that decides nothing.
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

    /// The token that is pretended to be there: it has no text, and the place of the token at hand or, at the end, of the
    /// last.
    fn missing(&self, set: TokenSet) -> Token {
        let here = match self.at.checked_sub(1).and_then(|before| self.tokens.get(before)) {
            Some(before) if self.kind() == TokenKind::Eof => *before,
            _ => self.token(0),
        };
        Token { kind: set.first().unwrap_or(TokenKind::Eof), end: here.start, ..here }
    }

    /// The tokens that may come next, looking out of the rule where it may end.
    fn expected(&self, state: StateId) -> TokenSet {
        let (mut set, mut ends) = self.grammar.look(state);
        for frame in self.frames.iter().rev() {
            if !ends {
                return set;
            }
            let Some(follow) = frame.follow else { break };
            let (more, next) = self.grammar.look(follow);
            set = set.union(more);
            ends = next;
        }
        if ends { set.union(TokenSet::of(&[TokenKind::Eof])) } else { set }
    }

    fn syntax_error(&mut self, at: usize, message: &str) {
        let last = self.tokens.last().map_or(0, |token| token.offset);
        let offset = self.tokens.get(at).map_or(last, |token| token.offset);
        let location = match self.source.length() {
            // An empty expression has a line but no column.
            0 => Location { line: 1, column: -1 },
            _ => self.source.location(offset),
        };
        self.issues.report(location, format!("Syntax error: {message}"));
    }

    fn display(&self, at: usize) -> String {
        let token = self.tokens.get(at).or(self.tokens.last());
        match token {
            Some(token) if token.kind != TokenKind::Eof => quoted(token.text(self.source.text())),
            _ => "'<EOF>'".to_owned(),
        }
    }

    /// Notices, before a decision, a token that nothing there can start with.
    fn sync(&mut self, state: StateId, sort: StateKind) -> Option<RuleFailure> {
        if self.recovering {
            return None;
        }
        let (set, ends) = self.grammar.look(state);
        if ends || set.contains(self.kind()) {
            return None;
        }
        match sort {
            StateKind::Block { .. } | StateKind::LoopEntry { .. } | StateKind::PlusStart => {
                if self.delete_token(state) {
                    return None;
                }
                Some(RuleFailure::Mismatch(self.expected(state)))
            }
            _ => {
                self.unwanted(state);
                let wanted = self.expected(state).union(self.recovery_set());
                while self.kind() != TokenKind::Eof && !wanted.contains(self.kind()) {
                    self.consume();
                }
                None
            }
        }
    }

    fn unwanted(&mut self, state: StateId) {
        if self.recovering {
            return;
        }
        self.recovering = true;
        let message = format!(
            "extraneous input {} expecting {}",
            self.display(self.at),
            self.expected(state).display()
        );
        self.syntax_error(self.at, &message);
    }

    /// Leaves a token out, if the one after it fits.
    fn delete_token(&mut self, state: StateId) -> bool {
        if !self.expected(state).contains(self.token(1).kind) {
            return false;
        }
        self.unwanted(state);
        self.consume();
        self.recovering = false;
        true
    }

    /// Pretends that a missing token was there, if the one at hand fits after it.
    fn insert_token(&mut self, state: StateId, next: StateId) -> bool {
        if !self.expected(next).contains(self.kind()) {
            return false;
        }
        if !self.recovering {
            self.recovering = true;
            let message = format!("missing {} at {}", self.expected(state).display(), self.display(self.at));
            self.syntax_error(self.at, &message);
        }
        true
    }

    fn report(&mut self, failure: &RuleFailure) {
        if self.recovering {
            return;
        }
        self.recovering = true;
        match failure {
            RuleFailure::Mismatch(expected) => {
                let message =
                    format!("mismatched input {} expecting {}", self.display(self.at), expected.display());
                self.syntax_error(self.at, &message);
            }
            RuleFailure::NoViable { start, offending } => {
                let (start, offending) = (*start, *offending);
                let text = self.text_between(start, offending);
                let reserved = ["true", "false", "null"]
                    .into_iter()
                    .find(|word| text.strip_suffix(word).is_some_and(|before| before.chars().count() == 1));
                let message = match reserved {
                    Some(word) => format!("mismatched input '{word}' expecting IDENTIFIER"),
                    None => format!("no viable alternative at input {}", quoted(&text)),
                };
                self.syntax_error(offending, &message);
            }
        }
    }

    /// The text from one token to another, with what is between them.
    fn text_between(&self, start: usize, end: usize) -> String {
        let Some(first) = self.tokens.get(start).filter(|token| token.kind != TokenKind::Eof) else {
            return "<EOF>".to_owned();
        };
        let end = self.tokens.get(end).or(self.tokens.last()).map_or(first.end, |token| token.end);
        let mut text = String::new();
        let mut from = first.start;
        for gap in self.skipped.iter().filter(|gap| gap.start >= first.start && gap.end <= end) {
            text.push_str(self.source.text().get(from..gap.start).unwrap_or_default());
            from = gap.end;
        }
        text.push_str(self.source.text().get(from..end).unwrap_or_default());
        text
    }

    fn attempt(&mut self) -> Result<(), WalkHalted> {
        if self.recoveries == MAX_RECOVERIES {
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.at, &message);
            return Err(WalkHalted);
        }
        self.recoveries += 1;
        Ok(())
    }

    /// The tokens that may follow any of the rules that were entered.
    fn recovery_set(&self) -> TokenSet {
        self.frames
            .iter()
            .filter_map(|frame| frame.follow)
            .fold(TokenSet::default(), |set, follow| set.union(self.grammar.look(follow).0))
    }

    /// Skips tokens until one may follow a rule that was entered.
    fn recover(&mut self, state: StateId) -> Result<(), WalkHalted> {
        self.attempt()?;
        let mut skipped = 0;
        if let Some((at, states)) = &self.last_error
            && *at == self.at
            && states.contains(&state)
        {
            self.consume();
            skipped += 1;
        }
        match &mut self.last_error {
            Some((at, states)) => {
                *at = self.at;
                states.push(state);
            }
            None => self.last_error = Some((self.at, vec![state])),
        }
        let wanted = self.recovery_set();
        while self.kind() != TokenKind::Eof && !wanted.contains(self.kind()) {
            if skipped >= MAX_SKIPPED {
                let message = format!("error recovery token lookahead limit exceeded: {MAX_SKIPPED}");
                self.issues.report(Location::NONE, message);
                return Err(WalkHalted);
            }
            skipped += 1;
            self.consume();
        }
        Ok(())
    }
}

/// Where a visit to a state leads.
enum NextStep {
    Next(StateId),
    Enter(RuleId, u32, StateId),
    Leave,
    Fail(RuleFailure),
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}

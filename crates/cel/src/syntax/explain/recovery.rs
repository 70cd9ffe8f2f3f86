//! Reports syntax errors as ANTLR does, and recovers from them: skips or inserts a token, or ends the rule.

use super::grammar::{StateId, StateKind, TokenSet};
use super::{ErrorWalk, RuleFailure, WalkHalted};
use crate::syntax::source::Location;
use crate::syntax::token::{Token, TokenKind};

/// Upper bound of recovery attempts, as configured in cel-go.
const MAX_RECOVERIES: usize = 30;
/// Upper bound of tokens skipped in one recovery, as configured in cel-go.
const MAX_SKIPPED: usize = 256;

impl ErrorWalk<'_> {
    /// The token that recovery inserts: it has no text, and the position of the current token or, at the end, of the
    /// last one.
    pub(super) fn missing(&self, set: TokenSet) -> Token {
        let here = match self.at.checked_sub(1).and_then(|before| self.tokens.get(before)) {
            Some(before) if self.kind() == TokenKind::Eof => *before,
            _ => self.token(0),
        };
        Token { kind: set.first().unwrap_or(TokenKind::Eof), end: here.start, ..here }
    }

    /// Tokens that may come next, including those after the rule if it may end here.
    pub(super) fn expected(&self, state: StateId) -> TokenSet {
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

    /// ANTLR's `sync`: before a decision, detects a token that no alternative can begin with.
    pub(super) fn sync(&mut self, state: StateId, sort: StateKind) -> Option<RuleFailure> {
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

    /// Single-token deletion: skips the current token if the next one is expected.
    pub(super) fn delete_token(&mut self, state: StateId) -> bool {
        if !self.expected(state).contains(self.token(1).kind) {
            return false;
        }
        self.unwanted(state);
        self.consume();
        self.recovering = false;
        true
    }

    /// Single-token insertion: continues as if the missing token was there, if the current token is expected after
    /// it.
    pub(super) fn insert_token(&mut self, state: StateId, next: StateId) -> bool {
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

    pub(super) fn report(&mut self, failure: &RuleFailure) {
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

    /// Source text from one token to another, inclusive.
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

    pub(super) fn attempt(&mut self) -> Result<(), WalkHalted> {
        if self.recoveries == MAX_RECOVERIES {
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.at, &message);
            return Err(WalkHalted);
        }
        self.recoveries += 1;
        Ok(())
    }

    /// Tokens that may follow any of the rules being parsed.
    fn recovery_set(&self) -> TokenSet {
        self.frames
            .iter()
            .filter_map(|frame| frame.follow)
            .fold(TokenSet::default(), |set, follow| set.union(self.grammar.look(follow).0))
    }

    /// Skips tokens until one may follow a rule being parsed.
    pub(super) fn recover(&mut self, state: StateId) -> Result<(), WalkHalted> {
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

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"))
}

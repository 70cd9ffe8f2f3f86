//! CEL's grammar as ANTLR's state machine (ATN), because error messages depend on its states.

use crate::syntax::token::TokenKind;

/// A set of token kinds, as a bit set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TokenSet(u64);

impl TokenSet {
    pub(super) fn of(kinds: &[TokenKind]) -> TokenSet {
        kinds.iter().fold(TokenSet(0), |set, kind| TokenSet(set.0 | (1 << (*kind as u8))))
    }

    pub(super) fn contains(self, kind: TokenKind) -> bool {
        self.0 & (1 << (kind as u8)) != 0
    }

    pub(super) fn union(self, other: TokenSet) -> TokenSet {
        TokenSet(self.0 | other.0)
    }

    /// The first kind in the grammar's order.
    pub(super) fn first(self) -> Option<TokenKind> {
        TokenKind::ALL.iter().copied().find(|kind| self.contains(*kind))
    }

    /// Formats the set as ANTLR does: one kind by its name, several in braces.
    pub(super) fn display(self) -> String {
        let names: Vec<&str> =
            TokenKind::ALL.iter().filter(|kind| self.contains(**kind)).map(|kind| kind.display()).collect();
        match names.as_slice() {
            [] => "{}".to_owned(),
            [one] => (*one).to_owned(),
            many => format!("{{{}}}", many.join(", ")),
        }
    }
}

use TokenKind::{
    And, Bytes, Colon, Comma, Dot, Eof, Equals, EscapedIdentifier, False, Float, Greater, GreaterEquals,
    Identifier, In, Int, LeftBrace, LeftBracket, LeftParen, Less, LessEquals, Minus, Not, NotEquals, Null,
    Or, Percent, Plus, Question, RightBrace, RightBracket, RightParen, Slash, Star, String as StringToken,
    True, Uint,
};

pub(super) type StateId = usize;
pub(super) type RuleId = usize;

/// A transition between states.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transition {
    Epsilon(StateId),
    /// Possible if the rule was entered with at most this precedence.
    Precedence(u32, StateId),
    Token(TokenSet, StateId),
    /// Enters a rule with a precedence; continues in the given state after it.
    Rule(RuleId, u32, StateId),
}

/// The role of a state in prediction and recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Basic,
    /// Start of alternatives. `one_token`: one token of lookahead decides; `optional`: there is an empty alternative.
    Block {
        one_token: bool,
        optional: bool,
    },
    /// Entry of a loop that may run zero times.
    LoopEntry {
        one_token: bool,
    },
    LoopBack,
    /// Entry of a loop that runs at least once.
    PlusStart,
    PlusBack {
        one_token: bool,
    },
    Stop,
}

#[derive(Clone, Debug)]
pub(super) struct GrammarState {
    pub(super) sort: StateKind,
    pub(super) rule: RuleId,
    pub(super) steps: Vec<Transition>,
}

/// The state machine of the whole grammar.
#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) states: Vec<GrammarState>,
    pub(super) starts: Vec<StateId>,
    /// For each rule, the states after every use of it.
    pub(super) follows: Vec<Vec<StateId>>,
    /// Precomputed results of [`Grammar::look`] by state.
    looks: Vec<(TokenSet, bool)>,
}

/// A construct of the grammar's notation.
enum GrammarPiece {
    Token(&'static [TokenKind]),
    Rule(RuleId, u32),
    Precedence(u32),
    Seq(Vec<GrammarPiece>),
    Alt { alternatives: Vec<GrammarPiece>, one_token: bool },
    Opt(Box<GrammarPiece>),
    Star { body: Box<GrammarPiece>, one_token: bool },
    Plus { body: Box<GrammarPiece>, one_token: bool },
}

pub(super) const START: RuleId = 0;
pub(super) const EXPR: RuleId = 1;
pub(super) const OR: RuleId = 2;
pub(super) const AND: RuleId = 3;
pub(super) const RELATION: RuleId = 4;
pub(super) const CALC: RuleId = 5;
pub(super) const UNARY: RuleId = 6;
pub(super) const MEMBER: RuleId = 7;
pub(super) const PRIMARY: RuleId = 8;
pub(super) const EXPR_LIST: RuleId = 9;
pub(super) const LIST_INIT: RuleId = 10;
pub(super) const FIELD_INIT: RuleId = 11;
pub(super) const OPT_FIELD: RuleId = 12;
pub(super) const MAP_INIT: RuleId = 13;
pub(super) const ESCAPE_IDENT: RuleId = 14;
pub(super) const OPT_EXPR: RuleId = 15;
pub(super) const LITERAL: RuleId = 16;
pub(super) const RULES: usize = 17;

fn token(kinds: &'static [TokenKind]) -> GrammarPiece {
    GrammarPiece::Token(kinds)
}

fn rule(id: RuleId) -> GrammarPiece {
    GrammarPiece::Rule(id, 0)
}

fn opt(body: GrammarPiece) -> GrammarPiece {
    GrammarPiece::Opt(Box::new(body))
}

fn star(body: GrammarPiece, one_token: bool) -> GrammarPiece {
    GrammarPiece::Star { body: Box::new(body), one_token }
}

fn plus(body: GrammarPiece, one_token: bool) -> GrammarPiece {
    GrammarPiece::Plus { body: Box::new(body), one_token }
}

fn alt(alternatives: Vec<GrammarPiece>) -> GrammarPiece {
    GrammarPiece::Alt { alternatives, one_token: false }
}

fn leading_dot() -> GrammarPiece {
    opt(token(&[Dot]))
}

fn question() -> GrammarPiece {
    opt(token(&[Question]))
}

fn comma() -> GrammarPiece {
    opt(token(&[Comma]))
}

macro_rules! seq {
    ($($piece:expr),* $(,)?) => { GrammarPiece::Seq(vec![$($piece),*]) };
}

/// The grammar rules, indexed by rule id.
fn rules() -> Vec<GrammarPiece> {
    vec![
        seq![rule(EXPR), token(&[Eof])],
        seq![rule(OR), opt(seq![token(&[Question]), rule(OR), token(&[Colon]), rule(EXPR)])],
        seq![rule(AND), star(seq![token(&[Or]), rule(AND)], true)],
        seq![rule(RELATION), star(seq![token(&[And]), rule(RELATION)], true)],
        relation(),
        calc(),
        alt(vec![
            rule(MEMBER),
            seq![plus(token(&[Not]), true), rule(MEMBER)],
            seq![plus(token(&[Minus]), false), rule(MEMBER)],
        ]),
        member(),
        primary(),
        seq![rule(EXPR), star(seq![token(&[Comma]), rule(EXPR)], true)],
        seq![rule(OPT_EXPR), star(seq![token(&[Comma]), rule(OPT_EXPR)], false)],
        seq![
            rule(OPT_FIELD),
            token(&[Colon]),
            rule(EXPR),
            star(seq![token(&[Comma]), rule(OPT_FIELD), token(&[Colon]), rule(EXPR)], false)
        ],
        seq![question(), rule(ESCAPE_IDENT)],
        seq![
            rule(OPT_EXPR),
            token(&[Colon]),
            rule(EXPR),
            star(seq![token(&[Comma]), rule(OPT_EXPR), token(&[Colon]), rule(EXPR)], false)
        ],
        GrammarPiece::Alt {
            alternatives: vec![token(&[Identifier]), token(&[EscapedIdentifier])],
            one_token: true,
        },
        seq![question(), rule(EXPR)],
        alt(vec![
            seq![opt(token(&[Minus])), token(&[Int])],
            token(&[Uint]),
            seq![opt(token(&[Minus])), token(&[Float])],
            token(&[StringToken]),
            token(&[Bytes]),
            token(&[True]),
            token(&[False]),
            token(&[Null]),
        ]),
    ]
}

fn relation() -> GrammarPiece {
    seq![
        rule(CALC),
        star(
            seq![
                GrammarPiece::Precedence(1),
                token(&[Equals, NotEquals, In, Less, LessEquals, GreaterEquals, Greater]),
                GrammarPiece::Rule(RELATION, 2)
            ],
            false
        ),
    ]
}

fn calc() -> GrammarPiece {
    seq![
        rule(UNARY),
        star(
            alt(vec![
                seq![
                    GrammarPiece::Precedence(2),
                    token(&[Star, Slash, Percent]),
                    GrammarPiece::Rule(CALC, 3)
                ],
                seq![GrammarPiece::Precedence(1), token(&[Plus, Minus]), GrammarPiece::Rule(CALC, 2)],
            ]),
            false
        ),
    ]
}

fn member() -> GrammarPiece {
    seq![
        rule(PRIMARY),
        star(
            alt(vec![
                seq![GrammarPiece::Precedence(3), token(&[Dot]), question(), rule(ESCAPE_IDENT)],
                seq![
                    GrammarPiece::Precedence(2),
                    token(&[Dot]),
                    token(&[Identifier]),
                    token(&[LeftParen]),
                    opt(rule(EXPR_LIST)),
                    token(&[RightParen])
                ],
                seq![
                    GrammarPiece::Precedence(1),
                    token(&[LeftBracket]),
                    question(),
                    rule(EXPR),
                    token(&[RightBracket])
                ],
            ]),
            false
        ),
    ]
}

fn primary() -> GrammarPiece {
    alt(vec![
        seq![leading_dot(), token(&[Identifier])],
        seq![
            leading_dot(),
            token(&[Identifier]),
            token(&[LeftParen]),
            opt(rule(EXPR_LIST)),
            token(&[RightParen])
        ],
        seq![token(&[LeftParen]), rule(EXPR), token(&[RightParen])],
        seq![token(&[LeftBracket]), opt(rule(LIST_INIT)), comma(), token(&[RightBracket])],
        seq![token(&[LeftBrace]), opt(rule(MAP_INIT)), comma(), token(&[RightBrace])],
        seq![
            leading_dot(),
            token(&[Identifier]),
            star(seq![token(&[Dot]), token(&[Identifier])], true),
            token(&[LeftBrace]),
            opt(rule(FIELD_INIT)),
            comma(),
            token(&[RightBrace])
        ],
        rule(LITERAL),
    ])
}

impl Grammar {
    pub(super) fn new() -> Grammar {
        let mut grammar = Grammar {
            states: Vec::new(),
            starts: Vec::new(),
            follows: vec![Vec::new(); RULES],
            looks: Vec::new(),
        };
        for (id, piece) in rules().into_iter().enumerate() {
            let stop = grammar.state(id, StateKind::Stop);
            let start = grammar.piece(id, &piece, stop);
            grammar.starts.push(start);
        }
        for state in &grammar.states {
            for step in &state.steps {
                if let Transition::Rule(rule, _, follow) = step
                    && let Some(follows) = grammar.follows.get_mut(*rule)
                {
                    follows.push(*follow);
                }
            }
        }
        grammar.looks = (0..grammar.states.len()).map(|state| grammar.find_look(state)).collect();
        grammar
    }

    fn state(&mut self, rule: RuleId, sort: StateKind) -> StateId {
        self.states.push(GrammarState { sort, rule, steps: Vec::new() });
        self.states.len() - 1
    }

    fn step(&mut self, from: StateId, step: Transition) {
        if let Some(state) = self.states.get_mut(from) {
            state.steps.push(step);
        }
    }

    /// Builds the states of a construct that continues in `next`; returns its first state.
    fn piece(&mut self, rule: RuleId, piece: &GrammarPiece, next: StateId) -> StateId {
        match piece {
            GrammarPiece::Token(kinds) => {
                let state = self.state(rule, StateKind::Basic);
                self.step(state, Transition::Token(TokenSet::of(kinds), next));
                state
            }
            GrammarPiece::Rule(target, precedence) => {
                let state = self.state(rule, StateKind::Basic);
                self.step(state, Transition::Rule(*target, *precedence, next));
                state
            }
            GrammarPiece::Precedence(precedence) => {
                let state = self.state(rule, StateKind::Basic);
                self.step(state, Transition::Precedence(*precedence, next));
                state
            }
            GrammarPiece::Seq(pieces) => {
                pieces.iter().rev().fold(next, |next, piece| self.piece(rule, piece, next))
            }
            GrammarPiece::Alt { alternatives, one_token } => {
                let block = self.state(rule, StateKind::Block { one_token: *one_token, optional: false });
                for alternative in alternatives {
                    let start = self.piece(rule, alternative, next);
                    self.step(block, Transition::Epsilon(start));
                }
                block
            }
            GrammarPiece::Opt(body) => {
                let block = self.state(rule, StateKind::Block { one_token: true, optional: true });
                let start = self.piece(rule, body, next);
                self.step(block, Transition::Epsilon(start));
                self.step(block, Transition::Epsilon(next));
                block
            }
            GrammarPiece::Star { body, one_token } => {
                let entry = self.state(rule, StateKind::LoopEntry { one_token: *one_token });
                let back = self.state(rule, StateKind::LoopBack);
                self.step(back, Transition::Epsilon(entry));
                let start = self.piece(rule, body, back);
                self.step(entry, Transition::Epsilon(start));
                self.step(entry, Transition::Epsilon(next));
                entry
            }
            GrammarPiece::Plus { body, one_token } => {
                let first = self.state(rule, StateKind::PlusStart);
                let back = self.state(rule, StateKind::PlusBack { one_token: *one_token });
                let start = self.piece(rule, body, back);
                self.step(first, Transition::Epsilon(start));
                self.step(back, Transition::Epsilon(first));
                self.step(back, Transition::Epsilon(next));
                first
            }
        }
    }

    pub(super) fn get(&self, state: StateId) -> &[Transition] {
        self.states.get(state).map_or(&[], |state| &state.steps)
    }

    pub(super) fn sort(&self, state: StateId) -> StateKind {
        self.states.get(state).map_or(StateKind::Stop, |state| state.sort)
    }

    /// Tokens that may come next inside the rule, and whether the rule may end here. No rule matches the empty text,
    /// so the first tokens of nested rules suffice.
    pub(super) fn look(&self, state: StateId) -> (TokenSet, bool) {
        self.looks.get(state).copied().unwrap_or_default()
    }

    fn find_look(&self, state: StateId) -> (TokenSet, bool) {
        let mut seen = vec![false; self.states.len()];
        let mut found = (TokenSet::default(), false);
        self.look_into(state, true, &mut seen, &mut found);
        found
    }

    fn look_into(&self, state: StateId, inside: bool, seen: &mut [bool], found: &mut (TokenSet, bool)) {
        match seen.get_mut(state) {
            Some(seen) if !*seen => *seen = true,
            _ => return,
        }
        if self.sort(state) == StateKind::Stop {
            found.1 |= inside;
            return;
        }
        for step in self.get(state) {
            match step {
                Transition::Epsilon(next) | Transition::Precedence(_, next) => {
                    self.look_into(*next, inside, seen, found);
                }
                Transition::Token(set, _) => found.0 = found.0.union(*set),
                Transition::Rule(rule, ..) => {
                    if let Some(start) = self.starts.get(*rule) {
                        self.look_into(*start, false, seen, found);
                    }
                }
            }
        }
    }
}

//! Chooses between alternatives by looking ahead, as ANTLR's adaptive prediction does.

use super::grammar::{Grammar, StateId, StateKind, Transition};
use crate::syntax::token::{Token, TokenKind};

/// No alternative is viable; holds the number of tokens read before this was known.
pub(super) struct NoViable(pub(super) usize);

/// An ATN configuration: a state that an alternative may have reached.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AtnConfiguration {
    alternative: usize,
    state: StateId,
    /// States to return to from the rules entered since the decision.
    returns: Vec<StateId>,
    /// True after the rule of the decision has ended: from then on, every use of the rule is a possible continuation.
    outside: bool,
}

/// Upper bound of lookahead, after which the first viable alternative is taken.
const MAX_LOOKAHEAD: usize = 2000;

/// Predicts the alternative (from 0) of a decision state.
pub(super) fn predict(
    grammar: &Grammar,
    decision: StateId,
    precedence: u32,
    tokens: &[Token],
) -> Result<usize, NoViable> {
    if let Some(alternative) = decided_by_first_token(grammar, decision, tokens) {
        return Ok(alternative);
    }
    let mut configurations = Vec::new();
    for (alternative, step) in grammar.get(decision).iter().enumerate() {
        if let Transition::Epsilon(state) = step {
            let configuration =
                AtnConfiguration { alternative, state: *state, returns: Vec::new(), outside: false };
            closure(grammar, configuration, Some(precedence), &mut configurations);
        }
    }
    let mut ahead = 0;
    loop {
        let kind = tokens.get(ahead).map_or(TokenKind::Eof, |token| token.kind);
        let mut next = Vec::new();
        for configuration in &configurations {
            for step in grammar.get(configuration.state) {
                if let Transition::Token(set, target) = step
                    && set.contains(kind)
                {
                    closure(
                        grammar,
                        AtnConfiguration { state: *target, ..configuration.clone() },
                        None,
                        &mut next,
                    );
                }
            }
        }
        let possible = |configurations: &[AtnConfiguration]| {
            let mut alternatives: Vec<usize> =
                configurations.iter().map(|configuration| configuration.alternative).collect();
            alternatives.sort_unstable();
            alternatives.dedup();
            alternatives
        };
        match possible(&next).as_slice() {
            [] => {
                let finished = configurations
                    .iter()
                    .filter(|configuration| configuration.outside)
                    .map(|configuration| configuration.alternative)
                    .min();
                return finished.ok_or(NoViable(ahead));
            }
            [only] => return Ok(*only),
            [first, ..]
                if kind == TokenKind::Eof || ahead > MAX_LOOKAHEAD || all_alternatives_agree(&next) =>
            {
                return Ok(*first);
            }
            _ => {}
        }
        configurations = next;
        ahead += 1;
    }
}

/// Decides by the first token alone: the only alternative that begins with it, or the one that ends the rule.
fn decided_by_first_token(grammar: &Grammar, decision: StateId, tokens: &[Token]) -> Option<usize> {
    let kind = tokens.first().map_or(TokenKind::Eof, |token| token.kind);
    let mut starting = None;
    let mut leaving = None;
    for (alternative, step) in grammar.get(decision).iter().enumerate() {
        let Transition::Epsilon(state) = step else { return None };
        let (set, ends) = grammar.look(*state);
        if set.contains(kind) && starting.replace(alternative).is_some() {
            return None;
        }
        if ends && leaving.replace(alternative).is_some() {
            return None;
        }
    }
    match (starting, leaving) {
        (Some(starting), None) => Some(starting),
        (None, Some(leaving)) => Some(leaving),
        (Some(starting), Some(leaving)) if starting == leaving => Some(starting),
        _ => None,
    }
}

/// True if all alternatives reached the same states, so that no further token can distinguish them.
fn all_alternatives_agree(configurations: &[AtnConfiguration]) -> bool {
    let of = |alternative: usize| {
        let mut reached: Vec<(StateId, &[StateId])> = configurations
            .iter()
            .filter(|configuration| configuration.alternative == alternative)
            .map(|configuration| (configuration.state, configuration.returns.as_slice()))
            .collect();
        reached.sort_unstable();
        reached.dedup();
        reached
    };
    let mut alternatives: Vec<usize> =
        configurations.iter().map(|configuration| configuration.alternative).collect();
    alternatives.sort_unstable();
    alternatives.dedup();
    let Some((first, rest)) = alternatives.split_first() else { return false };
    rest.iter().all(|alternative| of(*alternative) == of(*first))
}

/// Adds a configuration and all that are reachable from it without consuming a token.
fn closure(
    grammar: &Grammar,
    configuration: AtnConfiguration,
    precedence: Option<u32>,
    configurations: &mut Vec<AtnConfiguration>,
) {
    let mut todo = vec![configuration];
    while let Some(configuration) = todo.pop() {
        if configurations.contains(&configuration) {
            continue;
        }
        configurations.push(configuration.clone());
        if grammar.sort(configuration.state) == StateKind::Stop {
            let mut returns = configuration.returns.clone();
            if let Some(state) = returns.pop() {
                todo.push(AtnConfiguration { state, returns, ..configuration });
            } else if let Some(state) = grammar.states.get(configuration.state)
                && let Some(follows) = grammar.follows.get(state.rule)
            {
                for state in follows {
                    todo.push(AtnConfiguration { state: *state, outside: true, ..configuration.clone() });
                }
                if follows.is_empty() && !configuration.outside {
                    configurations.push(AtnConfiguration { outside: true, ..configuration });
                }
            }
            continue;
        }
        for step in grammar.get(configuration.state) {
            match step {
                Transition::Epsilon(state) => {
                    todo.push(AtnConfiguration { state: *state, ..configuration.clone() });
                }
                Transition::Precedence(needed, state) => {
                    let here = configuration.returns.is_empty() && !configuration.outside;
                    if !here || precedence.is_none_or(|precedence| *needed >= precedence) {
                        todo.push(AtnConfiguration { state: *state, ..configuration.clone() });
                    }
                }
                Transition::Rule(rule, _, follow) => {
                    if let Some(start) = grammar.starts.get(*rule) {
                        let mut returns = configuration.returns.clone();
                        returns.push(*follow);
                        todo.push(AtnConfiguration { state: *start, returns, ..configuration.clone() });
                    }
                }
                Transition::Token(..) => {}
            }
        }
    }
}

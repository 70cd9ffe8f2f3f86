//! Which alternative the tokens ahead decide for, as ANTLR's adaptive prediction finds it.

use super::grammar::{Grammar, Sort, StateId, Step};
use crate::syntax::token::{Kind, Token};

/// No alternative is possible; the token (counted from here) that showed it.
pub(super) struct NoViable(pub(super) usize);

/// A place an alternative may have led to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    alternative: usize,
    state: StateId,
    /// Where rules entered on the way will return to.
    returns: Vec<StateId>,
    /// Whether the rule of the decision has been left: from there on, any place where the rule is used will do.
    outside: bool,
}

/// How many tokens are looked at before the first possible alternative is taken.
const FARTHEST: usize = 2000;

/// Predicts the alternative (from 0) of a decision.
pub(super) fn predict(
    grammar: &Grammar,
    decision: StateId,
    precedence: u32,
    tokens: &[Token],
) -> Result<usize, NoViable> {
    if let Some(alternative) = obvious(grammar, decision, tokens) {
        return Ok(alternative);
    }
    let mut places = Vec::new();
    for (alternative, step) in grammar.get(decision).iter().enumerate() {
        if let Step::Epsilon(state) = step {
            let place = Place { alternative, state: *state, returns: Vec::new(), outside: false };
            closure(grammar, place, Some(precedence), &mut places);
        }
    }
    let mut ahead = 0;
    loop {
        let kind = tokens.get(ahead).map_or(Kind::Eof, |token| token.kind);
        let mut next = Vec::new();
        for place in &places {
            for step in grammar.get(place.state) {
                if let Step::Token(set, target) = step
                    && set.contains(kind)
                {
                    closure(grammar, Place { state: *target, ..place.clone() }, None, &mut next);
                }
            }
        }
        let possible = |places: &[Place]| {
            let mut alternatives: Vec<usize> = places.iter().map(|place| place.alternative).collect();
            alternatives.sort_unstable();
            alternatives.dedup();
            alternatives
        };
        match possible(&next).as_slice() {
            [] => {
                let finished =
                    places.iter().filter(|place| place.outside).map(|place| place.alternative).min();
                return finished.ok_or(NoViable(ahead));
            }
            [only] => return Ok(*only),
            [first, ..] if kind == Kind::Eof || ahead > FARTHEST || same_everywhere(&next) => {
                return Ok(*first);
            }
            _ => {}
        }
        places = next;
        ahead += 1;
    }
}

/// The alternative that the first token alone decides for: the only one that starts with it, or the way out of the rule.
fn obvious(grammar: &Grammar, decision: StateId, tokens: &[Token]) -> Option<usize> {
    let kind = tokens.first().map_or(Kind::Eof, |token| token.kind);
    let mut starting = None;
    let mut leaving = None;
    for (alternative, step) in grammar.get(decision).iter().enumerate() {
        let Step::Epsilon(state) = step else { return None };
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

/// Whether all alternatives led to the same places, so that no token will ever tell them apart.
fn same_everywhere(places: &[Place]) -> bool {
    let of = |alternative: usize| {
        let mut reached: Vec<(StateId, &[StateId])> = places
            .iter()
            .filter(|place| place.alternative == alternative)
            .map(|place| (place.state, place.returns.as_slice()))
            .collect();
        reached.sort_unstable();
        reached.dedup();
        reached
    };
    let mut alternatives: Vec<usize> = places.iter().map(|place| place.alternative).collect();
    alternatives.sort_unstable();
    alternatives.dedup();
    let Some((first, rest)) = alternatives.split_first() else { return false };
    rest.iter().all(|alternative| of(*alternative) == of(*first))
}

/// Adds a place and all that can be reached from it without a token.
fn closure(grammar: &Grammar, place: Place, precedence: Option<u32>, places: &mut Vec<Place>) {
    let mut todo = vec![place];
    while let Some(place) = todo.pop() {
        if places.contains(&place) {
            continue;
        }
        places.push(place.clone());
        if grammar.sort(place.state) == Sort::Stop {
            let mut returns = place.returns.clone();
            if let Some(state) = returns.pop() {
                todo.push(Place { state, returns, ..place });
            } else if let Some(state) = grammar.states.get(place.state)
                && let Some(follows) = grammar.follows.get(state.rule)
            {
                for state in follows {
                    todo.push(Place { state: *state, outside: true, ..place.clone() });
                }
                if follows.is_empty() && !place.outside {
                    places.push(Place { outside: true, ..place });
                }
            }
            continue;
        }
        for step in grammar.get(place.state) {
            match step {
                Step::Epsilon(state) => todo.push(Place { state: *state, ..place.clone() }),
                Step::Precedence(needed, state) => {
                    let here = place.returns.is_empty() && !place.outside;
                    if !here || precedence.is_none_or(|precedence| *needed >= precedence) {
                        todo.push(Place { state: *state, ..place.clone() });
                    }
                }
                Step::Rule(rule, _, follow) => {
                    if let Some(start) = grammar.starts.get(*rule) {
                        let mut returns = place.returns.clone();
                        returns.push(*follow);
                        todo.push(Place { state: *start, returns, ..place.clone() });
                    }
                }
                Step::Token(..) => {}
            }
        }
    }
}

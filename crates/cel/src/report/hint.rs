//! Hints for fixing an expression, derived from the error message and the token it points to.

use std::collections::BTreeSet;

use crate::decl::Overload;
use crate::env::Env;
use crate::syntax::operator;
use crate::syntax::source::Source;
use crate::syntax::token::{Token, TokenKind};

/// Upper bound of function signatures listed in a hint.
const MAX_SIGNATURES: usize = 8;
/// Longer names are not compared with declared names.
const MAX_NAME_LENGTH: usize = 64;

/// Words from other languages, with the CEL equivalent.
const OTHER_LANGUAGES: [(&str, &str); 12] = [
    ("len", "`size(VALUE)` or `VALUE.size()` gives the length"),
    ("length", "`size(VALUE)` or `VALUE.size()` gives the length"),
    ("True", "write `true`"),
    ("False", "write `false`"),
    ("None", "write `null`"),
    ("nil", "write `null`"),
    ("undefined", "write `null`, or test for the field with `has(object.field)`"),
    ("any", "`LIST.exists(e, CONDITION)` is true if one element satisfies the condition"),
    ("float", "the type is called `double`"),
    ("str", "`string(VALUE)` converts to a string"),
    ("now", "expressions cannot read the clock"),
    ("cel", "this environment has no `cel.bind`; a policy has `variables` for that"),
];

/// Hints for one issue; `at` is the index of the token at its location.
pub(super) fn hints(
    env: &Env,
    source: &Source,
    tokens: &[Token],
    at: Option<usize>,
    message: &str,
) -> Vec<String> {
    let token = at.and_then(|at| tokens.get(at));
    if let Some(name) = quoted(message, "undeclared reference to '") {
        let called = token.is_some_and(|token| token.kind == TokenKind::LeftParen);
        return undeclared(env, name, called);
    }
    if let Some(name) = quoted(message, "found no matching overload for '") {
        return overloads(env, name);
    }
    if message.starts_with("Syntax error") {
        return syntax(source, tokens, at, message).into_iter().collect();
    }
    let found = BY_MESSAGE.iter().find(|(start, _)| message.contains(start));
    found.map(|(_, hint)| (*hint).to_owned()).into_iter().collect()
}

/// Hints that depend on the message text alone.
const BY_MESSAGE: [(&str, &str); 14] = [
    ("reserved identifier", "the word is reserved; a field of that name is read as `object['NAME']`"),
    (
        "invalid argument to has()",
        "`has` takes a field, such as `has(object.spec)`; for a key use `'key' in object`",
    ),
    ("expected type 'bool'", "a condition must be a bool: compare the value with something"),
    (
        "expected type '",
        "the elements of a list and the values of a map have one type; `dyn(VALUE)` mixes them",
    ),
    ("does not support field selection", "only maps and objects have fields"),
    ("cannot be range of a comprehension", "macros loop over lists and the keys of maps"),
    ("undefined field", "the schema of the type has no such field"),
    ("invalid matches argument", "patterns are written in RE2's syntax"),
    ("invalid duration argument", "a duration is written like `1h30m`, `90s` or `250ms`"),
    ("invalid timestamp argument", "a timestamp is written like `2024-02-29T12:30:45Z`"),
    ("must be a simple identifier", "the variable of a macro is a plain name, such as `LIST.all(e, e > 0)`"),
    ("duplicate variable name", "give the two variables different names"),
    ("code point size exceeds", "split the expression; a policy has `variables` for that"),
    ("recursion", "split the expression; a policy has `variables` for that"),
];

/// The text between the quotes after the prefix `start`.
fn quoted<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    message.strip_prefix(start)?.split('\'').next()
}

fn undeclared(env: &Env, name: &str, called: bool) -> Vec<String> {
    let last = name.rsplit('.').next().unwrap_or(name);
    let first = name.split('.').next().unwrap_or(name);
    if let Some((_, hint)) = OTHER_LANGUAGES.iter().find(|(word, _)| *word == first || *word == name) {
        return vec![(*hint).to_owned()];
    }
    if called {
        if let Some(function) = env.function(last) {
            if let Some(overload) = function.overloads.first() {
                return vec![format!("call it as `{}`", signature(last, overload))];
            }
        } else if env.macro_names().any(|known| known == last) {
            return vec![format!("`{last}` is a macro with another number of arguments or no receiver")];
        }
        let names: BTreeSet<&str> = env.function_names().chain(env.macro_names()).collect();
        return nearest(last, names).map(|found| format!("did you mean `{found}`?")).into_iter().collect();
    }
    let variables = env.variable_names();
    if let Some(found) = nearest(name, variables.iter().map(value::Str::as_str)) {
        return vec![format!("did you mean `{found}`?")];
    }
    if env.function(name).is_some() || env.macro_names().any(|known| known == name) {
        return vec![format!("`{name}` is a function: call it")];
    }
    if variables.is_empty() {
        return vec!["no variables are declared here".to_owned()];
    }
    let names: Vec<String> = variables.iter().map(|name| format!("`{name}`")).collect();
    vec![format!("the variables here are {}", names.join(", "))]
}

fn overloads(env: &Env, name: &str) -> Vec<String> {
    let Some(function) = env.function(name) else { return Vec::new() };
    let mut hints: Vec<String> = Vec::new();
    let signatures: Vec<String> =
        function.overloads.iter().map(|overload| format!("`{}`", signature(name, overload))).collect();
    let shown = signatures.iter().take(MAX_SIGNATURES).cloned().collect::<Vec<_>>().join(", ");
    let more = if signatures.len() > MAX_SIGNATURES { ", and more" } else { "" };
    hints.push(format!("there is {shown}{more}"));
    if operator::written(name).is_some() && !matches!(name, operator::AND | operator::OR | operator::IN) {
        hints.push("convert one side, for example with `int(…)`, `double(…)` or `string(…)`".to_owned());
    }
    hints
}

/// Formats an overload the way it is called: `int + int`, `string.contains(string)`.
fn signature(name: &str, overload: &Overload) -> String {
    let args: Vec<String> = overload.args.iter().map(crate::types::Type::in_messages).collect();
    if let (Some((symbol, _)), [left, right]) = (operator::written(name), args.as_slice()) {
        return format!("{left} {symbol} {right}");
    }
    match (name, args.as_slice()) {
        (operator::NOT, [arg]) => format!("!{arg}"),
        (operator::NEGATE, [arg]) => format!("-{arg}"),
        (operator::INDEX, [from, key]) => format!("{from}[{key}]"),
        (operator::OPT_INDEX, [from, key]) => format!("{from}[?{key}]"),
        (operator::OPT_SELECT, [from, ..]) => format!("{from}.?FIELD"),
        (operator::CONDITIONAL, _) => "bool ? A : A".to_owned(),
        (_, [receiver, rest @ ..]) if overload.member => {
            format!("{receiver}.{name}({})", rest.join(", "))
        }
        _ => format!("{name}({})", args.join(", ")),
    }
}

fn syntax(source: &Source, tokens: &[Token], at: Option<usize>, message: &str) -> Option<String> {
    if let Some(text) = message.split("token recognition error at: '").nth(1) {
        let hint = match text.chars().next() {
            Some('"' | '\'') => "the string is not closed",
            Some('=') => "write `==` to compare; an expression cannot assign",
            Some('&') => "write `&&` for a logical and",
            Some('|') => "write `||` for a logical or",
            Some('`') => "a name in backticks has letters, digits, `_`, `.`, `-`, `/` and spaces",
            Some(';') => "an expression is a single value; remove the `;`",
            _ => "this character is not part of CEL's syntax",
        };
        return Some(hint.to_owned());
    }
    let at = at?;
    let token = tokens.get(at)?;
    if token.kind == TokenKind::Eof {
        let open = tokens.iter().filter(|token| is_open(token.kind)).count();
        let closed = tokens.iter().filter(|token| is_close(token.kind)).count();
        return Some(if open > closed {
            "a bracket is not closed".to_owned()
        } else {
            "the expression ends where a value is expected".to_owned()
        });
    }
    let words = [at.checked_sub(1), Some(at)].into_iter().flatten().filter_map(|at| tokens.get(at));
    for word in words.map(|token| token.text(source.text())) {
        let hint = match word {
            "and" => "write `&&` for a logical and",
            "or" => "write `||` for a logical or",
            "not" => "write `!` for a negation",
            "if" | "then" | "else" => "write a conditional as `CONDITION ? A : B`",
            "like" | "LIKE" => "match a regular expression with `VALUE.matches('PATTERN')`",
            _ => continue,
        };
        return Some(hint.to_owned());
    }
    if is_close(token.kind) {
        return Some("this bracket has no opening bracket, or a value is missing before it".to_owned());
    }
    None
}

fn is_open(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::LeftParen | TokenKind::LeftBracket | TokenKind::LeftBrace)
}

fn is_close(kind: TokenKind) -> bool {
    matches!(kind, TokenKind::RightParen | TokenKind::RightBracket | TokenKind::RightBrace)
}

/// Finds the known name closest to `name` by edit distance; `None` if none is within a third of its length.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > MAX_NAME_LENGTH {
        return None;
    }
    let allowed = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .filter(|known| known.len() <= MAX_NAME_LENGTH)
        .map(|known| (distance(name, known), known))
        .filter(|(distance, known)| *distance <= allowed && *distance < known.chars().count())
        .min()
        .map(|(_, known)| known)
}

/// Damerau-Levenshtein distance, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut last = None;
    for (i, c) in a.to_lowercase().chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (j, d) in b.iter().enumerate() {
            let of = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX - 1);
            let mut least =
                (of(&row, j) + usize::from(c != *d)).min(of(&row, j + 1) + 1).min(of(&next, j) + 1);
            let swapped = j > 0 && last == Some(*d) && b.get(j - 1) == Some(&c);
            if swapped {
                least = least.min(of(&before, j - 1) + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(c);
    }
    row.last().copied().unwrap_or(0)
}

//! Function names of the operators, as in cel-go.

use super::token::TokenKind;

pub(crate) const CONDITIONAL: &str = "_?_:_";
pub(crate) const AND: &str = "_&&_";
pub(crate) const OR: &str = "_||_";
pub(crate) const NOT: &str = "!_";
pub(crate) const NEGATE: &str = "-_";
pub(crate) const EQUALS: &str = "_==_";
pub(crate) const NOT_EQUALS: &str = "_!=_";
pub(crate) const ADD: &str = "_+_";
pub(crate) const IN: &str = "@in";
pub(crate) const INDEX: &str = "_[_]";
pub(crate) const OPT_INDEX: &str = "_[?_]";
pub(crate) const OPT_SELECT: &str = "_?._";
pub(crate) const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";

/// Function of a relational operator.
pub(crate) fn relation(kind: TokenKind) -> Option<&'static str> {
    Some(match kind {
        TokenKind::Less => "_<_",
        TokenKind::LessEquals => "_<=_",
        TokenKind::GreaterEquals => "_>=_",
        TokenKind::Greater => "_>_",
        TokenKind::Equals => EQUALS,
        TokenKind::NotEquals => NOT_EQUALS,
        TokenKind::In => IN,
        _ => return None,
    })
}

/// Function and binding strength of an arithmetic operator.
pub(crate) fn calc(kind: TokenKind) -> Option<(&'static str, u32)> {
    Some(match kind {
        TokenKind::Star => ("_*_", 2),
        TokenKind::Slash => ("_/_", 2),
        TokenKind::Percent => ("_%_", 2),
        TokenKind::Plus => (ADD, 1),
        TokenKind::Minus => ("_-_", 1),
        _ => return None,
    })
}

/// Symbol and binding strength of the operator that a binary function stands for.
pub(crate) fn written(function: &str) -> Option<(&'static str, u32)> {
    Some(match function {
        OR => ("||", 1),
        AND => ("&&", 2),
        "_<_" => ("<", 3),
        "_<=_" => ("<=", 3),
        "_>=_" => (">=", 3),
        "_>_" => (">", 3),
        EQUALS => ("==", 3),
        NOT_EQUALS => ("!=", 3),
        IN => ("in", 3),
        ADD => ("+", 4),
        "_-_" => ("-", 4),
        "_*_" => ("*", 5),
        "_/_" => ("/", 5),
        "_%_" => ("%", 5),
        _ => return None,
    })
}

//! Lexer, parser, macro expansion and printer.

pub mod ast;
pub(crate) mod explain;
pub(crate) mod lexer;
mod literal;
pub(crate) mod macros;
pub(crate) mod nodes;
pub(crate) mod operator;
pub(crate) mod parser;
pub(crate) mod print;
pub(crate) mod source;
pub(crate) mod token;
pub(crate) mod work;

//! Errors of an evaluation.

use std::fmt;
use std::sync::Arc;

use value::Str;

use crate::lib::authz::AuthorizerCheck;

/// The error of an evaluation; its text is cel-go's.
#[derive(Clone)]
pub struct Error(Arc<ErrorKind>);

/// The kinds of evaluation errors.
#[derive(Clone, Debug)]
pub enum ErrorKind {
    /// An error of the expression; `&&` and `||` may absorb it.
    Failed(Str),
    /// The cost limit was exceeded.
    CostLimit,
    /// Compiling or matching regular expressions exceeded its work limit.
    PatternLimit(Str),
    /// cel-go panics here; like the panic, this ends the evaluation.
    Internal(Str),
    /// The caller interrupted the evaluation.
    Interrupted,
    /// An authorization check has no decision yet: decide it and evaluate again.
    NeedsCheck(Box<AuthorizerCheck>),
}

impl Error {
    /// An error of the expression, with cel-go's message.
    pub fn new(message: impl Into<Str>) -> Self {
        Error(Arc::new(ErrorKind::Failed(message.into())))
    }

    pub(crate) fn of(kind: ErrorKind) -> Self {
        Error(Arc::new(kind))
    }

    #[cold]
    pub(crate) fn no_such_overload() -> Self {
        Error::new("no such overload")
    }

    #[cold]
    pub(crate) fn cost_limit() -> Self {
        Error::of(ErrorKind::CostLimit)
    }

    /// An interruption by the caller, which the expression cannot absorb.
    #[cold]
    pub fn interrupted() -> Self {
        Error::of(ErrorKind::Interrupted)
    }

    /// The kind of this error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// True if the error ends the evaluation even inside `&&` and `||`.
    pub fn is_fatal(&self) -> bool {
        !matches!(*self.0, ErrorKind::Failed(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ErrorKind::Failed(message) | ErrorKind::PatternLimit(message) => f.write_str(message),
            ErrorKind::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            ErrorKind::Internal(message) => write!(f, "internal error: {message}"),
            ErrorKind::Interrupted => f.write_str("operation interrupted"),
            ErrorKind::NeedsCheck(_) => f.write_str("an authorization check has no answer yet"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::error::Error for Error {}

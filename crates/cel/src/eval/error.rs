//! Why an evaluation failed.

use std::fmt;
use std::sync::Arc;

use value::Str;

use crate::lib::authz::AuthorizerCheck;

/// Why an evaluation has no value. The text is cel-go's.
#[derive(Clone)]
pub struct Error(Arc<ErrorKind>);

/// The sorts of failures.
#[derive(Clone, Debug)]
pub enum ErrorKind {
    /// The expression failed; `&&` and `||` may absorb it.
    Failed(Str),
    /// The cost limit was reached.
    CostLimit,
    /// Compiling regular expressions, or matching texts with them, took too much work.
    PatternLimit(Str),
    /// Something the reference does not expect; it ends the evaluation there too.
    Internal(Str),
    /// The caller wanted it to end.
    Interrupted,
    /// An authorization check has no answer yet: answer it and evaluate again.
    NeedsCheck(Box<AuthorizerCheck>),
}

impl Error {
    /// A failure of the expression.
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

    /// Ends an evaluation, whatever the expression says.
    #[cold]
    pub fn interrupted() -> Self {
        Error::of(ErrorKind::Interrupted)
    }

    /// What sort of failure it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Whether it ends the evaluation whatever the expression says.
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

//! Reasons why a call has no response, with the texts of Go's client.

use std::borrow::Cow;

use http::Method;

use super::connect::ConnectError;

/// Reason why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    /// Text of Go's client: `Post "https://…": dial tcp 127.0.0.1:1: connect: connection refused`.
    pub message: String,
}

impl Failure {
    /// True if the server's certificate has only a Common Name and no SAN.
    pub fn lacks_alternative_names(&self) -> bool {
        self.message.contains("x509: certificate relies on legacy Common Name field")
    }

    /// True if the server's certificate has a SHA-1 signature.
    pub fn is_signed_with_sha1(&self) -> bool {
        let words = "x509: cannot verify signature: insecure algorithm";
        self.message.split_once(words).is_some_and(|(_, which)| which.contains("SHA1"))
    }
}

/// Categories of failures, to decide on retries and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The time limit was exceeded.
    Timeout,
    /// No connection: unknown address, connection refused, or certificate verification failed.
    Connect,
    /// The connection was reset; a retry may succeed.
    Reset,
    /// The connection ended early, or the response was invalid.
    Broken,
    /// The response exceeded the size limit.
    TooLarge,
    /// The request was not sent: an unreadable credential or an invalid URL.
    Unsent,
}

/// An internal failure; a `bare` message gets no prefix with the method and URL.
pub(super) struct Broken {
    pub(super) kind: FailureKind,
    pub(super) why: Cow<'static, str>,
    pub(super) bare: bool,
}

pub(super) fn broken(kind: FailureKind, why: impl Into<Cow<'static, str>>) -> Broken {
    Broken { kind, why: why.into(), bare: false }
}

/// The method as in the errors of Go's client: `Post`.
pub(super) fn method_word(method: &Method) -> String {
    let mut word = method.as_str().to_ascii_lowercase();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}

/// Finds the failure's kind and text in the chain of error sources.
pub(super) fn explain(error: &(dyn std::error::Error + 'static)) -> Broken {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(connect) = error.downcast_ref::<ConnectError>() {
            let kind = if connect.timed_out { FailureKind::Timeout } else { FailureKind::Connect };
            return broken(kind, connect.message.clone());
        }
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe => {
                    broken(FailureKind::Reset, io.to_string())
                }
                std::io::ErrorKind::UnexpectedEof => broken(FailureKind::Broken, "EOF"),
                _ => broken(FailureKind::Broken, io.to_string()),
            };
        }
        if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
            if hyper.is_incomplete_message() {
                return broken(FailureKind::Broken, "EOF");
            }
            if hyper.is_parse() {
                let why = format!(
                    "net/http: HTTP/1.x transport connection broken: malformed HTTP response: {hyper}"
                );
                return broken(FailureKind::Broken, why);
            }
        }
        if error.source().is_none() {
            return broken(FailureKind::Broken, error.to_string());
        }
        cause = error.source();
    }
    broken(FailureKind::Broken, error.to_string())
}

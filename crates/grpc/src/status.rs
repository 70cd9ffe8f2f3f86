//! The outcome of a failed call.

use http::HeaderMap;
use value::text::percent_decode;

/// The status codes of gRPC that a client distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl Code {
    /// The code with this number; `None` for 0, which is success. Unknown numbers are [`Code::Unknown`], as gRPC requires.
    pub(crate) fn from_number(number: u32) -> Option<Code> {
        Some(match number {
            0 => return None,
            1 => Code::Cancelled,
            3 => Code::InvalidArgument,
            4 => Code::DeadlineExceeded,
            5 => Code::NotFound,
            6 => Code::AlreadyExists,
            7 => Code::PermissionDenied,
            8 => Code::ResourceExhausted,
            9 => Code::FailedPrecondition,
            10 => Code::Aborted,
            11 => Code::OutOfRange,
            12 => Code::Unimplemented,
            13 => Code::Internal,
            14 => Code::Unavailable,
            15 => Code::DataLoss,
            16 => Code::Unauthenticated,
            _ => Code::Unknown,
        })
    }

    /// The code for an HTTP status of a response without `grpc-status`, such as one from a proxy.
    fn from_http(status: http::StatusCode) -> Code {
        match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub code: Code,
    /// The server's text, or a description of the transport error.
    pub message: String,
    /// False only if the server certainly did not receive the request. A request that may have been received may have been executed.
    pub may_have_run: bool,
}

impl Status {
    /// A failure after the request was sent, or that the server reported.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status { code, message: message.into(), may_have_run: true }
    }

    /// A failure before the request was sent.
    pub fn not_sent(message: impl Into<String>) -> Status {
        Status { code: Code::Unavailable, message: message.into(), may_have_run: false }
    }

    /// Reads the status from the headers of a response without messages, or from its trailers. `None` if there is none.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Result<(), Status>> {
        let number = headers.get("grpc-status")?.to_str().ok().and_then(|text| text.parse().ok());
        let Some(code) = Code::from_number(number.unwrap_or(u32::MAX)) else { return Some(Ok(())) };
        let message =
            headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
        Some(Err(Status::new(code, String::from_utf8_lossy(&percent_decode(message)))))
    }

    /// The failure that an HTTP status other than 200 means.
    pub(crate) fn of_http(status: http::StatusCode) -> Status {
        Status::new(Code::from_http(status), format!("the server answered with HTTP status {status}"))
    }
}

#[cfg(test)]
mod tests;

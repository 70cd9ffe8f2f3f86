//! The outcome of a failed call.

use http::HeaderMap;
use value::text::percent_decode;

/// The status codes of gRPC that a client distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcCode {
    Canceled,
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

impl GrpcCode {
    /// The code with this number; `None` for 0, which is success. Unknown numbers are [`GrpcCode::Unknown`], as gRPC requires.
    pub(crate) fn from_number(number: u32) -> Option<GrpcCode> {
        Some(match number {
            0 => return None,
            1 => GrpcCode::Canceled,
            3 => GrpcCode::InvalidArgument,
            4 => GrpcCode::DeadlineExceeded,
            5 => GrpcCode::NotFound,
            6 => GrpcCode::AlreadyExists,
            7 => GrpcCode::PermissionDenied,
            8 => GrpcCode::ResourceExhausted,
            9 => GrpcCode::FailedPrecondition,
            10 => GrpcCode::Aborted,
            11 => GrpcCode::OutOfRange,
            12 => GrpcCode::Unimplemented,
            13 => GrpcCode::Internal,
            14 => GrpcCode::Unavailable,
            15 => GrpcCode::DataLoss,
            16 => GrpcCode::Unauthenticated,
            _ => GrpcCode::Unknown,
        })
    }

    /// The code for an HTTP status of a response without `grpc-status`, such as one from a proxy.
    fn from_http(status: http::StatusCode) -> GrpcCode {
        match status.as_u16() {
            400 => GrpcCode::Internal,
            401 => GrpcCode::Unauthenticated,
            403 => GrpcCode::PermissionDenied,
            404 => GrpcCode::Unimplemented,
            429 | 502..=504 => GrpcCode::Unavailable,
            _ => GrpcCode::Unknown,
        }
    }
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GrpcStatus {
    pub code: GrpcCode,
    /// The server's text, or a description of the transport error.
    pub message: String,
    /// False only if the server certainly did not receive the request. A request that may have been received may have been executed.
    pub may_have_run: bool,
}

impl GrpcStatus {
    /// A failure after the request was sent, or that the server reported.
    pub fn new(code: GrpcCode, message: impl Into<String>) -> GrpcStatus {
        GrpcStatus { code, message: message.into(), may_have_run: true }
    }

    /// A failure before the request was sent.
    pub fn not_sent(message: impl Into<String>) -> GrpcStatus {
        GrpcStatus { code: GrpcCode::Unavailable, message: message.into(), may_have_run: false }
    }

    /// Reads the status from the headers of a response without messages, or from its trailers. `None` if there is none.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Result<(), GrpcStatus>> {
        let number = headers.get("grpc-status")?.to_str().ok().and_then(|text| text.parse().ok());
        let Some(code) = GrpcCode::from_number(number.unwrap_or(u32::MAX)) else { return Some(Ok(())) };
        let message =
            headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
        Some(Err(GrpcStatus::new(code, String::from_utf8_lossy(&percent_decode(message)))))
    }

    /// The failure that an HTTP status other than 200 means.
    pub(crate) fn of_http(status: http::StatusCode) -> GrpcStatus {
        GrpcStatus::new(GrpcCode::from_http(status), format!("the server answered with HTTP status {status}"))
    }
}

#[cfg(test)]
mod tests;

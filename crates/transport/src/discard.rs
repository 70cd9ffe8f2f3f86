//! A request body whose unread rest is received and discarded for a while after it is dropped.
//!
//! A request is often answered before its body has arrived, for example with 403. Dropping the body would
//! reset the HTTP/2 stream or close the connection while the client still sends, and many clients report that
//! instead of the response. So up to [`MAX_BODY`] further bytes are received for up to [`TIME`], and thrown away.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::Status;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;

use crate::accept::{MAX_HEADER_BYTES, STREAM_WINDOW};
use crate::byte_budget::{BudgetAccount, ByteBudget, ByteCharge};

/// Size in bytes of the largest request body that is accepted, and of the largest rest that is discarded.
pub const MAX_BODY: usize = 3 * 1024 * 1024;
/// Maximum time spent discarding.
const TIME: Duration = Duration::from_secs(5);

/// A request body. Its unread rest is discarded in the background after the drop.
#[derive(Debug)]
pub struct Discarding {
    body: Option<Incoming>,
    /// Runtime for the background task; `None` once there is no content left.
    runtime: Option<Handle>,
    /// The bytes that the connection's buffers can hold of it while it is not read.
    max_buffered: u64,
    /// Charge for these bytes.
    buffers: Option<ByteCharge>,
}

impl Discarding {
    pub fn new(body: Incoming, version: http::Version) -> Self {
        let runtime = (!body.is_end_stream()).then(Handle::try_current).and_then(Result::ok);
        let buffer = if version == http::Version::HTTP_2 { STREAM_WINDOW } else { MAX_HEADER_BYTES };
        // HTTP/2 refuses more bytes than `Content-Length` says.
        let max_buffered = body.size_hint().upper().unwrap_or(u64::MAX).min(u64::from(buffer));
        Discarding { body: Some(body), runtime, max_buffered, buffers: None }
    }

    /// Charges what the connection's buffers can hold of the body, until [`Discarding::begin_reading`] or the end of the body. Must be
    /// called before the request waits for anything, because the client can fill the buffers meanwhile. Refuses with 429 if the bytes do
    /// not fit.
    pub fn charge_buffers(
        &mut self,
        budget: &Arc<ByteBudget>,
        account: &BudgetAccount,
    ) -> Result<(), Status> {
        if self.had_content() {
            self.buffers = Some(budget.charge(account.clone(), self.max_buffered)?);
        }
        Ok(())
    }

    /// Gives the charge for the buffers back, because from now on the reader takes and charges each byte as it arrives.
    pub fn begin_reading(&mut self) {
        self.buffers = None;
    }

    /// True if the body was not empty on arrival and has not been read to its end or failed.
    pub fn had_content(&self) -> bool {
        self.runtime.is_some()
    }
}

impl Body for Discarding {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        // A body that ended or failed has no rest to discard.
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.runtime = None;
            self.buffers = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for Discarding {
    fn drop(&mut self) {
        if let Some((runtime, mut body)) = self.runtime.take().zip(self.body.take())
            && !body.is_end_stream()
        {
            runtime.spawn(tokio::time::timeout(TIME, async move {
                let mut left = MAX_BODY;
                while let Some(Ok(frame)) = body.frame().await {
                    let data = frame.into_data().unwrap_or_default();
                    match left.checked_sub(data.len()) {
                        Some(rest) => left = rest,
                        None => return,
                    }
                }
            }));
        }
    }
}

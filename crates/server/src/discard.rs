//! A request body that is not read to its end: the rest is read and discarded for a while.
//!
//! A request is often answered before its body has arrived: who may not write is told so at once. To drop the body then is to reset
//! the HTTP/2 stream or to close the connection while the client still sends, and many clients see that instead of the answer. So what
//! is dropped goes on arriving, within [`MOST`] bytes and [`TIME`], and nothing of it is kept.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;

/// How much is discarded: the largest body that is read.
const MOST: usize = crate::call::MAX_BODY;
/// How long it is read on.
const TIME: Duration = Duration::from_secs(5);

/// The body of a request. What is left of it when it is dropped is discarded.
#[derive(Debug)]
pub struct Discarding {
    body: Option<Incoming>,
    /// Where to read on, once this is dropped.
    runtime: Option<Handle>,
}

impl Discarding {
    /// Wraps the body of a request.
    pub fn new(body: Incoming) -> Self {
        let runtime = (!body.is_end_stream()).then(Handle::try_current).and_then(Result::ok);
        Discarding { body: Some(body), runtime }
    }

    /// Whether the body was not empty when its request arrived.
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
        // Nothing is left of a body that ended or broke.
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.runtime = None;
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
                let mut left = MOST;
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

//! A request body being proxied that reports how it ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;
use transport::discard::Discarding;
use transport::paced::{BodyReadError, Paced};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The body was sent completely, or reading it failed.
    Ended,
    /// The client sends it too slowly.
    TooSlow,
}

/// A paced request body that signals its end through a channel.
#[derive(Debug)]
pub(super) struct ReportingBody {
    body: Paced<Discarding>,
    ended: Option<oneshot::Sender<BodyEnd>>,
}

impl ReportingBody {
    /// Wraps `body`. The receiver yields how it ended; a receive error means that the body was dropped early.
    pub(super) fn new(body: Discarding) -> (Self, oneshot::Receiver<BodyEnd>) {
        let (ended, end) = oneshot::channel();
        (ReportingBody { body: Paced::new(body), ended: Some(ended) }, end)
    }
}

impl Body for ReportingBody {
    type Data = Bytes;
    type Error = BodyReadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyReadError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let end = match &polled {
            Poll::Ready(Some(Err(BodyReadError::TooSlow))) => Some(BodyEnd::TooSlow),
            Poll::Ready(None | Some(Err(BodyReadError::Broken(_)))) => Some(BodyEnd::Ended),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => Some(BodyEnd::Ended),
            Poll::Ready(Some(Ok(_))) | Poll::Pending => None,
        };
        if let Some(end) = end
            && let Some(ended) = self.ended.take()
        {
            let _ = ended.send(end);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

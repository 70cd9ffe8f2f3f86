//! The body of a response: bytes, a list of stored objects, a stream of watch events, or a forwarded
//! response.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::Status;
use audit::RecordCloser;
use bytes::Bytes;
use catalog::splice::Splice;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;
use transport::accept::ResponseBody;
use transport::long_running::{EndSignal, LongRunningRequest};
use transport::unsent::{PIECE, Payer};

#[derive(Debug)]
pub struct Body {
    inner: BodySource,
    /// False after a part of a forwarded body that does not end with a line.
    is_after_line: bool,
    /// Account charged for parts that are produced while the response is sent.
    payer: Option<Payer>,
    /// Set for a long-running response, which the server may end early.
    running: Option<(LongRunningRequest, EarlyEnd)>,
    /// Dropped with the body: the end of a long-running response is a separate audit event.
    _end: Option<RecordCloser>,
}

#[derive(Debug)]
enum BodySource {
    Whole(Bytes),
    /// Bytes that stay in memory anyway, and are therefore not charged.
    Shared(Bytes),
    Spliced(Splice),
    /// Parts of at most [`PIECE`] bytes that are charged already.
    Pieces(VecDeque<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
    Forwarded(mpsc::Receiver<ForwardedPart>),
    /// Parts that this server produces while they are sent.
    Produced(mpsc::Receiver<ForwardedPart>),
}

fn joined(pieces: &VecDeque<Bytes>) -> Bytes {
    let mut out = Vec::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        out.extend_from_slice(piece);
    }
    out.into()
}

/// A part of a body that marks its end explicitly.
#[derive(Debug)]
pub enum ForwardedPart {
    Frame(Frame<Bytes>),
    /// Marks a complete body. A body without it was cut short.
    End,
}

/// How to end a long-running response early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    /// As a complete response, because each part of it is: a watch of this server.
    Complete,
    /// As a complete response at the end of a line: a watch of another server, whose events are lines.
    AfterLine,
    /// As a failed response ([`TruncatedBody`]), so that the client notices that the rest is missing.
    Cut,
}

/// The body ended early; the connection must not signal a complete response.
#[derive(Debug, thiserror::Error)]
#[error("the response body ended early")]
pub struct TruncatedBody;

impl Body {
    pub fn empty() -> Self {
        Body::of(BodySource::Whole(Bytes::new()))
    }

    /// Wraps bytes that stay in memory anyway: a stored object, or a document that is built once.
    pub fn shared(bytes: Bytes) -> Self {
        Body::of(BodySource::Shared(bytes))
    }

    /// Returns a body that fails with [`TruncatedBody`] on the first poll.
    pub fn cut() -> Self {
        // The sender is dropped, so no [`ForwardedPart::End`] arrives.
        Body::of(BodySource::Forwarded(mpsc::channel(1).1))
    }

    /// Assembles a list while it is sent.
    pub fn spliced(splice: Splice) -> Self {
        Body::of(BodySource::Spliced(splice))
    }

    /// Sends pieces that were charged while they were built.
    pub fn pieces(pieces: VecDeque<Bytes>) -> Self {
        Body::of(BodySource::Pieces(pieces))
    }

    /// Sends chunks until the sender is dropped.
    pub fn stream(receiver: mpsc::Receiver<Bytes>) -> Self {
        Body::of(BodySource::Stream(receiver))
    }

    /// Sends the parts of another server's response until [`ForwardedPart::End`].
    pub fn forwarded(receiver: mpsc::Receiver<ForwardedPart>) -> Self {
        Body::of(BodySource::Forwarded(receiver))
    }

    /// Sends parts until [`ForwardedPart::End`], like [`Body::forwarded`], with the time limits of this server's own responses.
    pub fn produced(receiver: mpsc::Receiver<ForwardedPart>) -> Self {
        Body::of(BodySource::Produced(receiver))
    }

    fn of(inner: BodySource) -> Self {
        Body { inner, is_after_line: true, payer: None, running: None, _end: None }
    }

    /// Ends the response when `running` must end.
    pub(crate) fn long_running(self, running: Option<LongRunningRequest>, end: EarlyEnd) -> Self {
        Body { running: running.map(|running| (running, end)), ..self }
    }

    /// Ends a long-running response early.
    fn end_early(&mut self, end: EarlyEnd) {
        let is_complete = match end {
            EarlyEnd::Complete => true,
            EarlyEnd::AfterLine => self.is_after_line,
            EarlyEnd::Cut => false,
        };
        // A forwarded body without a sender is cut.
        self.inner = if is_complete { BodySource::Whole(Bytes::new()) } else { Body::cut().inner };
    }

    /// Attaches an audit event that is completed when the body is dropped.
    pub(crate) fn closing(self, end: RecordCloser) -> Self {
        Body { _end: Some(end), ..self }
    }

    /// Charges the body until it is sent. The senders of streams charge their own chunks.
    pub(crate) fn charge_to(&mut self, payer: Payer) -> Result<(), Status> {
        if let BodySource::Whole(bytes) = &mut self.inner {
            match payer.charge(std::mem::take(bytes)) {
                Ok(charged) => *bytes = charged,
                Err((uncharged, status)) => {
                    *bytes = uncharged;
                    return Err(status);
                }
            }
        }
        self.payer = Some(payer);
        Ok(())
    }

    /// Copies all bytes; `None` for a stream.
    pub fn bytes(&self) -> Option<Bytes> {
        match &self.inner {
            BodySource::Whole(bytes) | BodySource::Shared(bytes) => Some(bytes.clone()),
            BodySource::Spliced(splice) => Some(splice.clone().whole().into()),
            BodySource::Pieces(pieces) => Some(joined(pieces)),
            BodySource::Stream(_) | BodySource::Forwarded(_) | BodySource::Produced(_) => None,
        }
    }

    /// Returns all bytes; `None` for a stream.
    pub fn into_bytes(self) -> Option<Bytes> {
        match self.inner {
            BodySource::Whole(bytes) | BodySource::Shared(bytes) => Some(bytes),
            BodySource::Spliced(splice) => Some(splice.whole().into()),
            BodySource::Pieces(pieces) => Some(joined(&pieces)),
            BodySource::Stream(_) | BodySource::Forwarded(_) | BodySource::Produced(_) => None,
        }
    }

    /// Passes all bytes to `each` in pieces, which are dropped one after the other; none of a stream.
    pub fn try_for_each_piece<E>(self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self.inner {
            BodySource::Whole(bytes) | BodySource::Shared(bytes) => bytes.chunks(PIECE).try_for_each(each),
            BodySource::Spliced(mut splice) => splice.try_for_each(|piece| each(&piece)),
            BodySource::Pieces(pieces) => pieces.into_iter().try_for_each(|piece| each(&piece)),
            BodySource::Stream(_) | BodySource::Forwarded(_) | BodySource::Produced(_) => Ok(()),
        }
    }

    /// Returns the receiver of a watch stream; `None` for other bodies.
    pub fn into_stream(self) -> Option<mpsc::Receiver<Bytes>> {
        match self.inner {
            BodySource::Stream(receiver) => Some(receiver),
            BodySource::Whole(_)
            | BodySource::Shared(_)
            | BodySource::Spliced(_)
            | BodySource::Pieces(_)
            | BodySource::Forwarded(_)
            | BodySource::Produced(_) => None,
        }
    }

    /// Length in bytes; `None` for a stream.
    pub fn len(&self) -> Option<u64> {
        match &self.inner {
            BodySource::Whole(bytes) | BodySource::Shared(bytes) => Some(bytes.len() as u64),
            BodySource::Spliced(splice) => Some(splice.left()),
            BodySource::Pieces(pieces) => Some(pieces.iter().map(|piece| piece.len() as u64).sum()),
            BodySource::Stream(_) | BodySource::Forwarded(_) | BodySource::Produced(_) => None,
        }
    }

    /// False for streams, whose length is unknown.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Body::of(BodySource::Whole(bytes.into()))
    }
}

impl ResponseBody for Body {
    fn is_forwarded(&self) -> bool {
        matches!(self.inner, BodySource::Forwarded(_))
    }

    fn take_end_signal(&mut self) -> Option<EndSignal> {
        self.running.as_mut()?.0.take_end_signal()
    }

    fn of_refusal(text: &'static str) -> Self {
        Body::from(text)
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = TruncatedBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedBody>>> {
        if let Some((running, end)) = &mut self.running
            && running.poll_ended(cx).is_ready()
        {
            let end = *end;
            self.running = None;
            self.end_early(end);
        }
        let Body { inner, payer, is_after_line, .. } = &mut *self;
        match inner {
            BodySource::Whole(bytes) | BodySource::Shared(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodySource::Whole(bytes) | BodySource::Shared(bytes) => {
                let piece = if bytes.len() > PIECE { bytes.split_to(PIECE) } else { std::mem::take(bytes) };
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            BodySource::Spliced(splice) => {
                let piece = splice.next().map(|piece| match payer {
                    Some(payer) => payer.charge_anyway(piece),
                    None => piece,
                });
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
            BodySource::Pieces(pieces) => Poll::Ready(pieces.pop_front().map(|piece| Ok(Frame::data(piece)))),
            BodySource::Stream(receiver) => {
                receiver.poll_recv(cx).map(|chunk| chunk.map(|c| Ok(Frame::data(c))))
            }
            BodySource::Forwarded(receiver) | BodySource::Produced(receiver) => {
                let part = match receiver.poll_recv(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(ForwardedPart::Frame(frame))) => {
                        if let Some(last) = frame.data_ref().and_then(|data| data.last()) {
                            *is_after_line = *last == b'\n';
                        }
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    Poll::Ready(part) => part,
                };
                self.inner = BodySource::Whole(Bytes::new());
                Poll::Ready(part.is_none().then_some(Err(TruncatedBody)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.len().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests;

//! Bidirectional streams of messages.

use std::marker::PhantomData;
use std::pin::Pin;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use prost::Message;
use tokio::sync::mpsc;

use crate::channel::{check_headers, with_source};
use crate::frame::{self, FrameReader};
use crate::status::{GrpcCode, GrpcStatus};

type Responding = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// A bidirectional stream of messages. Dropping it ends the stream.
pub struct GrpcStream<Q, A> {
    messages: GrpcSender<Q>,
    received: ReceiveState,
    reader: FrameReader,
    endpoint: usize,
    answers: PhantomData<fn() -> A>,
}

/// The sending half of a stream; clones send to the same stream.
pub struct GrpcSender<Q> {
    messages: mpsc::Sender<Bytes>,
    requests: PhantomData<fn(Q)>,
}

enum ReceiveState {
    /// The response's headers have not arrived.
    Headers(Responding),
    Body(Incoming),
    Ended(Result<(), GrpcStatus>),
}

impl<Q, A> std::fmt::Debug for GrpcStream<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl<Q> std::fmt::Debug for GrpcSender<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamSender").finish_non_exhaustive()
    }
}

impl<Q> Clone for GrpcSender<Q> {
    fn clone(&self) -> Self {
        GrpcSender { messages: self.messages.clone(), requests: PhantomData }
    }
}

impl<Q: Message> GrpcSender<Q> {
    /// Sends a message; waits while too many are unsent.
    pub async fn send(&self, message: &Q) -> Result<(), GrpcStatus> {
        let message = frame::encode(message)?;
        self.messages.send(message).await.map_err(|_| GrpcStatus::not_sent("the stream has ended"))
    }
}

impl<Q: Message, A: Message + Default> GrpcStream<Q, A> {
    pub(crate) fn new(
        messages: mpsc::Sender<Bytes>,
        response: impl Future<Output = hyper::Result<Response<Incoming>>> + Send + 'static,
        max_message: usize,
        endpoint: usize,
    ) -> Self {
        GrpcStream {
            messages: GrpcSender { messages, requests: PhantomData },
            received: ReceiveState::Headers(Box::pin(response)),
            reader: FrameReader::new(max_message),
            endpoint,
            answers: PhantomData,
        }
    }

    /// The index of the endpoint that the stream is open at.
    pub fn endpoint(&self) -> usize {
        self.endpoint
    }

    /// The sending half. The stream stays open until all of them are dropped or the server ends it.
    pub fn sender(&self) -> GrpcSender<Q> {
        self.messages.clone()
    }

    /// The next message; `None` if the server has ended the stream without an error. Cancel safe: dropping the future loses no
    /// message.
    pub async fn next(&mut self) -> Result<Option<A>, GrpcStatus> {
        loop {
            if let Some(message) = self.reader.next()? {
                return Ok(Some(message));
            }
            match &mut self.received {
                ReceiveState::Headers(response) => {
                    self.received = match response.await {
                        Ok(response) => match check_headers(&response) {
                            Ok(()) => ReceiveState::Body(response.into_body()),
                            Err(status) => ReceiveState::Ended(Err(status)),
                        },
                        Err(error) => ReceiveState::Ended(Err(GrpcStatus::new(
                            GrpcCode::Unavailable,
                            with_source(&error),
                        ))),
                    };
                }
                ReceiveState::Body(body) => match body.frame().await {
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => self.reader.push(&data),
                        Err(frame) => {
                            let status = frame.into_trailers().ok().as_ref().and_then(GrpcStatus::read);
                            self.received = ReceiveState::Ended(status.unwrap_or_else(without_status));
                        }
                    },
                    Some(Err(error)) => {
                        let broken = format!("the stream broke: {}", with_source(&error));
                        self.received =
                            ReceiveState::Ended(Err(GrpcStatus::new(GrpcCode::Unavailable, broken)));
                    }
                    None => self.received = ReceiveState::Ended(without_status()),
                },
                ReceiveState::Ended(status) => return status.clone().map(|()| None),
            }
        }
    }
}

fn without_status() -> Result<(), GrpcStatus> {
    Err(GrpcStatus::new(GrpcCode::Unavailable, "the stream ended without a status"))
}

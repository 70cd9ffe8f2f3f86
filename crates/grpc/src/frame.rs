//! Length-prefixed messages: one byte for compression, four for the length, then the message.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::status::{GrpcCode, GrpcStatus};

const PREFIX: usize = 5;

/// Encodes a message with its prefix.
pub(crate) fn encode(message: &impl Message) -> Result<Bytes, GrpcStatus> {
    let length = message.encoded_len();
    let Ok(prefix) = u32::try_from(length) else {
        return Err(GrpcStatus {
            may_have_run: false,
            ..GrpcStatus::new(GrpcCode::InvalidArgument, "the request is too large")
        });
    };
    let mut buffer = BytesMut::with_capacity(PREFIX + length);
    buffer.put_u8(0);
    buffer.put_u32(prefix);
    // INVARIANT: the buffer grows, so that encoding cannot fail.
    let _ = message.encode(&mut buffer);
    Ok(buffer.freeze())
}

/// Cuts the messages out of the data of a response.
#[derive(Debug)]
pub(crate) struct FrameReader {
    buffer: BytesMut,
    /// Longer messages are refused.
    max_message: usize,
}

impl FrameReader {
    pub(crate) fn new(max_message: usize) -> Self {
        FrameReader { buffer: BytesMut::new(), max_message }
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next message that has arrived completely.
    pub(crate) fn next<M: Message + Default>(&mut self) -> Result<Option<M>, GrpcStatus> {
        let Some((prefix, _)) = self.buffer.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(GrpcStatus::new(
                GrpcCode::Unimplemented,
                "the server sent a compressed message, which was not asked for",
            ));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.max_message {
            let limit = self.max_message;
            let message = format!("the server sent a message of {length} bytes, and the limit is {limit}");
            return Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message));
        }
        let missing = (PREFIX + length).saturating_sub(self.buffer.len());
        if missing > 0 {
            // One allocation for a large message, instead of doubling while its data arrives.
            self.buffer.reserve(missing);
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        let undecodable = |error| {
            GrpcStatus::new(GrpcCode::Internal, format!("the server's message cannot be decoded: {error}"))
        };
        M::decode(message).map(Some).map_err(undecodable)
    }
}

#[cfg(test)]
mod tests;

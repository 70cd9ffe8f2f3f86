//! Responses that are built in memory. They are charged to the client while they are built, because indented JSON and YAML may be a hundred
//! times as large as the stored bytes.

use std::io::Write as _;

use api::Status;
use bytes::Bytes;
use catalog::ServedResource;
use catalog::encode::Indenter;
use flate2::Compression;
use flate2::write::GzEncoder;
use requests::negotiate::{Media, NegotiatedResponse};
use transport::unsent::UnsentPieces;
use value::order::KeyOrder;
use value::{Map, Value, yaml};

use super::order_of;
use crate::body::Body;
use crate::call::Call;

/// The body of a response that was built. A write is stored, so its response must not say that it was refused: it is cut short.
pub fn finished(call: &Call, built: Result<(), Status>, out: UnsentPieces) -> Result<Body, Status> {
    if out.is_refused() && call.effort.has_written() {
        return Ok(Body::cut());
    }
    built?;
    out.finish().map(Body::pieces)
}

/// An object in this media type.
pub(super) fn object(
    call: &Call,
    value: &Value,
    order: &'static KeyOrder,
    accepted: NegotiatedResponse,
) -> Result<Body, Status> {
    if accepted.media == Media::Json && !accepted.pretty {
        return Ok(Body::from(super::render(value, order, accepted.media, false)));
    }
    let mut out = UnsentPieces::new(call.payer.clone());
    let built = match accepted.media {
        Media::Json => {
            let mut json = Vec::with_capacity(512);
            order.write(&mut json, value);
            Indenter::default().write(&json, &mut out).or_else(|_| out.check())
        }
        Media::Yaml => yaml::write_to(value, &mut out).or_else(|_| out.check()),
    };
    finished(call, built, out)
}

/// Stored JSON, indented by two spaces a level.
pub(super) fn indented(call: &Call, json: &Bytes) -> Result<Body, Status> {
    let mut out = UnsentPieces::new(call.payer.clone());
    let built = Indenter::default().write(json, &mut out).or_else(|_| out.check());
    finished(call, built, out)
}

/// The body compressed with gzip, piece by piece. It must not be a stream.
pub(super) fn compressed(call: &Call, body: Body) -> Result<Body, Status> {
    let mut encoder = GzEncoder::new(UnsentPieces::new(call.payer.clone()), Compression::fast());
    let written = body.try_for_each_piece(|piece| {
        call.effort.check()?;
        encoder.write_all(piece).map_err(Status::internal)
    });
    let out = match written.and_then(|()| encoder.try_finish().map_err(Status::internal)) {
        Ok(()) => encoder.finish().map_err(Status::internal)?,
        Err(status) => return Err(encoder.get_ref().check().err().unwrap_or(status)),
    };
    finished(call, Ok(()), out)
}

/// Writes a list item by item, with the bytes that [`super::render`] writes for the whole list.
pub struct ListWriter {
    /// The list without items.
    frame: Map,
    /// The name of the list's items.
    key: &'static str,
    order: &'static KeyOrder,
    media: Media,
    indenter: Option<Indenter>,
    state: WriterState,
}

enum WriterState {
    Empty,
    /// At least one item of a JSON list is written.
    Json {
        /// The bytes that follow the last item.
        foot: Vec<u8>,
        of_items: &'static KeyOrder,
    },
    /// At least one item of a YAML list is written.
    Yaml {
        /// The fields that follow the last item.
        foot: Map,
    },
}

impl ListWriter {
    /// `frame` is the list without items, which are called `key`.
    pub fn begin(
        kind: &ServedResource,
        frame: Value,
        key: &'static str,
        accepted: NegotiatedResponse,
    ) -> Self {
        let order = order_of(Some(kind), &frame);
        let frame = if let Value::Map(frame) = frame { frame } else { Map::new() };
        let indenter = (accepted.media == Media::Json && accepted.pretty).then(Indenter::default);
        ListWriter { frame, key, order, media: accepted.media, indenter, state: WriterState::Empty }
    }

    pub fn item(&mut self, item: Value, out: &mut UnsentPieces) -> Result<(), Status> {
        match (&self.state, self.media) {
            (WriterState::Empty, Media::Json) => {
                let (mut json, foot, of_items) = self.order.around(&self.frame, self.key);
                of_items.write(&mut json, &item);
                self.state = WriterState::Json { foot, of_items };
                self.json(&json, out)
            }
            (WriterState::Empty, Media::Yaml) => {
                // The keys of lists begin with letters, which goyaml sorts as this map does.
                let fields = std::mem::take(&mut self.frame).into_iter().filter(|(name, _)| name != self.key);
                let (head, foot): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| name.as_str() < self.key);
                yaml_fields(head.into_iter().collect(), out)?;
                out.push(self.key.as_bytes())?;
                out.push(b":\n")?;
                self.state = WriterState::Yaml { foot: foot.into_iter().collect() };
                yaml_item(item, out)
            }
            (WriterState::Json { of_items, .. }, _) => {
                let mut json = vec![b','];
                of_items.write(&mut json, &item);
                self.json(&json, out)
            }
            (WriterState::Yaml { .. }, _) => yaml_item(item, out),
        }
    }

    /// Writes the end of the list.
    pub fn finish(mut self, out: &mut UnsentPieces) -> Result<(), Status> {
        match std::mem::replace(&mut self.state, WriterState::Empty) {
            WriterState::Empty => {
                let frame = Value::Map(self.frame);
                out.push(&super::render(&frame, self.order, self.media, self.indenter.is_some()))
            }
            WriterState::Json { mut foot, .. } => {
                if self.indenter.is_none() {
                    foot.push(b'\n');
                }
                self.json(&foot, out)
            }
            WriterState::Yaml { foot } => yaml_fields(foot, out),
        }
    }

    fn json(&mut self, json: &[u8], out: &mut UnsentPieces) -> Result<(), Status> {
        match &mut self.indenter {
            None => out.push(json),
            Some(indenter) => indenter.write(json, out).or_else(|_| out.check()),
        }
    }
}

/// An item of a list below a key. It is indented like a list of its own, because goyaml does not indent lists below keys.
fn yaml_item(item: Value, out: &mut UnsentPieces) -> Result<(), Status> {
    yaml::write_to(&Value::List(vec![item]), out).or_else(|_| out.check())
}

fn yaml_fields(fields: Map, out: &mut UnsentPieces) -> Result<(), Status> {
    if fields.is_empty() {
        return Ok(());
    }
    yaml::write_to(&Value::Map(fields), out).or_else(|_| out.check())
}

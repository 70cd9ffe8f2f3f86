//! Finds PEM blocks exactly as Go's `encoding/pem` does, and writes them.
//!
//! Go looks for an END line first and then for the last BEGIN before it. It skips malformed blocks without an error
//! and continues after them. A stricter parser could find another block than Go.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";
/// Characters of base64 in a line.
const LINE: usize = 64;

/// Like Go's `base64.StdEncoding`: padding is required, and the unused bits of the last character are ignored.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A decoded PEM block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemBlock {
    /// The label after BEGIN. Bytes that are not UTF-8 are replaced.
    pub label: String,
    /// True if there are `Key: Value` lines before the contents.
    pub has_headers: bool,
    /// The contents, decoded from base64.
    pub bytes: Vec<u8>,
}

/// Writes a block without headers, in lines of 64 characters.
pub fn encode(label: &str, bytes: &[u8]) -> String {
    let text = BASE64.encode(bytes);
    let mut pem = format!("-----BEGIN {label}-----\n");
    let mut rest = text.as_str();
    while let Some((line, more)) =
        rest.split_at_checked(LINE.min(rest.len())).filter(|(line, _)| !line.is_empty())
    {
        pem.push_str(line);
        pem.push('\n');
        rest = more;
    }
    pem.extend(["-----END ", label, "-----\n"]);
    pem
}

/// The first block and the remaining text.
pub fn decode(data: &[u8]) -> Option<(PemBlock, &[u8])> {
    let mut from = 0;
    loop {
        let end = from + find(data.get(from..)?, END)?;
        let trailer = end + END.len();
        match block_before(data, from, end) {
            BlockSearch::Block(block) => {
                let (_, length) = line(data.get(trailer - 1..)?);
                return Some((block, data.get(trailer - 1 + length..)?));
            }
            BlockSearch::Malformed => from = trailer,
            BlockSearch::Nothing => return None,
        }
    }
}

/// All blocks; text that is not a block is skipped.
pub fn blocks(data: &[u8]) -> impl Iterator<Item = PemBlock> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (block, after) = decode(rest)?;
        rest = after;
        Some(block)
    })
}

/// The DER of all certificates. Skips other blocks and, like Go's `AppendCertsFromPEM`, blocks with headers.
pub fn certificates(data: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    blocks(data).filter(PemBlock::is_certificate).map(|block| block.bytes)
}

impl PemBlock {
    /// True for a certificate without headers.
    pub fn is_certificate(&self) -> bool {
        self.label == "CERTIFICATE" && !self.has_headers
    }
}

enum BlockSearch {
    Block(PemBlock),
    /// Malformed: the search continues after the END line.
    Malformed,
    /// The search ends without a block.
    Nothing,
}

/// The block between the last BEGIN of `data[from..end]` and the END at `end`.
fn block_before(data: &[u8], from: usize, end: usize) -> BlockSearch {
    let trailer = end + END.len();
    let Some(begin) = data.get(from..end).and_then(|text| find_last(text, BEGIN)).map(|at| from + at) else {
        return BlockSearch::Malformed;
    };
    // The start of the search counts as the start of a line, whatever precedes it.
    if begin > from && data.get(begin - 1) != Some(&b'\n') {
        return BlockSearch::Malformed;
    }
    let mut at = begin + BEGIN.len();
    let (label, length) = line(data.get(at..).unwrap_or_default());
    at += length;
    let Some(label) = label.strip_suffix(DASHES) else { return BlockSearch::Malformed };

    let mut has_headers = false;
    loop {
        let rest = data.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return BlockSearch::Nothing;
        }
        let (header, length) = line(rest);
        if !header.contains(&b':') {
            break;
        }
        has_headers = true;
        at += length;
    }
    if has_headers && end < at {
        return if trailer < at { BlockSearch::Nothing } else { BlockSearch::Malformed };
    }

    let closed = data
        .get(trailer..)
        .and_then(|tail| tail.strip_prefix(label))
        .and_then(|tail| tail.strip_prefix(DASHES))
        .is_some_and(|tail| line(tail).0.is_empty());
    if !closed {
        return BlockSearch::Malformed;
    }
    let text = data.get(at..end).unwrap_or_default();
    let text: Vec<u8> =
        text.iter().copied().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).collect();
    match BASE64.decode(text) {
        Ok(bytes) => BlockSearch::Block(PemBlock {
            label: String::from_utf8_lossy(label).into_owned(),
            has_headers,
            bytes,
        }),
        Err(_) => BlockSearch::Malformed,
    }
}

/// The first line without its line end and trailing spaces, and its length with the line end.
fn line(data: &[u8]) -> (&[u8], usize) {
    let (mut text, length) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => {
            let text = data.get(..at).unwrap_or_default();
            (text.strip_suffix(b"\r").unwrap_or(text), at + 1)
        }
        None => (data, data.len()),
    };
    while let [start @ .., b' ' | b'\t'] = text {
        text = start;
    }
    (text, length)
}

fn find(data: &[u8], wanted: &[u8]) -> Option<usize> {
    data.windows(wanted.len()).position(|window| window == wanted)
}

fn find_last(data: &[u8], wanted: &[u8]) -> Option<usize> {
    data.windows(wanted.len()).rposition(|window| window == wanted)
}

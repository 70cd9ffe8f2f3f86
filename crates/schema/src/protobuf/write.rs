//! Writes fields in the protobuf wire format, independently of any schema.

use value::push_varint;

/// Appends the tag of a field. The wire types are 0 (varint), 1 (64 bits) and 2 (length-delimited).
fn tag(out: &mut Vec<u8>, number: usize, wire_type: u64) {
    push_varint(out, (number as u64) << 3 | wire_type);
}

/// Appends a varint field. Negative numbers take ten bytes, also those of 32 bits.
pub fn int(out: &mut Vec<u8>, number: usize, value: i64) {
    tag(out, number, 0);
    push_varint(out, value.cast_unsigned());
}

/// Appends a field of 64 bits.
pub(super) fn double(out: &mut Vec<u8>, number: usize, value: f64) {
    tag(out, number, 1);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends a length-delimited field: text, bytes or an encoded message.
pub fn bytes(out: &mut Vec<u8>, number: usize, content: &[u8]) {
    tag(out, number, 2);
    push_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// Appends a message field: writes its content, then inserts the length before it.
pub(super) fn nested(
    out: &mut Vec<u8>,
    number: usize,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    tag(out, number, 2);
    let start = out.len();
    content(out)?;
    let mut length = Vec::new();
    push_varint(&mut length, (out.len() - start) as u64);
    out.splice(start..start, length);
    Ok(())
}

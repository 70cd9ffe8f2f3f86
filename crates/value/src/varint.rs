/// Appends `number` in little-endian base 128: seven bits in each byte, with the top bit set in all but the last one.
pub fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    (number & 0x7f) as u8
}

#[cfg(test)]
mod tests {
    use super::push_varint;

    #[test]
    fn numbers_take_one_byte_for_each_seven_bits() {
        let encoded = |number| {
            let mut out = Vec::new();
            push_varint(&mut out, number);
            out
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(0x7f), [0x7f]);
        assert_eq!(encoded(0x80), [0x80, 1]);
        assert_eq!(encoded(300), [0xac, 2]);
        assert_eq!(encoded(u64::MAX), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }
}

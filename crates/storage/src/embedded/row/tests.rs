use super::{LogRow, decode, encode};
use crate::backend::Done;
use crate::record::{Change, Record};

fn rows() -> [LogRow; 2] {
    let record = Record { body: "{}".into(), revision_at: 1, facts: "facts".into() };
    let put = Done { key: "/r/g/t/a".into(), revision: 9, created: 3, change: Change::Put(record) };
    let delete = Done { revision: 11, change: Change::Delete, ..put.clone() };
    [LogRow { done: put, previous: 3 }, LogRow { done: delete, previous: 9 }]
}

#[test]
fn rows_round_trip() {
    for row in rows() {
        let bytes = encode(&row.done, row.previous).unwrap();
        assert_eq!(decode(row.done.revision, &bytes), Some(row));
    }
}

#[test]
fn rows_with_a_flipped_bit_or_truncation_are_rejected() {
    for row in rows() {
        let bytes = encode(&row.done, row.previous).unwrap();
        assert_eq!(decode(row.done.revision + 1, &bytes), None);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(row.done.revision, &damaged), None, "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(decode(row.done.revision, &bytes[..length]), None);
        }
    }
}

#[test]
fn a_key_too_long_to_be_written_is_refused() {
    let [LogRow { done, .. }, _] = rows();
    let long = Done { key: format!("/{}", "a".repeat(70_000)).into(), ..done };
    assert_eq!(encode(&long, 0), None);
}

use std::time::Duration;

use super::{LogRow, decode, encode};
use crate::backend::DecidedChange;
use crate::record::{Change, Record};

fn rows() -> [LogRow; 3] {
    let record = Record { body: "{}".into(), revision_at: 1, facts: "facts".into() };
    let put = DecidedChange { key: "/r/g/t/a".into(), revision: 9, created: 3, change: Change::Put(record) };
    let delete = DecidedChange { revision: 11, change: Change::Delete, ..put.clone() };
    let expiring = LogRow {
        done: DecidedChange { revision: 10, ..put.clone() },
        previous: 9,
        deadline: Some(Duration::from_millis(1_700_000_000_123)),
    };
    [
        LogRow { done: put, previous: 3, deadline: None },
        LogRow { done: delete, previous: 9, deadline: None },
        expiring,
    ]
}

#[test]
fn rows_round_trip() {
    for row in rows() {
        let bytes = encode(&row.done, row.previous, row.deadline).unwrap();
        assert_eq!(decode(row.done.revision, &bytes), Some(row));
    }
}

#[test]
fn rows_with_a_flipped_bit_or_truncation_are_rejected() {
    for row in rows() {
        let bytes = encode(&row.done, row.previous, row.deadline).unwrap();
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
    let [LogRow { done, .. }, ..] = rows();
    let long = DecidedChange { key: format!("/{}", "a".repeat(70_000)).into(), ..done };
    assert_eq!(encode(&long, 0, None), None);
}

//! Makes a stored object unreadable in the database of a stopped server, by overwriting a byte of its value in the file.
//!
//! `crates/storage/src/embedded/row.rs` documents the rows. The row keeps a valid checksum, as if the server had written such an object.
//! The checksum of redb's page does not matter: redb verifies pages only after a crash.

use std::fs;
use std::path::Path;

use flate2::Crc;

const PUT: u8 = 1;
const CHECKSUM: usize = 4;
/// The bytes from the start of a row to the length of its key.
const HEAD: usize = CHECKSUM + 1 + 8 + 8;
/// No row of a test is longer.
const MOST: usize = 64 * 1024;

/// The checksum of a row without its checksum.
fn checksum(revision: u64, row: &[u8]) -> u32 {
    crc_after(revision, row).sum()
}

fn crc_after(revision: u64, row: &[u8]) -> Crc {
    let mut crc = Crc::new();
    crc.update(&revision.to_le_bytes());
    crc.update(row);
    crc
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The end of the row that begins at `start`: where its checksum matches. `None` if there is none: a page that redb no longer uses may
/// contain a part of a row.
fn end_of_row(file: &[u8], start: usize, revision: u64) -> Option<usize> {
    let wanted = number(file, start);
    let mut crc = crc_after(revision, &[]);
    (start + CHECKSUM..file.len().min(start + MOST)).find_map(|at| {
        crc.update(&file[at..=at]);
        (crc.sum() == wanted).then_some(at + 1)
    })
}

/// Replaces the opening brace of the object under `key`, which was last written at `revision`.
pub(crate) fn break_row(database: &Path, key: &str, revision: u64) {
    let mut file = fs::read(database).unwrap();
    let length = u16::try_from(key.len()).unwrap();
    let named = [&length.to_le_bytes()[..], key.as_bytes()].concat();
    let candidates: Vec<usize> = (HEAD..file.len().saturating_sub(named.len() + 8))
        .filter(|at| file[*at..].starts_with(&named) && file[at - HEAD + CHECKSUM] == PUT)
        .collect();
    let mut broken = 0;
    for at in candidates {
        let start = at - HEAD;
        let Some(end) = end_of_row(&file, start, revision) else { continue };
        let facts = at + named.len() + 4;
        let body = facts + 4 + usize::try_from(number(&file, facts)).unwrap();
        assert_eq!(file[body], b'{', "the value of {key} is not a JSON object");
        file[body] = b'!';
        let sum = checksum(revision, &file[start + CHECKSUM..end]);
        file[start..start + CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        broken += 1;
    }
    assert!(broken > 0, "no row of {key} at revision {revision}");
    fs::write(database, file).unwrap();
}

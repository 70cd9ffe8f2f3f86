//! The format of a snapshot, and that every damage is detected.

use std::path::Path;

use super::{
    SNAPSHOT_FORMAT, SnapshotEncoder, SnapshotEntry, SnapshotEntryError, SnapshotError, SnapshotHeader,
    SnapshotReader, SnapshotSummary, SnapshotWriter,
};
use crate::record::Record;

fn header() -> SnapshotHeader {
    SnapshotHeader { revision: 900, store_format: 2, saved_at: 1_794_777_641, program: "test 1".to_owned() }
}

fn entry(key: &str, revision: u64, body: &str) -> SnapshotEntry {
    let record = Record { body: body.to_owned().into(), revision_at: 1, facts: key.to_owned().into() };
    SnapshotEntry { key: key.into(), created: revision / 2, revision, version: 3, record }
}

fn entries() -> Vec<SnapshotEntry> {
    vec![entry("/a/1", 7, "{}"), entry("/a/2", 900, &"x".repeat(300)), entry("/b", 2, "{\"a\":1}")]
}

fn encode(header: SnapshotHeader, entries: &[SnapshotEntry]) -> (Vec<u8>, SnapshotSummary) {
    let mut file = Vec::new();
    let mut writer = SnapshotWriter::new(header, &mut file);
    for entry in entries {
        writer.entry(entry).unwrap();
    }
    let summary = writer.finish().unwrap();
    (file, summary)
}

fn read(file: &[u8]) -> Result<(Vec<SnapshotEntry>, SnapshotSummary), SnapshotError> {
    let mut reader = SnapshotReader::new(file, Path::new("/backup/s"))?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        assert!(reader.summary().is_none(), "before the end nothing is proven");
        entries.push(entry);
    }
    Ok((entries, reader.summary().unwrap().clone()))
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let (file, written) = encode(header(), &entries());
    let (found, summary) = read(&file).unwrap();
    assert_eq!(found, entries());
    assert_eq!(summary, written);
    assert_eq!((summary.entries, summary.bytes), (3, file.len() as u64));
    assert_eq!(summary.header, header());
    let (file, written) = encode(header(), &[]);
    assert_eq!(read(&file).unwrap(), (Vec::new(), written), "an empty store");
}

#[test]
fn the_digest_depends_on_revisions_and_entries_but_not_on_the_time() {
    let digest = |header, entries: &[_]| encode(header, entries).1.digest;
    let expected = digest(header(), &entries());
    assert_eq!(
        expected.to_string(),
        "bb14cb063822f641c950fc4543dbf379deb9a9002b42a3eb694f4c92ce8ae4ff",
        "the digest of a given content never changes: users compare it"
    );
    let later = SnapshotHeader { saved_at: 5, program: "test 2".to_owned(), ..header() };
    assert_eq!(digest(later, &entries()), expected);
    assert_ne!(digest(SnapshotHeader { revision: 901, ..header() }, &entries()), expected);
    for change in [
        |entry: &mut SnapshotEntry| entry.revision = 8,
        |entry: &mut SnapshotEntry| entry.created = 1,
        |entry: &mut SnapshotEntry| entry.version = 4,
        |entry: &mut SnapshotEntry| entry.key = "/a/11".into(),
        |entry: &mut SnapshotEntry| entry.record.body = "{ }".into(),
        |entry: &mut SnapshotEntry| entry.record.revision_at = 2,
        |entry: &mut SnapshotEntry| entry.record.facts = "f".into(),
    ] {
        let mut changed = entries();
        change(&mut changed[0]);
        assert_ne!(digest(header(), &changed), expected, "{:?}", changed[0]);
    }
}

#[test]
fn a_change_of_any_byte_is_detected() {
    let (file, _) = encode(header(), &entries());
    for at in 0..file.len() {
        for bit in [0x01, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= bit;
            let error = read(&damaged).expect_err("the damage must be detected");
            let offset = match error {
                SnapshotError::NotASnapshot(_) if at < 16 => continue,
                SnapshotError::Format { .. } if (16..20).contains(&at) => continue,
                SnapshotError::Damaged { offset, .. } => offset,
                // A damaged length can reach beyond the end.
                SnapshotError::Truncated { offset, .. } => {
                    assert_eq!(offset, file.len() as u64);
                    continue;
                }
                other => panic!("byte {at}: {other}"),
            };
            let distance = (at as u64).checked_sub(offset);
            assert!(distance.is_some_and(|distance| distance < 400), "byte {at} is reported as {offset}");
        }
    }
}

#[test]
fn a_file_truncated_at_any_byte_is_detected() {
    let (file, _) = encode(header(), &entries());
    for length in 0..file.len() {
        match read(&file[..length]).expect_err("a truncated file must be detected") {
            SnapshotError::NotASnapshot(_) => assert!(length < 16),
            SnapshotError::Truncated { offset, .. } => assert_eq!(offset, length as u64),
            other => panic!("{length} bytes: {other}"),
        }
    }
}

#[test]
fn moved_repeated_missing_and_added_frames_are_detected() {
    // Three entries of equal length.
    let equal = [entry("/a", 4, "{}"), entry("/b", 6, "{}"), entry("/c", 8, "{}")];
    let mut file = Vec::new();
    let mut ends = Vec::new();
    let mut encoder = SnapshotEncoder::new(header(), &mut file);
    ends.push(file.len());
    for entry in &equal {
        encoder.entry(entry, &mut file).unwrap();
        ends.push(file.len());
    }
    encoder.finish(&mut file);
    let [start, a, b, c] = ends[..] else { panic!() };
    let join = |parts: &[&[u8]]| parts.concat();
    for (what, damaged) in [
        ("moved", join(&[&file[..start], &file[a..b], &file[start..a], &file[b..]])),
        ("repeated", join(&[&file[..a], &file[start..a], &file[b..]])),
        ("missing", join(&[&file[..b], &file[c..]])),
        ("added", join(&[&file, b"\n"])),
        ("a second snapshot", join(&[&file, &file])),
    ] {
        assert!(matches!(read(&damaged), Err(SnapshotError::Damaged { .. })), "{what}");
    }
}

#[test]
fn errors_name_the_file_and_the_offset() {
    let (mut file, _) = encode(header(), &entries());
    let message = |file: &[u8]| read(file).unwrap_err().to_string();
    assert_eq!(
        message(&file[..100]),
        "`/backup/s` is truncated: it ends at byte 100, within the entries; use another copy of the snapshot"
    );
    assert_eq!(message(b"{}"), "`/backup/s` is not a Portcullis snapshot: it does not begin like one");
    file[70] ^= 1;
    assert_eq!(
        message(&file),
        "`/backup/s` is damaged at byte 55: a checksum does not match; use another copy of the snapshot"
    );
    file[16] = 2;
    assert_eq!(
        message(&file),
        format!(
            "`/backup/s` has snapshot format 2, and this build reads format {SNAPSHOT_FORMAT} only; use the version of Portcullis that saved it"
        )
    );
}

#[test]
fn entries_that_contradict_each_other_are_rejected() {
    let mut out = Vec::new();
    let mut encoder = SnapshotEncoder::new(header(), &mut out);
    encoder.entry(&entry("/b", 4, "{}"), &mut out).unwrap();
    for key in ["/a", "/b"] {
        let refused = encoder.entry(&entry(key, 6, "{}"), &mut out);
        assert_eq!(refused, Err(SnapshotEntryError::Order { key: key.into(), after: "/b".into() }));
    }
    let long = entry(&format!("/{}", "k".repeat(70_000)), 4, "{}");
    assert_eq!(encoder.entry(&long, &mut out), Err(SnapshotEntryError::TooLarge(long.key)));
    for (bad, why) in [
        (entry("no-path", 4, "{}"), "the entry `no-path` is not valid"),
        (entry("/a", 901, "{}"), "the revisions of the entry `/a` are not valid"),
        (
            SnapshotEntry { created: 5, ..entry("/a", 4, "{}") },
            "the revisions of the entry `/a` are not valid",
        ),
        (entry("/a", 4, ""), "the entry `/a` is not valid"),
    ] {
        let error = read(&encode(header(), &[bad]).0).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

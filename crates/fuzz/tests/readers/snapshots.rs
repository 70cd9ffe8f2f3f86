//! Snapshots of the store, with checksums that are wrong and with checksums that fit the changed content.

use std::path::Path;

use fuzz::Corpus;
use sha2::{Digest as _, Sha256};
use storage::Record;
use storage::snapshot::{SnapshotEncoder, SnapshotEntry, SnapshotError, SnapshotHeader, SnapshotReader};

/// The length of the file before its first frame: the magic bytes and the format.
const PREAMBLE: usize = 20;
/// A frame before its payload: checksum, type and length.
const FRAME: usize = 9;
/// The types of the frames of entries and of the end.
const ENTRY: u8 = 2;
const END: u8 = 3;

fn write(header: SnapshotHeader, entries: &[SnapshotEntry]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = SnapshotEncoder::new(header, &mut file);
    for entry in entries {
        encoder.entry(entry, &mut file).unwrap();
    }
    encoder.finish(&mut file);
    file
}

fn read(file: &[u8]) -> Result<(SnapshotHeader, Vec<SnapshotEntry>), SnapshotError> {
    let mut reader = SnapshotReader::new(file, Path::new("/s"))?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        entries.push(entry);
    }
    Ok((reader.header().clone(), entries))
}

/// The file with lengths, checksums and a digest that fit its content, so that the content itself is read.
fn repaired(file: &[u8]) -> Vec<u8> {
    let mut repaired = file.get(..PREAMBLE).unwrap_or(file).to_vec();
    let mut rest = file.get(PREAMBLE..).unwrap_or_default();
    let (mut digest, mut entries) = (Sha256::new(), 0_u64);
    while rest.len() >= FRAME {
        let (head, after) = rest.split_at(FRAME);
        let kind = head[4];
        let wanted = u32::from_le_bytes([head[5], head[6], head[7], head[8]]) as usize;
        let (payload, after) = after.split_at(wanted.min(after.len()));
        let mut payload = payload.to_vec();
        rest = after;
        match kind {
            ENTRY => {
                digest.update((payload.len() as u64).to_le_bytes());
                digest.update(&payload);
                entries += 1;
            }
            END => {
                payload = entries.to_le_bytes().to_vec();
                payload.extend_from_slice(&digest.clone().finalize());
            }
            // The revision and the format of the header.
            _ => digest.update(payload.get(..12).unwrap_or(&payload)),
        }
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&(repaired.len() as u64).to_le_bytes());
        checksum.update(&[kind]);
        checksum.update(&length);
        checksum.update(&payload);
        repaired.extend_from_slice(&checksum.finalize().to_le_bytes());
        repaired.push(kind);
        repaired.extend_from_slice(&length);
        repaired.extend_from_slice(&payload);
    }
    repaired.extend_from_slice(rest);
    repaired
}

#[test]
fn a_snapshot_that_is_accepted_is_written_back_byte_for_byte() {
    let header = |revision, program: &str| SnapshotHeader {
        revision,
        store_format: 2,
        saved_at: 1_794_777_641,
        program: program.to_owned(),
    };
    let entry = |key: &str, revision, body: &str| SnapshotEntry {
        key: key.into(),
        created: 1,
        revision,
        version: 3,
        record: Record { body: body.to_owned().into(), revision_at: 1, facts: "facts".into() },
    };
    let seeds = [
        write(header(1, ""), &[]),
        write(header(9, "portcullis"), &[entry("/a/1", 7, "{}")]),
        write(header(9, "p"), &[entry("/a/1", 7, "{}"), entry("/a/2", 9, "{\"a\":1}"), entry("/b", 2, "{}")]),
    ];
    for seed in &seeds {
        assert_eq!(repaired(seed), *seed);
        let (header, entries) = read(seed).unwrap();
        assert_eq!(write(header, &entries), *seed);
    }
    let tokens =
        ["portcullis snap\n", "\x01\0\0\0", "\0\0\0\0", "\x02", "\x03", "/", "/a/", "\u{7f}", "{}", "\n"];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        for file in [input.to_vec(), repaired(input)] {
            if let Ok((header, entries)) = read(&file)
                && write(header, &entries) != file
            {
                return Err("the snapshot is written in another form".to_owned());
            }
        }
        Ok(())
    });
}

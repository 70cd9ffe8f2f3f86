//! The mark of a store that a migration has begun to fill and not completed.

/// First line of an encoded marker.
const FIRST_LINE: &str = "portcullis migration 1";
/// Longest encoded marker that is read.
const MAX_BYTES: usize = 64 << 10;

/// Identifies a migration, so that it can be resumed. The target has it from before its first record until all records are verified.
///
/// Encoded as text, one `name value` per line, so that an operator who finds it can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationMarker {
    /// The revision at which the source is read.
    pub source_revision: u64,
    /// Digest of the source at that revision, in hexadecimal.
    pub digest: String,
    /// The revision of the target before the first record.
    pub target_revision: u64,
    /// The command that resumes the migration.
    pub resume: String,
}

impl MigrationMarker {
    pub fn encode(&self) -> Vec<u8> {
        let MigrationMarker { source_revision, digest, target_revision, resume } = self;
        let resume = resume.replace('\n', " ");
        let text = format!(
            "{FIRST_LINE}\nsource-revision {source_revision}\ndigest {digest}\ntarget-revision {target_revision}\nresume {resume}\n"
        );
        text.into_bytes()
    }

    /// `None` if this is not a marker, or one of another version.
    pub fn decode(bytes: &[u8]) -> Option<MigrationMarker> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_BYTES)?;
        let rest = text.strip_prefix(FIRST_LINE)?.strip_prefix('\n')?;
        let field = |name: &str| {
            rest.lines().find_map(|line| line.strip_prefix(name).and_then(|line| line.strip_prefix(' ')))
        };
        Some(MigrationMarker {
            source_revision: field("source-revision")?.parse().ok()?,
            digest: field("digest")?.to_owned(),
            target_revision: field("target-revision")?.parse().ok()?,
            resume: field("resume")?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::MigrationMarker;

    fn marker() -> MigrationMarker {
        MigrationMarker {
            source_revision: 7,
            digest: "ab".to_owned(),
            target_revision: 0,
            resume: "portcullis migrate --from-data-dir 'a b'".to_owned(),
        }
    }

    #[test]
    fn a_marker_reads_back_equal() {
        assert_eq!(MigrationMarker::decode(&marker().encode()), Some(marker()));
    }

    #[test]
    fn a_line_feed_in_the_command_does_not_add_a_field() {
        let forged = MigrationMarker { resume: "a\ndigest cd".to_owned(), ..marker() };
        let read = MigrationMarker::decode(&forged.encode()).unwrap();
        assert_eq!((read.digest.as_str(), read.resume.as_str()), ("ab", "a digest cd"));
    }

    #[test]
    fn other_bytes_and_other_versions_are_no_marker() {
        let text = String::from_utf8(marker().encode()).unwrap();
        for other in [
            text.replace("migration 1", "migration 2"),
            text.replace("digest", "x"),
            text.replace("revision 7", "revision x"),
        ] {
            assert_eq!(MigrationMarker::decode(other.as_bytes()), None, "{other}");
        }
        for other in [&b""[..], b"\xff", b"portcullis migration 1"] {
            assert_eq!(MigrationMarker::decode(other), None, "{other:?}");
        }
    }
}

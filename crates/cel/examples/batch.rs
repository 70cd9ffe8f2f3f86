//! Answers expressions from standard input, one JSON line each. An argument such as `1.30` chooses the version.

use std::io::{BufRead as _, Write as _};

use cel::Version;
use cel::batch::Batch;

fn main() -> std::io::Result<()> {
    let chosen = std::env::args().nth(1).and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    });
    let batch = Batch::new(chosen.unwrap_or(Version::CURRENT));
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", batch.line(line?))?;
    }
    Ok(())
}

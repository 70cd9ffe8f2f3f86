//! Answers expressions from standard input, one JSON line each.

use std::io::{BufRead as _, Write as _};

use cel::Version;
use cel::batch::Batch;

fn main() -> std::io::Result<()> {
    let batch = Batch::new(Version::CURRENT);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", batch.line(&line?))?;
    }
    Ok(())
}

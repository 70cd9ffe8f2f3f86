//! Evaluates expressions from standard input, one JSON request per line (see `cel::batch`).
//!
//! Arguments: a Kubernetes version such as `1.30`, then `mutation` for the environment of mutating policies.

use std::io::{BufRead as _, Write as _};

use cel::Version;
use cel::batch::ExpressionBatch;

fn main() -> std::io::Result<()> {
    let chosen = std::env::args().nth(1).and_then(|version| {
        let (major, minor) = version.split_once('.')?;
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    });
    let version = chosen.unwrap_or(Version::CURRENT);
    let mutation = std::env::args().nth(2).is_some_and(|environment| environment == "mutation");
    let batch = if mutation { ExpressionBatch::mutation(version) } else { ExpressionBatch::new(version) };
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        writeln!(out, "{}", batch.answer_line(line?))?;
    }
    Ok(())
}

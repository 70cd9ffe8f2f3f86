//! Requests line by line. Every line gets its answer, whatever it holds.

use std::io::{BufRead, Write};

use anyhow::Result;
use cel::Version;
use cel::batch::ExpressionBatch;

/// The longest line.
pub(super) const LONGEST: usize = 16 << 20;

/// Answers every line of `input`.
pub(super) fn run(mut input: impl BufRead, out: &mut impl Write) -> Result<()> {
    let batch = ExpressionBatch::new(Version::CURRENT);
    let mut line = Vec::new();
    loop {
        match next(&mut input, &mut line)? {
            Next::End => break,
            Next::Line => writeln!(out, "{}", batch.answer_line(&line))?,
            Next::TooLong => {
                let reason = format!("the line is longer than {} MiB", LONGEST >> 20);
                writeln!(out, "{}", ExpressionBatch::error_line(&reason))?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

enum Next {
    Line,
    TooLong,
    End,
}

/// Reads the next line, of which never more than [`LONGEST`] bytes are kept.
fn next(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<Next> {
    line.clear();
    let mut seen = 0usize;
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(if seen == 0 { Next::End } else { finished(seen) });
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        if seen + part.len() <= LONGEST {
            line.extend_from_slice(part);
        }
        seen += part.len();
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(finished(seen));
        }
    }
}

fn finished(length: usize) -> Next {
    if length > LONGEST { Next::TooLong } else { Next::Line }
}

//! `cel --batch`: every input line gets exactly one output line, also if it is not valid.

use std::io::{BufRead, Write};

use anyhow::Result;
use cel::Version;
use cel::batch::ExpressionBatch;

/// Longer lines are answered with an error.
pub(super) const MAX_LINE_BYTES: usize = 16 << 20;

pub(super) fn run(mut input: impl BufRead, out: &mut impl Write) -> Result<()> {
    let batch = ExpressionBatch::new(Version::CURRENT);
    let mut line = Vec::new();
    loop {
        match next_line(&mut input, &mut line)? {
            NextLine::End => break,
            NextLine::Complete => writeln!(out, "{}", batch.answer_line(&line))?,
            NextLine::TooLong => {
                let reason = format!("the line is longer than {} MiB", MAX_LINE_BYTES >> 20);
                writeln!(out, "{}", ExpressionBatch::error_line(&reason))?;
            }
        }
        out.flush()?;
    }
    Ok(())
}

enum NextLine {
    Complete,
    TooLong,
    End,
}

/// Reads the next line and buffers at most [`MAX_LINE_BYTES`] of it.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<NextLine> {
    line.clear();
    let mut seen = 0usize;
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(if seen == 0 { NextLine::End } else { classify(seen) });
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        if seen + part.len() <= MAX_LINE_BYTES {
            line.extend_from_slice(part);
        }
        seen += part.len();
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(classify(seen));
        }
    }
}

fn classify(length: usize) -> NextLine {
    if length > MAX_LINE_BYTES { NextLine::TooLong } else { NextLine::Complete }
}

//! The text of an expression and the issues found in it, formatted as cel-go formats them.

use std::fmt;

use value::Str;

/// The text of an expression, with an index of its lines. Positions count code points.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    /// Byte offset of each line's start.
    lines: Vec<usize>,
    /// Code-point offset of each line's start.
    points: Vec<u32>,
    length: u32,
}

/// A source position: line from 1, column from 0, both in code points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Line, from 1; -1 if there is no position.
    pub line: i32,
    /// Column in code points, from 0; -1 if there is no position.
    pub column: i32,
}

impl Location {
    /// The absence of a source position.
    pub const NONE: Location = Location { line: -1, column: -1 };
}

impl Source {
    /// Indexes the lines of `text`.
    pub fn new(text: &str) -> Self {
        let mut lines = vec![0];
        let mut points = vec![0];
        let mut length = 0;
        for (at, c) in text.char_indices() {
            length += 1;
            if c == '\n' {
                lines.push(at + 1);
                points.push(length);
            }
        }
        Source { text: text.to_owned(), lines, points, length }
    }

    /// The text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Length of the text in code points.
    pub fn length(&self) -> usize {
        self.length as usize
    }

    /// Converts a code-point offset to a line and column.
    pub fn location(&self, offset: u32) -> Location {
        let line = self.points.partition_point(|&start| start <= offset).max(1) - 1;
        let start = self.points.get(line).copied().unwrap_or(0);
        Location {
            line: i32::try_from(line + 1).unwrap_or(i32::MAX),
            column: i32::try_from(offset - start).unwrap_or(i32::MAX),
        }
    }

    /// Converts a line and column to a code-point offset.
    pub(crate) fn offset(&self, location: Location) -> Option<u32> {
        let line = usize::try_from(location.line).ok()?.checked_sub(1)?;
        Some(self.points.get(line)? + u32::try_from(location.column).ok()?)
    }

    /// The text of a line (from 1), without its line end.
    pub fn line(&self, line: i32) -> Option<&str> {
        if self.text.is_empty() {
            return None;
        }
        let at = usize::try_from(line).ok()?.checked_sub(1)?;
        let start = *self.lines.get(at)?;
        let end = self.lines.get(at + 1).map_or(self.text.len(), |next| next - 1);
        self.text.get(start..end)
    }
}

/// One problem in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Source position of the problem.
    pub location: Location,
    /// The message, worded as in cel-go.
    pub message: Str,
}

/// The problems of one expression. `Display` prints cel-go's text, with each position underlined.
#[derive(Clone, Debug)]
pub struct Issues {
    source: Source,
    found: Vec<Issue>,
    total: usize,
}

/// Upper bound of recorded issues; further ones are only counted.
const MAX_ISSUES: usize = 100;
/// Longer lines are not quoted.
const MAX_SNIPPET_BYTES: usize = 16384;

impl Issues {
    /// An empty list for an expression.
    pub(crate) fn new(source: &Source) -> Self {
        Issues { source: source.clone(), found: Vec::new(), total: 0 }
    }

    /// Records an issue; past the limit it is only counted.
    pub(crate) fn report(&mut self, location: Location, message: impl Into<Str>) {
        self.total += 1;
        if self.total <= MAX_ISSUES {
            self.found.push(Issue { location, message: message.into() });
        }
    }

    /// Removes the issues after a source position.
    pub(crate) fn forget_after(&mut self, location: Location) {
        let before = self.found.len();
        self.found.retain(|issue| issue.location <= location);
        self.total = self.total.saturating_sub(before - self.found.len());
    }

    /// True if no issue was reported.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Number of issues, including those that were only counted.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The recorded issues, by source position.
    pub fn sorted(&self) -> Vec<&Issue> {
        let mut issues: Vec<&Issue> = self.found.iter().collect();
        issues.sort_by_key(|issue| issue.location);
        issues
    }

    /// The expression that the issues are about.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.sorted().into_iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            let Location { line, column } = issue.location;
            write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
            let Some(snippet) = self.source.line(line) else { continue };
            if snippet.len() > MAX_SNIPPET_BYTES {
                continue;
            }
            write!(f, "\n | {}\n | ", snippet.replace('\t', " "))?;
            let mut rest = snippet.chars();
            for c in rest.by_ref().take(usize::try_from(column).unwrap_or(0)) {
                f.write_str(if c.len_utf8() > 1 { "．" } else { "." })?;
            }
            f.write_str(if rest.next().is_some_and(|c| c.len_utf8() > 1) { "＾" } else { "^" })?;
        }
        if self.total > MAX_ISSUES {
            write!(f, "\n{} more errors were truncated", self.total - MAX_ISSUES)?;
        }
        Ok(())
    }
}

impl std::error::Error for Issues {}

//! Compares printed output with what a page shows.

use crate::{Problem, Result};

/// Compares line by line. In `expected`, `…` is any text within a line, and any number of lines where it is alone on a line.
pub fn compare(printed: &str, expected: &str) -> Result<()> {
    let lines: Vec<&str> = printed.lines().collect();
    let wanted: Vec<&str> = expected.lines().collect();
    if lines_match(&lines, &wanted) {
        return Ok(());
    }
    Err(Problem::new(format!("the page shows\n{expected}but this is printed:\n{printed}")))
}

fn lines_match(lines: &[&str], wanted: &[&str]) -> bool {
    match (lines, wanted) {
        (_, [first, rest @ ..]) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| lines_match(lines.get(skipped..).unwrap_or_default(), rest))
        }
        ([line, lines @ ..], [first, wanted @ ..]) => line_matches(line, first) && lines_match(lines, wanted),
        ([], []) => true,
        _ => false,
    }
}

fn line_matches(printed: &str, shown: &str) -> bool {
    let parts: Vec<&str> = shown.trim_end().split('…').collect();
    let printed = printed.trim_end();
    match parts.as_slice() {
        [only] => printed == *only,
        [first, middle @ .., last] => {
            let Some(mut rest) = printed.strip_prefix(first) else { return false };
            for part in middle {
                let Some((_, after)) = rest.split_once(part) else { return false };
                rest = after;
            }
            rest.ends_with(last)
        }
        [] => true,
    }
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn output_must_be_equal_but_for_wildcards() {
        for (printed, expected) in [
            ("a\nb\n", "a\nb\n"),
            ("a \nb\n", "a\nb\n"),
            ("name-x7 ready 3s\n", "name-… ready…\n"),
            ("a\nb\nc\nd\n", "a\n…\nd\n"),
            ("a\nb\n", "…\na\nb\n…\n"),
            ("", "…\n"),
        ] {
            compare(printed, expected).unwrap();
        }
        for (printed, expected) in [
            ("a\nb\n", "a\n"),
            ("a\n", "a\nb\n"),
            ("b\na\n", "a\nb\n"),
            ("name-x7 pending\n", "name-… ready…\n"),
            ("a\nb\nc\n", "a\n…\nb\n"),
        ] {
            compare(printed, expected).unwrap_err();
        }
    }
}

//! Unified diff of two texts, for errors about changed pods.
//!
//! Follows Python's `difflib`, like the Go port that kube-apiserver uses: find the longest common run of lines, then
//! repeat on both sides of it. In long texts, frequent lines do not start a run.

use std::{collections::HashMap, fmt::Write as _, ops::Range};

use value::{Budget, Meter};

const CONTEXT: usize = 3;
/// From this number of lines on, a line that makes up more than a hundredth of a text does not start a run.
const LONG: usize = 200;
/// Texts with more lines are compared only at both ends, because finding all runs could take too long.
const TOO_LONG: usize = 10_000;

/// Steps to find the runs of two texts, per line. Texts that take more are compared only at both ends: the steps are
/// at worst cubic in the number of lines, and 200 per line are a multiple of what changes by hand take.
const STEPS_PER_LINE: usize = 200;
/// Steps that even the shortest texts may take.
const MIN_STEPS: usize = 20_000;
/// Steps that even the longest texts may not exceed, some milliseconds.
const MAX_STEPS: usize = 1_000_000;

/// A range of lines in both texts that is equal or changed.
#[derive(Clone)]
struct DiffHunk {
    same: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// Returns the unified diff from `old` to `new`, without file names.
pub(super) fn unified(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.split('\n').collect();
    let new: Vec<&str> = new.split('\n').collect();
    let mut out = String::new();
    for group in groups(&hunks(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = printed(first.old.start, last.old.end);
        let new_range = printed(first.new.start, last.new.end);
        let _ = writeln!(out, "@@ -{old_range} +{new_range} @@");
        let mut lines = |mark: char, lines: &[&str], range: &Range<usize>| {
            for line in lines.get(range.clone()).unwrap_or_default() {
                let _ = writeln!(out, "{mark}{line}");
            }
        };
        for hunk in &group {
            if hunk.same {
                lines(' ', &old, &hunk.old);
            } else {
                lines('-', &old, &hunk.old);
                lines('+', &new, &hunk.new);
            }
        }
    }
    out
}

fn printed(start: usize, end: usize) -> String {
    match end.saturating_sub(start) {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

/// Groups changes with their context; long unchanged hunks separate the groups.
fn groups(hunks: &[DiffHunk]) -> Vec<Vec<DiffHunk>> {
    let mut groups = Vec::new();
    let mut group: Vec<DiffHunk> = Vec::new();
    let last = hunks.len().saturating_sub(1);
    for (i, hunk) in hunks.iter().enumerate() {
        let mut hunk = hunk.clone();
        if hunk.same && i == 0 {
            hunk = ending(&hunk);
        }
        if hunk.same && i == last {
            hunk = beginning(&hunk);
        }
        if hunk.same && hunk.old.len() > 2 * CONTEXT {
            group.push(beginning(&hunk));
            groups.push(std::mem::take(&mut group));
            hunk = ending(&hunk);
        }
        group.push(hunk);
    }
    if group.iter().any(|hunk| !hunk.same) {
        groups.push(group);
    }
    groups
}

fn beginning(hunk: &DiffHunk) -> DiffHunk {
    let cut = |range: &Range<usize>| range.start..range.end.min(range.start + CONTEXT);
    DiffHunk { same: true, old: cut(&hunk.old), new: cut(&hunk.new) }
}

fn ending(hunk: &DiffHunk) -> DiffHunk {
    let cut = |range: &Range<usize>| range.start.max(range.end.saturating_sub(CONTEXT))..range.end;
    DiffHunk { same: true, old: cut(&hunk.old), new: cut(&hunk.new) }
}

/// Splits both texts into alternating equal and changed hunks, in order.
fn hunks(old: &[&str], new: &[&str]) -> Vec<DiffHunk> {
    let all = if old.len().max(new.len()) > TOO_LONG { None } else { runs(old, new, &budget_of(old, new)) };
    let mut runs = all.unwrap_or_else(|| outer_runs(old, new));
    runs.push((old.len(), new.len(), 0));
    let mut out: Vec<DiffHunk> = Vec::new();
    let (mut old_at, mut new_at) = (0, 0);
    for (i, j, size) in runs {
        if old_at < i || new_at < j {
            out.push(DiffHunk { same: false, old: old_at..i, new: new_at..j });
        }
        (old_at, new_at) = (i + size, j + size);
        if size > 0 {
            match out.last_mut() {
                Some(last) if last.same => {
                    last.old.end = old_at;
                    last.new.end = new_at;
                }
                _ => out.push(DiffHunk { same: true, old: i..old_at, new: j..new_at }),
            }
        }
    }
    out
}

/// Finds only the common beginning and end.
fn outer_runs(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    vec![(0, 0, start), (old.len() - end, new.len() - end, end)]
}

fn budget_of(old: &[&str], new: &[&str]) -> Budget {
    let steps = MIN_STEPS + STEPS_PER_LINE * (old.len() + new.len());
    Budget::new(steps.min(MAX_STEPS) as u64)
}

/// Common runs `(start in old, start in new, length)`, in order. `None` if the budget does not suffice.
fn runs(old: &[&str], new: &[&str], budget: &Budget) -> Option<Vec<(usize, usize, usize)>> {
    let texts = NumberedLines::new(old, new);
    let meter = Meter::new(budget);
    let mut found = Vec::new();
    let mut left = vec![(0..old.len(), 0..new.len())];
    while let Some((old_range, new_range)) = left.pop() {
        if old_range.is_empty() || new_range.is_empty() {
            continue;
        }
        let (i, j, size) = texts.longest(&old_range, &new_range, &meter)?;
        if size == 0 {
            continue;
        }
        found.push((i, j, size));
        left.push((old_range.start..i, new_range.start..j));
        left.push((i + size..old_range.end, j + size..new_range.end));
    }
    found.sort_unstable();
    Some(found)
}

/// Both texts with a number for each distinct line of the new one, so that comparing two lines is one step, whatever
/// their length.
struct NumberedLines {
    /// `None` for lines that the new text does not have.
    old: Vec<Option<usize>>,
    new: Vec<Option<usize>>,
    /// By number: where the line is in the new text, in order. Empty for lines that do not start a run.
    indices: Vec<Vec<usize>>,
}

impl NumberedLines {
    fn new(old: &[&str], new: &[&str]) -> Self {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut indices: Vec<Vec<usize>> = Vec::new();
        for (j, line) in new.iter().enumerate() {
            let number = *numbers.entry(line).or_insert(indices.len());
            match indices.get_mut(number) {
                Some(indices) => indices.push(j),
                None => indices.push(vec![j]),
            }
        }
        if new.len() >= LONG {
            for indices in indices.iter_mut().filter(|indices| indices.len() > new.len() / 100 + 1) {
                indices.clear();
            }
        }
        let numbered = |lines: &[&str]| lines.iter().map(|line| numbers.get(line).copied()).collect();
        NumberedLines { old: numbered(old), new: numbered(new), indices }
    }

    /// The indices in the new text of a line that can start a run.
    fn indices(&self, line: Option<usize>, range: &Range<usize>) -> &[usize] {
        let all = line.and_then(|line| self.indices.get(line)).map(Vec::as_slice).unwrap_or_default();
        let (from, to) = (all.partition_point(|j| *j < range.start), all.partition_point(|j| *j < range.end));
        all.get(from..to).unwrap_or_default()
    }

    fn are_equal(&self, i: usize, j: usize) -> bool {
        self.old.get(i).is_some_and(|line| line.is_some() && Some(line) == self.new.get(j))
    }

    /// Longest common run; among equals, the one that starts first in the old text, then in the new one.
    fn longest(
        &self,
        old_range: &Range<usize>,
        new_range: &Range<usize>,
        meter: &Meter<'_>,
    ) -> Option<(usize, usize, usize)> {
        let (mut best_i, mut best_j, mut best) = (old_range.start, new_range.start, 0);
        // The runs that end at the previous line of the old text: their ends in the new text, in order, and lengths.
        let mut previous: Vec<(usize, usize)> = Vec::new();
        let mut current: Vec<(usize, usize)> = Vec::new();
        for (i, line) in self.old.iter().enumerate().take(old_range.end).skip(old_range.start) {
            let ends = self.indices(*line, new_range);
            if !meter.step(1 + ends.len() + previous.len()) {
                return None;
            }
            current.clear();
            let mut before = previous.iter().peekable();
            for &j in ends {
                while before.next_if(|(end, _)| end + 1 < j).is_some() {}
                let length = before.next_if(|(end, _)| end + 1 == j).map_or(1, |(_, length)| length + 1);
                current.push((j, length));
                if length > best {
                    (best_i, best_j, best) = (i + 1 - length, j + 1 - length, length);
                }
            }
            std::mem::swap(&mut previous, &mut current);
        }
        // Extends the run by equal neighboring lines, even frequent ones.
        while best_i > old_range.start && best_j > new_range.start && self.are_equal(best_i - 1, best_j - 1) {
            (best_i, best_j, best) = (best_i - 1, best_j - 1, best + 1);
        }
        while best_i + best < old_range.end
            && best_j + best < new_range.end
            && self.are_equal(best_i + best, best_j + best)
        {
            best += 1;
        }
        Some((best_i, best_j, best))
    }
}

#[cfg(test)]
mod tests;

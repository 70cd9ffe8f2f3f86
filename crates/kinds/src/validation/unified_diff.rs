//! Unified diff of two texts, for errors about changed pods.
//!
//! Follows Python's `difflib`, like the Go port that kube-apiserver uses: find the longest common run of lines, then
//! repeat on both sides of it. In long texts, frequent lines do not start a run.

use std::{collections::HashMap, fmt::Write as _, ops::Range};

const CONTEXT: usize = 3;
/// From this number of lines on, a line that makes up more than a hundredth of a text does not start a run.
const LONG: usize = 200;
/// Texts with more lines are compared only at both ends, because finding all runs could take too long.
const TOO_LONG: usize = 10_000;

/// A range of lines in both texts that is equal or changed.
#[derive(Clone)]
struct Stretch {
    same: bool,
    old: Range<usize>,
    new: Range<usize>,
}

/// Returns the unified diff from `old` to `new`, without file names.
pub(super) fn unified(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.split('\n').collect();
    let new: Vec<&str> = new.split('\n').collect();
    let mut out = String::new();
    for group in groups(&stretches(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = printed(first.old.start, last.old.end);
        let new_range = printed(first.new.start, last.new.end);
        let _ = writeln!(out, "@@ -{old_range} +{new_range} @@");
        let mut lines = |mark: char, lines: &[&str], range: &Range<usize>| {
            for line in lines.get(range.clone()).unwrap_or_default() {
                let _ = writeln!(out, "{mark}{line}");
            }
        };
        for stretch in &group {
            if stretch.same {
                lines(' ', &old, &stretch.old);
            } else {
                lines('-', &old, &stretch.old);
                lines('+', &new, &stretch.new);
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

/// Groups changes with their context; long unchanged stretches separate the groups.
fn groups(stretches: &[Stretch]) -> Vec<Vec<Stretch>> {
    let mut groups = Vec::new();
    let mut group: Vec<Stretch> = Vec::new();
    let last = stretches.len().saturating_sub(1);
    for (i, stretch) in stretches.iter().enumerate() {
        let mut stretch = stretch.clone();
        if stretch.same && i == 0 {
            stretch = ending(&stretch);
        }
        if stretch.same && i == last {
            stretch = beginning(&stretch);
        }
        if stretch.same && stretch.old.len() > 2 * CONTEXT {
            group.push(beginning(&stretch));
            groups.push(std::mem::take(&mut group));
            stretch = ending(&stretch);
        }
        group.push(stretch);
    }
    if group.iter().any(|stretch| !stretch.same) {
        groups.push(group);
    }
    groups
}

fn beginning(stretch: &Stretch) -> Stretch {
    let cut = |range: &Range<usize>| range.start..range.end.min(range.start + CONTEXT);
    Stretch { same: true, old: cut(&stretch.old), new: cut(&stretch.new) }
}

fn ending(stretch: &Stretch) -> Stretch {
    let cut = |range: &Range<usize>| range.start.max(range.end.saturating_sub(CONTEXT))..range.end;
    Stretch { same: true, old: cut(&stretch.old), new: cut(&stretch.new) }
}

/// Splits both texts into alternating equal and changed stretches, in order.
fn stretches(old: &[&str], new: &[&str]) -> Vec<Stretch> {
    let mut runs = if old.len().max(new.len()) > TOO_LONG { outer_runs(old, new) } else { runs(old, new) };
    runs.push((old.len(), new.len(), 0));
    let mut out: Vec<Stretch> = Vec::new();
    let (mut old_at, mut new_at) = (0, 0);
    for (i, j, size) in runs {
        if old_at < i || new_at < j {
            out.push(Stretch { same: false, old: old_at..i, new: new_at..j });
        }
        (old_at, new_at) = (i + size, j + size);
        if size > 0 {
            match out.last_mut() {
                Some(last) if last.same => {
                    last.old.end = old_at;
                    last.new.end = new_at;
                }
                _ => out.push(Stretch { same: true, old: i..old_at, new: j..new_at }),
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

/// Common runs `(start in old, start in new, length)`, in order.
fn runs(old: &[&str], new: &[&str]) -> Vec<(usize, usize, usize)> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (j, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(j);
    }
    if new.len() >= LONG {
        places.retain(|_, places| places.len() <= new.len() / 100 + 1);
    }
    let mut found = Vec::new();
    let mut left = vec![(0..old.len(), 0..new.len())];
    while let Some((old_range, new_range)) = left.pop() {
        let (i, j, size) = longest(old, new, &places, &old_range, &new_range);
        if size == 0 {
            continue;
        }
        found.push((i, j, size));
        left.push((old_range.start..i, new_range.start..j));
        left.push((i + size..old_range.end, j + size..new_range.end));
    }
    found.sort_unstable();
    found
}

/// Longest common run; among equals, the one that starts first in `old`, then in `new`.
fn longest(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    old_range: &Range<usize>,
    new_range: &Range<usize>,
) -> (usize, usize, usize) {
    let (mut best_i, mut best_j, mut best) = (old_range.start, new_range.start, 0);
    // Lengths of the runs that end at the previous line of `old`, by their end in `new`.
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for (i, line) in old.iter().enumerate().take(old_range.end).skip(old_range.start) {
        let mut next = HashMap::new();
        for &j in places.get(line).map(Vec::as_slice).unwrap_or_default() {
            if !new_range.contains(&j) {
                continue;
            }
            let length = j.checked_sub(1).and_then(|before| lengths.get(&before)).copied().unwrap_or(0) + 1;
            next.insert(j, length);
            if length > best {
                (best_i, best_j, best) = (i + 1 - length, j + 1 - length, length);
            }
        }
        lengths = next;
    }
    // Extends the run by equal neighboring lines, even frequent ones.
    while best_i > old_range.start && best_j > new_range.start && old.get(best_i - 1) == new.get(best_j - 1) {
        (best_i, best_j, best) = (best_i - 1, best_j - 1, best + 1);
    }
    while best_i + best < old_range.end
        && best_j + best < new_range.end
        && old.get(best_i + best) == new.get(best_j + best)
    {
        best += 1;
    }
    (best_i, best_j, best)
}

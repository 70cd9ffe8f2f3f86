use fuzz::Dice;

use super::*;

/// The runs by comparing every pair of lines, for texts that are too short to have frequent lines.
fn naive_runs(old: &[&str], new: &[&str], (i0, j0): (usize, usize), found: &mut Vec<(usize, usize, usize)>) {
    let length = |i: usize, j: usize| old[i..].iter().zip(&new[j..]).take_while(|(a, b)| a == b).count();
    let mut best = (0, 0, 0);
    for i in 0..old.len() {
        for j in 0..new.len() {
            if length(i, j) > best.2 {
                best = (i, j, length(i, j));
            }
        }
    }
    let (i, j, size) = best;
    if size > 0 {
        found.push((i0 + i, j0 + j, size));
        naive_runs(&old[..i], &new[..j], (i0, j0), found);
        naive_runs(&old[i + size..], &new[j + size..], (i0 + i + size, j0 + j + size), found);
    }
}

#[test]
fn runs_are_those_found_by_comparing_every_pair_of_lines() {
    let letters = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut dice = Dice::new(1);
    let mut random = |below: usize| dice.index(below);
    for _ in 0..2000 {
        let kinds = 1 + random(letters.len());
        let mut text = || -> Vec<&str> { (0..random(24)).map(|_| letters[random(kinds)]).collect() };
        let (old, new) = (text(), text());
        let mut expected = Vec::new();
        naive_runs(&old, &new, (0, 0), &mut expected);
        expected.sort_unstable();
        assert_eq!(runs(&old, &new, &budget_of(&old, &new)).unwrap(), expected, "{old:?} {new:?}");
    }
}

/// Texts in which almost every line starts a run, and each run is one line long.
fn worst_case(lines: usize) -> (Vec<String>, Vec<String>) {
    let different = 50;
    let old = (0..lines).map(|i| format!("s{}", i % different)).collect();
    let line = |i| if i % 2 == 0 { format!("s{}", i / 2 % different) } else { format!("x{i}") };
    (old, (0..lines).map(line).collect())
}

#[test]
fn texts_that_take_too_many_steps_are_compared_only_at_both_ends() {
    let (mut old, mut new) = worst_case(5000);
    for text in [&mut old, &mut new] {
        text.insert(0, "first".to_owned());
        text.push("last".to_owned());
    }
    let old_refs: Vec<&str> = old.iter().map(String::as_str).collect();
    let new_refs: Vec<&str> = new.iter().map(String::as_str).collect();
    let budget = budget_of(&old_refs, &new_refs);
    assert_eq!(runs(&old_refs, &new_refs, &budget), None);
    // The loop ends at the first line that exceeds the budget.
    assert!(budget.spent() <= (MAX_STEPS + 10_000) as u64, "{}", budget.spent());
    let diff = unified(&old.join("\n"), &new.join("\n"));
    assert!(diff.starts_with("@@ -1,5002 +1,5002 @@\n first\n s0\n-s1\n"), "{diff:.60}");
    assert!(diff.ends_with("\n last\n"));
}

#[test]
fn large_text_with_many_small_changes_is_compared_in_full() {
    let old: Vec<String> = (0..4000).map(|i| format!("line {}", i % 1500)).collect();
    let mut new = old.clone();
    for line in new.iter_mut().step_by(100) {
        line.push_str(" changed");
    }
    let diff = unified(&old.join("\n"), &new.join("\n"));
    assert_eq!(diff.lines().filter(|line| line.starts_with("@@")).count(), 40);
    assert_eq!(diff.lines().filter(|line| line.starts_with('+')).count(), 40);
}

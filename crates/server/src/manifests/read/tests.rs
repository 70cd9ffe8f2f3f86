use super::{EMPTY_FOR, ManifestFile, QUIET_FOR, SETTLING, settle};

fn file(text: &str) -> Vec<ManifestFile> {
    vec![ManifestFile { path: "a.yaml".to_owned(), content: Ok(text.as_bytes().to_vec()) }]
}

/// Settles on contents that are read in turn, the last one repeatedly. Returns the result and the number of reads.
fn settles(turns: &[&str], before: &str) -> (Option<Vec<ManifestFile>>, usize) {
    let mut reads = 0;
    let mut read = || {
        let text = turns.get(reads).or(turns.last()).copied().unwrap_or_default();
        reads += 1;
        Ok::<_, ()>(file(text))
    };
    let settled = settle(&mut read, || {}, &file(before)).unwrap();
    (settled, reads)
}

#[test]
fn a_manifest_is_read_once_it_is_stable_and_never_while_it_keeps_changing() {
    assert_eq!(settles(&["a"], "b"), (Some(file("a")), QUIET_FOR + 1));
    assert_eq!(settles(&["a", "ab", "abc"], "b"), (Some(file("abc")), QUIET_FOR + 3));
    let endless: Vec<String> = (0..=SETTLING).map(|n| "x".repeat(n + 1)).collect();
    let endless: Vec<&str> = endless.iter().map(String::as_str).collect();
    assert_eq!(settles(&endless, "b"), (None, SETTLING + 1), "a prefix is never the whole");
}

#[test]
fn a_manifest_that_becomes_empty_must_stay_stable_for_longer() {
    assert_eq!(settles(&[""], "b"), (Some(file("")), EMPTY_FOR + 1));
    assert_eq!(settles(&[""], ""), (Some(file("")), QUIET_FOR + 1), "it was empty before");
    assert_eq!(settles(&["", "", "a"], "b").0, Some(file("a")));
}

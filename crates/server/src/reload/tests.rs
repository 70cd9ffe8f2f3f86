use std::sync::{Arc, Mutex};

use super::Watched;
use crate::metrics::Metrics;

/// A watched file with content `first`, and a list that records applied contents.
fn followed(first: &str) -> (tempfile::TempDir, std::path::PathBuf, Watched, Arc<Mutex<Vec<String>>>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, first).unwrap();
    let applied = Arc::new(Mutex::new(Vec::new()));
    let contents_seen = Arc::clone(&applied);
    let apply = move |contents: &[Vec<u8>]| {
        let text = String::from_utf8(contents[0].clone()).unwrap();
        if text.starts_with("bad") {
            return Err("bad".to_owned());
        }
        contents_seen.lock().unwrap().push(text);
        Ok(())
    };
    let held = vec![first.as_bytes().to_vec()];
    let followed = Watched::new("client-ca-file", vec![path.clone()], held, apply);
    (directory, path, followed, applied)
}

#[test]
fn a_changed_file_is_put_in_force_once_and_a_bad_or_missing_one_leaves_the_last_good_one() {
    let metrics = Metrics::new(0.0).unwrap().authentication;
    let (_directory, path, mut followed, applied) = followed("one");
    followed.look(&metrics);
    assert!(applied.lock().unwrap().is_empty());
    std::fs::write(&path, "two").unwrap();
    followed.look(&metrics);
    followed.look(&metrics);
    std::fs::write(&path, "bad").unwrap();
    followed.look(&metrics);
    std::fs::remove_file(&path).unwrap();
    followed.look(&metrics);
    followed.look(&metrics);
    assert_eq!(*applied.lock().unwrap(), ["two"]);
    std::fs::write(&path, "three").unwrap();
    followed.look(&metrics);
    assert_eq!(*applied.lock().unwrap(), ["two", "three"]);
}

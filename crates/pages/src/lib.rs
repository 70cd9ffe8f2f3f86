//! Specification pages that are tests, for use in other crates' tests.
//!
//! A page is Markdown in `spec/NAME.md` of a crate. Some of its fenced blocks set something up, others contain an expected result.
//! A crate lists its pages with [`pages!`]; for each page, [`Page::check`] compares the expected results with the actual ones or,
//! if the variable `UPDATE_PAGES` is set, writes the actual ones into the page.
//!
//! ```no_run
//! fn check(page: &pages::Page) {
//!     let mut sum = 0;
//!     page.check(|info, block| match info {
//!         "sum" => {
//!             sum = block.lines().filter_map(|line| line.parse::<i32>().ok()).sum();
//!             None // this block has no result
//!         }
//!         _ => Some(format!("{sum}\n")), // the actual result, which the block must contain
//!     });
//! }
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "it runs only in tests, which fail by panicking"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Generates a test for each listed page, and one that fails if a page with the given name prefix is not listed.
///
/// `pages!(check, "": one, two);` calls `check(&Page)` for `spec/one.md` and `spec/two.md`.
#[macro_export]
macro_rules! pages {
    ($check:path, $prefix:literal: $($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                $check(&$crate::Page::read(env!("CARGO_MANIFEST_DIR"), stringify!($name)));
            }
        )*

        #[test]
        fn every_page_has_a_test() {
            assert_eq!($crate::page_names(env!("CARGO_MANIFEST_DIR"), $prefix), [$(stringify!($name)),*]);
        }
    };
}

/// Names of a crate's pages that begin with a prefix, sorted.
pub fn page_names(crate_folder: &str, prefix: &str) -> Vec<String> {
    let files = std::fs::read_dir(Path::new(crate_folder).join("spec")).unwrap();
    let mut names: Vec<String> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

/// A specification page of a crate.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    /// The Markdown source of the page.
    pub text: String,
}

impl Page {
    /// Reads `spec/NAME.md` of a crate.
    pub fn read(crate_folder: &str, name: &str) -> Page {
        let path = Path::new(crate_folder).join("spec").join(format!("{name}.md"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Page { path, text }
    }

    /// Checks all fenced blocks. `read` gets a block's info string and content; it returns the actual result for
    /// a block with an expected result, and `None` for a block that sets something up.
    pub fn check(&self, mut read: impl FnMut(&str, &str) -> Option<String>) {
        let (mut written, mut wrong, mut results) = (String::new(), String::new(), 0);
        let mut lines = self.text.lines().enumerate();
        while let Some((start, line)) = lines.next() {
            writeln!(written, "{line}").unwrap();
            let Some(info) = line.strip_prefix("```") else { continue };
            let mut expected = String::new();
            loop {
                match lines.next() {
                    Some((_, "```")) => break,
                    Some((_, line)) => writeln!(expected, "{line}").unwrap(),
                    None => panic!("{}: the last block is not closed", self.path.display()),
                }
            }
            let actual = read(info, &expected);
            results += usize::from(actual.is_some());
            let actual = actual.unwrap_or_else(|| expected.clone());
            if actual != expected {
                let same = expected
                    .lines()
                    .zip(actual.lines())
                    .take_while(|(expected, actual)| expected == actual)
                    .count();
                let from = |text: &str| text.lines().skip(same).collect::<Vec<_>>().join("\n");
                writeln!(wrong, "{}:{}: expected", self.path.display(), start + 2 + same).unwrap();
                writeln!(wrong, "{}\nbut got\n{}\n", from(&expected), from(&actual)).unwrap();
            }
            writeln!(written, "{actual}```").unwrap();
        }
        assert!(results > 0, "{}: no block has an expected result", self.path.display());
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(&self.path, written).unwrap();
        } else {
            assert!(wrong.is_empty(), "{wrong}");
        }
    }
}

#[cfg(test)]
mod tests;

//! Pages of a specification that are tests.
//!
//! A page, `spec/NAME.md` of a crate, is prose with fenced blocks. Some set up what follows, some say what comes of it. A crate's test
//! goes through the blocks and tells of each how it should read; [`Page::check`] compares, or writes that into the page when
//! `UPDATE_PAGES` is set.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "it runs in tests, and a panic is how one fails"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Makes a test of each page whose name begins with a prefix, and one that finds pages that are not in the list.
///
/// `pages!(check, "": one, two);` calls `check(&Page)` for `spec/one.md` and `spec/two.md`.
#[macro_export]
macro_rules! pages {
    ($check:path, $prefix:literal: $($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                $check(&$crate::Page::of(env!("CARGO_MANIFEST_DIR"), stringify!($name)));
            }
        )*

        #[test]
        fn every_page_has_a_test() {
            assert_eq!($crate::named(env!("CARGO_MANIFEST_DIR"), $prefix), [$(stringify!($name)),*]);
        }
    };
}

/// The names of a crate's pages that begin with a prefix, sorted.
pub fn named(of: &str, prefix: &str) -> Vec<String> {
    let files = std::fs::read_dir(Path::new(of).join("spec")).unwrap();
    let mut names: Vec<String> = files
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

/// One page.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    /// All of it.
    pub text: String,
}

impl Page {
    /// Reads a page of a crate by its name.
    pub fn of(of: &str, name: &str) -> Page {
        let path = Path::new(of).join("spec").join(format!("{name}.md"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Page { path, text }
    }

    /// Goes through the blocks. `read` gets what stands after the fence and what is in the block; where a block says what comes of
    /// something it returns what it should say, and nothing where the block sets something up.
    pub fn check(&self, mut read: impl FnMut(&str, &str) -> Option<String>) {
        let (mut written, mut wrong, mut answers) = (String::new(), String::new(), 0);
        let mut lines = self.text.lines().enumerate();
        while let Some((start, line)) = lines.next() {
            writeln!(written, "{line}").unwrap();
            let Some(info) = line.strip_prefix("```") else { continue };
            let mut said = String::new();
            loop {
                match lines.next() {
                    Some((_, "```")) => break,
                    Some((_, line)) => writeln!(said, "{line}").unwrap(),
                    None => panic!("{}: the last block has no end", self.path.display()),
                }
            }
            let comes = read(info, &said);
            answers += usize::from(comes.is_some());
            let comes = comes.unwrap_or_else(|| said.clone());
            if comes != said {
                let same = said.lines().zip(comes.lines()).take_while(|(said, comes)| said == comes).count();
                let from = |text: &str| text.lines().skip(same).collect::<Vec<_>>().join("\n");
                writeln!(wrong, "{}:{}: it says", self.path.display(), start + 2 + same).unwrap();
                writeln!(wrong, "{}\nwhere this comes:\n{}\n", from(&said), from(&comes)).unwrap();
            }
            writeln!(written, "{comes}```").unwrap();
        }
        assert!(answers > 0, "{}: nothing on it can be wrong", self.path.display());
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(&self.path, written).unwrap();
        } else {
            assert!(wrong.is_empty(), "{wrong}");
        }
    }
}

#[cfg(test)]
mod tests;

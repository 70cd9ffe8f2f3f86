//! Tables of limits, attacks and their tests: every row of a table with the column `test` names tests that exist, and every file of the
//! security suite is named.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::Path;

use super::documents::{FileTree, MarkdownFile, spans};

/// The folder of tests without a folder of their own.
const SECURITY: &str = "crates/conformance/tests/security/";
/// The page that names every file of this folder.
const THREATS: &str = "docs/reference/security.md";

/// A reference to tests: a file, or a folder of files, and perhaps one test in it.
#[derive(Debug)]
struct TestReference<'a> {
    shown: &'a str,
    folder: &'a str,
    /// A path below the folder, or the name of a module.
    module: &'a str,
    function: Option<&'a str>,
}

/// Checks every table whose last column is called `test`. `text` returns the content of a file.
pub(super) fn check(
    document: &MarkdownFile,
    tree: &FileTree,
    text: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut named = BTreeSet::new();
    let mut is_table_of_tests = false;
    for (number, line) in document.text.lines().enumerate() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let Some(last) = cells.last().filter(|_| line.starts_with('|')) else {
            is_table_of_tests = false;
            continue;
        };
        if *last == "test" {
            is_table_of_tests = true;
            continue;
        }
        if !is_table_of_tests || last.starts_with("---") {
            continue;
        }
        let at = format!("{}:{}", document.path, number + 1);
        let references = references(last);
        if references.is_empty() {
            complaints.push(format!("{at}: the row names no test"));
        }
        for reference in references {
            let files = reference.files(tree);
            named.extend(files.iter().map(|file| (*file).to_owned()));
            if !files.iter().filter_map(|file| text(file)).any(|source| reference.is_in(&source)) {
                complaints
                    .push(format!("{at}: there is no test `{}` in `{}`", reference.shown, reference.folder));
            }
        }
    }
    if document.path == THREATS {
        let suite = tree.paths.iter().filter(|path| path.starts_with(SECURITY) && is_rust(path));
        for path in suite.filter(|path| !named.contains(*path)) {
            if text(path).is_some_and(|source| has_test(&source)) {
                complaints.push(format!("{THREATS}: no row names the tests in `{path}`"));
            }
        }
    }
    complaints
}

/// The references of a cell: `` `module` ``, `` `module::test` ``, either followed by `` in `folder/` ``, or `` `path/of/file.rs` ``.
fn references(cell: &str) -> Vec<TestReference<'_>> {
    let parts: Vec<&str> = cell.split('`').collect();
    let names: Vec<&str> = spans(cell).collect();
    let mut references = Vec::new();
    let mut index = 0;
    while let Some(&shown) = names.get(index) {
        let between = parts.get(index * 2 + 2).copied().unwrap_or_default();
        let (folder, path) = match names.get(index + 1) {
            Some(&folder) if between == " in " => (folder, shown),
            _ if shown.starts_with("crates/") => shown.split_at(shown.rfind('/').map_or(0, |at| at + 1)),
            _ => (SECURITY, shown),
        };
        index += if between == " in " { 2 } else { 1 };
        let (module, function) = match path.split_once("::") {
            Some((module, function)) => (module, Some(function)),
            None => (path, None),
        };
        references.push(TestReference { shown, folder, module, function });
    }
    references
}

impl TestReference<'_> {
    /// The files that may contain the tests: the module's file, its folder, and the file itself if it is named.
    fn files<'t>(&self, tree: &'t FileTree) -> Vec<&'t str> {
        let base = format!("{}{}", self.folder, self.module);
        let (file, below) = (format!("{base}.rs"), format!("{}/", base.trim_end_matches('/')));
        let is_meant =
            |path: &&String| is_rust(path) && (**path == base || **path == file || path.starts_with(&below));
        tree.paths.iter().filter(is_meant).map(String::as_str).collect()
    }

    fn is_in(&self, source: &str) -> bool {
        match self.function {
            Some(function) => source.contains(&format!("fn {function}(")) && has_test(source),
            None => has_test(source),
        }
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

fn has_test(source: &str) -> bool {
    ["#[test]", "#[tokio::test", "pages!"].iter().any(|mark| source.contains(mark))
}

//! Claims of the documents: the table of crates, a heading for each, and paths, links and anchors that exist.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::crates::Packages;

/// The table of crates: the dependencies that each may have.
#[derive(Debug, Default)]
pub(super) struct CrateTable {
    pub(super) allowed: BTreeMap<String, BTreeSet<String>>,
}

impl CrateTable {
    /// Parses the table under `## Crates`: crate, responsibility, allowed dependencies.
    pub(super) fn parse(architecture: &str) -> Self {
        let table = architecture
            .lines()
            .skip_while(|line| *line != "## Crates")
            .skip(1)
            .take_while(|line| !line.starts_with('#'));
        let mut map = CrateTable::default();
        for line in table.filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if let [name, _, uses] = cells.as_slice() {
                map.allowed
                    .insert(name.trim_matches('`').to_owned(), spans(uses).map(str::to_owned).collect());
            }
        }
        map
    }
}

/// Every crate has a heading of its own.
pub(super) fn headings(architecture: &str, packages: &Packages) -> Vec<String> {
    let headings: BTreeSet<_> = architecture.lines().filter(|line| line.starts_with('#')).collect();
    let missing = packages.workspace().filter(|name| !headings.contains(format!("### `{name}`").as_str()));
    missing.map(|name| format!("ARCHITECTURE.md has no heading for the crate `{name}`")).collect()
}

#[derive(Debug)]
pub(super) struct MarkdownFile {
    /// Relative to the workspace root, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
}

/// The paths of all files and folders, relative to the workspace root, without hidden folders and build output.
#[derive(Debug, Default)]
pub(super) struct FileTree {
    pub(super) paths: BTreeSet<String>,
}

impl FileTree {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = FileTree::default();
        let mut waiting = vec![root.to_owned()];
        while let Some(folder) = waiting.pop() {
            let entries = fs::read_dir(&folder);
            for entry in entries.with_context(|| format!("cannot read `{}`", folder.display()))? {
                let path = entry?.path();
                let name = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                let last = name.rsplit('/').next().unwrap_or_default();
                if path.is_dir() {
                    if matches!(last, ".git" | "target" | "node_modules") {
                        continue;
                    }
                    waiting.push(path);
                }
                tree.paths.insert(name);
            }
        }
        Ok(tree)
    }

    fn has(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    /// Whether a path below `folder` ends with the components of `name`.
    fn has_below(&self, folder: &str, name: &str) -> bool {
        let ending = format!("/{name}");
        self.paths.iter().any(|path| path.starts_with(folder) && path.ends_with(&ending))
    }
}

/// The Markdown files at the root, those below `docs/`, and every `README.md` elsewhere.
pub(super) fn read(root: &Path, tree: &FileTree) -> Result<Vec<MarkdownFile>> {
    let paths = tree.paths.iter().filter(|path| is_document(path));
    paths
        .map(|path| Ok(MarkdownFile { path: path.clone(), text: fs::read_to_string(root.join(path))? }))
        .collect()
}

fn is_markdown(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

fn is_document(path: &str) -> bool {
    is_markdown(path) && (!path.contains('/') || path.starts_with("docs/") || path.ends_with("/README.md"))
}

/// Every path in backticks exists. Of a path with a `<placeholder>`, the folder before it.
///
/// The README of a crate may also name the crate's own files and folders by the end of their path.
pub(super) fn paths(document: &MarkdownFile, tree: &FileTree) -> Vec<String> {
    let mut complaints = Vec::new();
    let package = document.path.ends_with("/README.md").then(|| package_folder(&document.path));
    for (number, line) in prose(&document.text) {
        for span in spans(line).filter(|span| is_path(span) || (package.is_some() && is_package_path(span))) {
            for path in spread(span) {
                let named = match path.split_once('<') {
                    Some((before, _)) => before.rsplit_once('/').map_or("", |(folder, _)| folder),
                    None => path.trim_end_matches('/'),
                };
                if !tree.has(named) && !package.is_some_and(|folder| tree.has_below(folder, named)) {
                    complaints.push(format!("{}:{number}: `{span}` does not exist", document.path));
                }
            }
        }
    }
    complaints
}

/// Every item that a document names with its file, as in "`parse` in `crates/a/src/b.rs`" or "`Reader::next` (`crates/a/src/b.rs`)", is
/// declared in that file. `text` returns the content of a file.
pub(super) fn items(document: &MarkdownFile, text: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let prose = prose(&document.text).map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ");
    let parts: Vec<&str> = prose.split('`').collect();
    let mut complaints = Vec::new();
    for named in parts.windows(3).skip(1).step_by(2) {
        let &[item, between @ (" in " | " ("), file] = named else { continue };
        // Before a parenthesis, a lower-case word may also be a subcommand or a field.
        let is_code = between == " in " || item.contains("::") || item.starts_with(char::is_uppercase);
        let is_item = is_code && item.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
        if !is_item
            || !file.starts_with("crates/")
            || Path::new(file).extension().is_none_or(|extension| extension != "rs")
        {
            continue;
        }
        let name = item.rsplit(':').next().unwrap_or_default();
        if text(file).is_some_and(|source| !declares(&source, name)) {
            complaints.push(format!("{}: `{item}` is not declared in `{file}`", document.path));
        }
    }
    complaints
}

/// Reports whether a source declares a function, type, constant, module or macro with this name.
fn declares(source: &str, name: &str) -> bool {
    const KEYWORDS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules!"];
    let ends_name = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    KEYWORDS.iter().any(|keyword| {
        let declaration = format!("{keyword} {name}");
        source
            .match_indices(&declaration)
            .any(|(at, _)| source.get(at + declaration.len()..).is_some_and(ends_name))
    })
}

/// `crates/NAME/` of a file in that crate; the first two folders elsewhere too.
fn package_folder(path: &str) -> &str {
    let end = path.match_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    path.get(..end).unwrap_or_default()
}

/// Every relative link leads to a file or folder, and its `#anchor` to a heading of that file. `text` returns the content of the
/// Markdown file with that path.
pub(super) fn links(
    document: &MarkdownFile,
    tree: &FileTree,
    text: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in prose(&document.text) {
        let without_code: String = line.split('`').step_by(2).collect();
        for target in targets(&without_code) {
            let at = format!("{}:{number}", document.path);
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file =
                if file.is_empty() { Some(document.path.clone()) } else { resolve(&document.path, file) };
            let Some(file) = file.filter(|file| tree.has(file)) else {
                complaints.push(format!("{at}: the link to `{target}` leads to no file"));
                continue;
            };
            if !anchor.is_empty()
                && is_markdown(&file)
                && !text(&file).is_some_and(|text| anchors(&text).contains(anchor))
            {
                complaints.push(format!("{at}: the link to `{target}`: `{file}` has no such heading"));
            }
        }
    }
    complaints
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((number + 1, line))
    })
}

/// The targets of `[text](target)` that are neither URLs nor absolute.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next())
        .filter(|target| {
            !target.contains("://") && !target.starts_with(['/', '<']) && !target.starts_with("mailto:")
        })
        .filter(|target| !target.is_empty())
}

/// A relative path as a path from the workspace root; `None` if it leaves the workspace.
fn resolve(document: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of all headings, as GitHub and mdBook make them: a repeated heading gets `-1`, `-2` and so on.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let anchor: String = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let mut unique = anchor.clone();
        let mut count = 0;
        while !found.insert(unique.clone()) {
            count += 1;
            unique = format!("{anchor}-{count}");
        }
    }
    found
}

/// The texts between single backticks.
pub(super) fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a span names something in this repository, by its beginning or end.
fn is_path(span: &str) -> bool {
    let in_the_tree = ["crates/", "docs/", "go/webhookauth", "python/webhookauth", ".ci/", ".cargo/"]
        .iter()
        .any(|start| span.starts_with(start));
    let at_the_root = [".md", ".toml", ".lock"].iter().any(|end| span.ends_with(end)) && !span.contains('/');
    (in_the_tree || at_the_root) && !span.contains([' ', '*', '…'])
}

/// Whether a span of a README looks like a folder or a source file.
fn is_package_path(span: &str) -> bool {
    let ends = span.ends_with('/') || [".rs", ".txt"].iter().any(|end| span.ends_with(end));
    ends && !span.starts_with(['/', '.', '-']) && !span.contains([' ', '*', '…', ':', '<', '='])
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn spread(span: &str) -> Vec<String> {
    let Some((before, rest)) = span.split_once('{') else { return vec![span.to_owned()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![span.to_owned()] };
    choices.split(',').flat_map(|choice| spread(&format!("{before}{choice}{after}"))).collect()
}

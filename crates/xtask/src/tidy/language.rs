//! Doc comments say something, and names and comments use Kubernetes' vocabulary, in Rust, Go and Python.

#[cfg(test)]
mod tests;

use super::sources::SourceFile;

/// A doc comment with fewer words only repeats the name.
const MIN_WORDS: usize = 4;

/// Words at the start of a doc comment that stand for a noun which it should use.
const VAGUE_STARTS: [&str; 10] =
    ["What", "Where", "Who", "Those", "Of", "It", "They", "There", "Also", "Not"];

/// Names that hide a known concept. A name is split at `_` and at capital letters; each part is compared as a whole.
const BANNED: [&str; 11] = [
    "door", "facet", "heard", "kept", "nobody", "place", "places", "somebody", "standing", "telling", "told",
];

/// Names of dependencies that contain a banned word.
const FOREIGN: [&str; 1] = ["block_in_place"];

/// The banned words that technical prose does not need either.
const BANNED_IN_PROSE: [&str; 6] = ["facet", "heard", "nobody", "somebody", "telling", "told"];

/// British spellings, of which each is the beginning of a word, and the American ones, which Kubernetes uses.
const SPELLINGS: [(&str, &str); 17] = [
    ("behaviour", "behavior"),
    ("cancellable", "cancelable"),
    ("cancelled", "canceled"),
    ("cancelling", "canceling"),
    ("capitalis", "capitaliz"),
    ("colour", "color"),
    ("defence", "defense"),
    ("favour", "favor"),
    ("honour", "honor"),
    ("initialis", "initializ"),
    ("labelled", "labeled"),
    ("labelling", "labeling"),
    ("neighbour", "neighbor"),
    ("normalis", "normaliz"),
    ("recognis", "recogniz"),
    ("serialis", "serializ"),
    ("summaris", "summariz"),
];

/// Crates in which `definition` would mean a CRD. Elsewhere it may be a word of another language, such as a definition in OpenAPI.
const CRD_CRATES: [&str; 8] =
    ["server", "catalog", "schema", "crd", "kinds", "controllers", "conformance", "fuzz"];

/// Keywords before the name of a type, module or function.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "union", "mod"];

/// Names of modules that do not say what the module contains.
const VAGUE_MODULES: [&str; 5] = ["util", "utils", "common", "helper", "helpers"];

/// Every finding of a file.
pub(super) fn check(source: &SourceFile) -> Vec<String> {
    let crate_name = source.path.split('/').nth(1).unwrap_or_default();
    let mut complaints = doc_comments(source);
    complaints.extend(vague_modules(source));
    complaints.extend(names(source, crate_name));
    complaints.extend(prose(&source.path, &source.comments()));
    complaints
}

/// Complains of modules, also those that a path names, with one of the [`VAGUE_MODULES`].
fn vague_modules(source: &SourceFile) -> Vec<String> {
    let path = source.path.split('/').skip(2).map(|part| (1, part.trim_end_matches(".rs").to_owned()));
    let code = source.all_code();
    let inline = code.lines().enumerate().filter_map(|(number, line)| {
        let names: Vec<&str> = identifiers(line).collect();
        let module = names.windows(2).find_map(|pair| match pair {
            ["mod", name] => Some((*name).to_owned()),
            _ => None,
        });
        module.filter(|_| line.contains('{')).map(|name| (number + 1, name))
    });
    path.chain(inline)
        .filter(|(_, name)| VAGUE_MODULES.contains(&name.as_str()))
        .map(|(line, name)| {
            format!("{}:{line}: the module `{name}`: name it after what it contains", source.path)
        })
        .collect()
}

/// Every finding of a file in another language. Comments are not separated from code: a name of several words must not contain a banned
/// word, and no text may contain one of [`BANNED_IN_PROSE`] or of the [`SPELLINGS`].
pub(super) fn check_other(path: &str, text: &str) -> Vec<String> {
    let mut complaints = path_names(path);
    for (number, line) in text.lines().enumerate() {
        for name in identifiers(line).filter(|name| words(name).len() > 1) {
            complaints.extend(banned_in(name, &BANNED).map(|word| complaint(path, number + 1, name, &word)));
        }
    }
    complaints.extend(prose(path, text));
    complaints
}

/// Every finding of a Markdown file. Code blocks show what programs print and read.
pub(super) fn check_markdown(path: &str, text: &str) -> Vec<String> {
    let mut is_code = false;
    let lines = text.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { "" } else { line }
    });
    prose(path, &lines.collect::<Vec<_>>().join("\n"))
}

/// Complains of banned words and British spellings in prose. A word in backticks is a quotation.
fn prose(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let unquoted: String = line.split('`').step_by(2).collect();
        for word in
            identifiers(&unquoted).filter(|word| BANNED_IN_PROSE.contains(&word.to_lowercase().as_str()))
        {
            complaints.push(format!(
                "{path}:{}: `{word}`: say which user, client or component is meant, and what it does",
                number + 1
            ));
        }
        for word in identifiers(&unquoted) {
            complaints.extend(spelling(path, number + 1, word));
        }
    }
    complaints
}

/// Complains of a name or word that contains a British spelling.
fn spelling(path: &str, line: usize, name: &str) -> Option<String> {
    let words = words(name);
    let (british, american) = SPELLINGS
        .iter()
        .find(|(british, _)| words.iter().any(|word| word.trim_start_matches("un").starts_with(british)))?;
    Some(format!("{path}:{line}: `{name}` has the spelling `{british}`: write `{american}`"))
}

/// Complains of the names of a file and of its folders.
fn path_names(path: &str) -> Vec<String> {
    let parts = path.split('/').map(|part| part.split('.').next().unwrap_or_default());
    parts.flat_map(|part| banned_in(part, &BANNED).map(move |word| complaint(path, 1, part, &word))).collect()
}

fn banned_in(name: &str, banned: &'static [&'static str]) -> impl Iterator<Item = String> {
    let words = if FOREIGN.contains(&name) { Vec::new() } else { words(name) };
    words.into_iter().filter(|word| banned.contains(&word.as_str()))
}

fn complaint(path: &str, line: usize, name: &str, word: &str) -> String {
    format!(
        "{path}:{line}: the name `{name}` contains `{word}`: use the word that Kubernetes or Rust has for it"
    )
}

/// The identifiers and words of a line.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// Complains of doc comments that are too short or refer to the item before.
pub(super) fn doc_comments(source: &SourceFile) -> Vec<String> {
    let mut complaints = Vec::new();
    let comments = source.comments();
    let mut lines = comments.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let Some((marker, first)) = doc_line(line) else { continue };
        let mut text = first.to_owned();
        while let Some((_, next)) =
            lines.peek().and_then(|(_, line)| doc_line(line)).filter(|(m, _)| *m == marker)
        {
            text.push(' ');
            text.push_str(next);
            lines.next();
        }
        let text = text.trim();
        let at = format!("{}:{}", source.path, number + 1);
        if text.split_whitespace().count() < MIN_WORDS && !text.contains("```") {
            complaints.push(format!(
                "{at}: the doc comment `{text}` has under {MIN_WORDS} words: say more, or delete it"
            ));
        }
        if text.starts_with("The same") {
            complaints.push(format!("{at}: a doc comment that begins with `The same` cannot be read alone"));
        }
        if let Some(word) = VAGUE_STARTS.iter().find(|word| text.split(' ').next() == Some(word)) {
            complaints
                .push(format!("{at}: a doc comment that begins with `{word}` names no thing: use a noun"));
        }
    }
    complaints
}

/// The marker and the text of a line that is a doc comment.
fn doc_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let (marker, text) = line.split_at_checked(3)?;
    let is_doc = marker == "//!" || (marker == "///" && !text.starts_with('/'));
    is_doc.then_some((marker, text))
}

/// Complains of names in code, and of the file's own, that contain a banned word.
pub(super) fn names(source: &SourceFile, crate_name: &str) -> Vec<String> {
    let mut complaints = path_names(&source.path);
    let is_crd_crate = CRD_CRATES.contains(&crate_name);
    for (number, line) in source.all_code().lines().enumerate() {
        let items = items(line);
        complaints.extend(items.iter().filter_map(|name| spelling(&source.path, number + 1, name)));
        for name in identifiers(line) {
            let crd = is_crd_crate.then(|| crd_word(name, items.contains(&name))).flatten();
            let banned = banned_in(name, &BANNED).chain(crd);
            complaints.extend(banned.map(|word| complaint(&source.path, number + 1, name, &word)));
        }
    }
    complaints
}

/// The word of a name that means a CRD without saying so. The plural is a field of OpenAPI documents too, so only items may not have it.
fn crd_word(name: &str, is_item: bool) -> Option<String> {
    let words = words(name);
    // Kubernetes has `CustomResourceDefinition` and `TableColumnDefinition`.
    let is_kubernetes = |two: &[String]| match two {
        [before, word] => word.starts_with("definition") && matches!(before.as_str(), "resource" | "column"),
        _ => false,
    };
    let is_spelled_out = words.windows(2).any(is_kubernetes);
    let word = words.into_iter().find(|word| word == "definition" || (is_item && word == "definitions"));
    word.filter(|_| !is_spelled_out)
}

/// The types, modules and functions that a line of code declares.
fn items(line: &str) -> Vec<&str> {
    let names: Vec<&str> = identifiers(line).collect();
    let declared = names.windows(2).filter_map(|pair| match pair {
        [keyword, name] if ITEMS.contains(keyword) => Some(*name),
        _ => None,
    });
    declared.collect()
}

/// `schemaEpoch`, `SchemaEpoch` and `SCHEMA_EPOCH` are `schema` and `epoch`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lowercase = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_lowercase) {
            words.push(String::new());
        }
        after_lowercase = c.is_lowercase() || c.is_ascii_digit();
        if let (true, Some(word)) = (c != '_', words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

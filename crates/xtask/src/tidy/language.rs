//! Doc comments say something, and declared names use Kubernetes' vocabulary.

#[cfg(test)]
mod tests;

use super::sources::Source;

/// A doc comment with fewer words only repeats the name.
const MIN_WORDS: usize = 4;

/// Names that hide a known concept. A name is split at `_` and at capital letters; each part is compared as a whole.
const BANNED: [&str; 10] =
    ["door", "facet", "heard", "kept", "nobody", "place", "somebody", "standing", "telling", "told"];

/// Where `definition` would mean a CRD. Elsewhere it may be a word of another language, such as a definition in OpenAPI.
const CRD_CRATES: [&str; 5] = ["server", "schema", "crd", "kinds", "controllers"];

/// Keywords before the name of a type, module or function.
const ITEMS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "union", "mod"];

/// Every finding of a file.
pub(super) fn check(source: &Source) -> Vec<String> {
    let crate_name = source.path.split('/').nth(1).unwrap_or_default();
    let mut complaints = doc_comments(source);
    complaints.extend(names(source, crate_name));
    complaints
}

/// Complains of doc comments that are too short or refer to the item before.
pub(super) fn doc_comments(source: &Source) -> Vec<String> {
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
pub(super) fn names(source: &Source, crate_name: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut check = |line: usize, name: &str, is_item: bool| {
        // The whole word, `CustomResourceDefinition`, is the one that Kubernetes has.
        let is_spelled_out = words(name)
            .windows(3)
            .any(|three| three.join(" ").trim_end_matches('s') == "custom resource definition");
        let definition = is_item && CRD_CRATES.contains(&crate_name) && !is_spelled_out;
        for word in words(name) {
            if BANNED.contains(&word.as_str())
                || (definition && matches!(word.as_str(), "definition" | "definitions"))
            {
                complaints.push(format!(
                    "{}:{line}: the name `{name}` contains `{word}`: use the word that Kubernetes or Rust has for it",
                    source.path
                ));
            }
        }
    };
    let file = source.path.rsplit('/').next().unwrap_or_default();
    check(1, file.trim_end_matches(".rs"), true);
    for (number, line) in source.all_code().lines().enumerate() {
        let items = items(line);
        for name in line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty()) {
            check(number + 1, name, items.contains(&name));
        }
    }
    complaints
}

/// The types, modules and functions that a line of code declares.
fn items(line: &str) -> Vec<&str> {
    let names: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
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

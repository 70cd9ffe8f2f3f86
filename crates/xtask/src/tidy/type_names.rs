//! A type name means one thing in the whole workspace, so that a search for it finds its home.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::sources::SourceFile;

/// Names that mean the same in every crate or module that has one.
const ONE_CONCEPT: [&str; 4] = ["Args", "Config", "Error", "Result"];

/// Tools and test helpers. Like tests, they may have types with the names of each other's, but not with those of the server's types.
const TOOLS: [&str; 5] = ["conformance", "fuzz", "pages", "torture", "xtask"];

/// Complains of every type name of the server's crates that is declared again, there or in a test or tool. Associated types are not
/// compared.
pub(super) fn unique(sources: &[SourceFile]) -> Vec<String> {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut others: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources {
        let is_other = source.is_test() || source.within(&TOOLS);
        // In `code`, test modules are blank.
        for (number, (line, code)) in source.all_code().lines().zip(source.code().lines()).enumerate() {
            let Some(name) = declared(line).filter(|name| !ONE_CONCEPT.contains(name)) else { continue };
            let kind = if is_other || code.trim().is_empty() { &mut others } else { &mut homes };
            kind.entry(name.to_owned()).or_default().push(format!("{}:{}", source.path, number + 1));
        }
    }
    homes
        .into_iter()
        .map(|(name, mut homes)| {
            homes.extend(others.remove(&name).unwrap_or_default());
            (name, homes)
        })
        .filter(|(_, homes)| homes.len() > 1)
        .map(|(name, homes)| {
            format!("the type name `{name}` is declared in {}: one name, one meaning", homes.join(" and "))
        })
        .collect()
}

/// The name of the type that a line declares. An indented `type` is an associated type or local to a function.
fn declared(line: &str) -> Option<&str> {
    let mut words =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).peekable();
    // `pub(in crate::path)` and `unsafe` are the only things before the keyword.
    while words.next_if(|word| !matches!(*word, "struct" | "enum" | "trait" | "type")).is_some() {}
    let keyword = words.next()?;
    let begins = |prefix: &str| line.trim_start().starts_with(prefix);
    if !(begins("pub") || begins("unsafe") || begins(keyword)) || (keyword == "type" && line.starts_with(' '))
    {
        return None;
    }
    words.next()
}

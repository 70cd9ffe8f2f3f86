//! A type name means one thing in the whole workspace, so that a search for it finds its home.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::sources::Source;

/// Names that mean the same in every crate or module that has one.
const ONE_CONCEPT: [&str; 6] = ["Args", "BoxFuture", "Config", "Error", "Inner", "Result"];

/// Crates whose types are not compared: tools and test helpers, and `webhook-auth`, which others use without the rest of the workspace.
const OWN_NAMES: [&str; 5] = ["conformance", "fuzz", "pages", "webhook-auth", "xtask"];

/// Complains of every type name that is declared more than once outside tests. Associated types are not compared.
pub(super) fn unique(sources: &[Source]) -> Vec<String> {
    let mut homes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let compared = |source: &&Source| !source.is_test() && !source.within(&OWN_NAMES);
    for source in sources.iter().filter(compared) {
        for (number, line) in source.code().lines().enumerate() {
            if let Some(name) = declared(line).filter(|name| !ONE_CONCEPT.contains(name)) {
                homes.entry(name).or_default().push(format!("{}:{}", source.path, number + 1));
            }
        }
    }
    homes
        .into_iter()
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

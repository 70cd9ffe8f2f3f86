//! Parses the hand-written `facts.txt` into [`SchemaFacts`].

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

/// The content of the facts file.
#[derive(Debug, Default)]
pub(super) struct SchemaFacts {
    /// The packages whose definitions are read.
    pub packages: BTreeSet<String>,
    /// Types with a JSON form of their own.
    pub kinds: BTreeMap<String, String>,
    /// The values of named string types, as the table writes them: quoted when empty, spaces as `_`.
    pub enums: BTreeMap<String, Vec<String>>,
    /// Types that no definition has, as the table writes them.
    pub types: BTreeMap<String, String>,
    /// Exceptions for single fields, by `package.Type.field`.
    pub fields: BTreeMap<String, FieldFacts>,
}

/// Exceptions from the general rules for one field.
#[derive(Debug, Default)]
pub(super) struct FieldFacts {
    pub pointer: Option<bool>,
    pub omit: Option<OmitRule>,
    pub go_type: Option<String>,
    pub embedded: Option<String>,
    pub default: Option<String>,
    /// The field exists only in Portcullis, not in Kubernetes.
    pub added: bool,
}

/// When a field is left out of the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OmitRule {
    Always,
    Empty,
    Zero,
}

impl SchemaFacts {
    pub(super) fn parse(text: &str) -> Result<SchemaFacts> {
        let mut facts = SchemaFacts::default();
        for (number, line) in text.lines().enumerate() {
            facts.line(line).with_context(|| format!("facts, line {}: `{line}`", number + 1))?;
        }
        Ok(facts)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let Some((word, rest)) = line.split_once(' ').filter(|_| !line.starts_with('#')) else {
            if line.is_empty() || line.starts_with('#') {
                return Ok(());
            }
            bail!("one word alone");
        };
        let fresh = match word {
            "package" => self.packages.insert(rest.to_owned()),
            "kind" => {
                let (name, form) = rest.split_once(' ').context("no form")?;
                self.kinds.insert(name.to_owned(), form.to_owned()).is_none()
            }
            "enum" => {
                let (name, values) = rest.split_once(' ').context("no values")?;
                self.enums.insert(name.to_owned(), words(values)?).is_none()
            }
            "type" => {
                let (name, line) = rest.split_once(' ').context("no line")?;
                self.types.insert(name.to_owned(), line.to_owned()).is_none()
            }
            "field" => {
                let (name, about) = rest.split_once(' ').context("no facts")?;
                let mut field = FieldFacts::default();
                for fact in about.split(' ') {
                    field.fact(fact)?;
                }
                self.fields.insert(name.to_owned(), field).is_none()
            }
            other => bail!("unknown word `{other}`"),
        };
        if !fresh {
            bail!("said twice");
        }
        Ok(())
    }
}

impl FieldFacts {
    fn fact(&mut self, fact: &str) -> Result<()> {
        match fact.split_once('=') {
            None => match fact {
                "pointer" => self.pointer = Some(true),
                "value" => self.pointer = Some(false),
                "always" => self.omit = Some(OmitRule::Always),
                "omitempty" => self.omit = Some(OmitRule::Empty),
                "omitzero" => self.omit = Some(OmitRule::Zero),
                "added" => self.added = true,
                other => bail!("unknown fact `{other}`"),
            },
            Some(("type", go_type)) => self.go_type = Some(go_type.to_owned()),
            Some(("in", embedded)) => self.embedded = Some(embedded.to_owned()),
            Some(("default", json)) => self.default = Some(json.to_owned()),
            Some((other, _)) => bail!("unknown fact `{other}`"),
        }
        Ok(())
    }
}

/// Words separated by spaces, some in double quotes; as the table writes them.
fn words(mut text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    while !text.is_empty() {
        let (word, rest) = if let Some(quoted) = text.strip_prefix('"') {
            let (word, rest) = quoted.split_once('"').context("a quote that does not end")?;
            (if word.is_empty() { "\"\"".to_owned() } else { word.replace(' ', "_") }, rest)
        } else {
            let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
            (word.to_owned(), rest)
        };
        words.push(word);
        text = rest.trim_start();
    }
    Ok(words)
}

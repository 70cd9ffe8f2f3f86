//! [`FieldSelector`]: such as `metadata.name=x,status.phase!=Running`.

use std::fmt;

use value::Str;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: Str,
    /// True for `=`, false for `!=`.
    pub equals: bool,
    pub value: Str,
}

/// A conjunction of requirements on fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// A selector that matches every object.
    pub const fn everything() -> Self {
        FieldSelector { requirements: Vec::new() }
    }

    /// A selector for objects whose `field` is `value`.
    pub fn equals(field: impl Into<Str>, value: impl Into<Str>) -> Self {
        let requirement = FieldRequirement { field: field.into(), equals: true, value: value.into() };
        FieldSelector { requirements: vec![requirement] }
    }

    /// Parses the query parameter `fieldSelector`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms: Vec<&str> = split_terms(text).take(super::MAX_REQUIREMENTS + 1).collect();
        super::check_requirements(terms.len())?;
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|t| !t.is_empty()) {
            let Some((field, equals, value)) = split_term(term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            let value = unescape_value(value)?;
            requirements.push(FieldRequirement { field: field.into(), equals, value: value.into() });
        }
        Ok(FieldSelector { requirements })
    }

    /// True if the selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// All requirements, sorted by their text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// A selector with the same requirements on renamed fields: `rename` returns the new name of a field, if it has one.
    #[must_use]
    pub fn renamed<S: Into<value::Str>>(mut self, rename: impl Fn(&str) -> Option<S>) -> Self {
        for requirement in &mut self.requirements {
            if let Some(name) = rename(&requirement.field) {
                requirement.field = name.into();
            }
        }
        self
    }

    /// Bytes of memory that the selector holds, besides this value itself.
    pub fn heap_bytes(&self) -> usize {
        let texts =
            self.requirements.iter().map(|r| super::heap_bytes(&r.field) + super::heap_bytes(&r.value));
        self.requirements.capacity() * size_of::<FieldRequirement>() + texts.sum::<usize>()
    }

    /// The value that the selector requires `field` to have, if any.
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.equals && r.field == field).map(|r| r.value.as_str())
    }

    /// True if the selector matches; `get` returns the value of a field, empty if it has none.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> &'a str) -> bool {
        self.requirements.iter().all(|r| (get(&r.field) == r.value) == r.equals)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let operator = if r.equals { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", r.field, escape_value(&r.value))?;
        }
        Ok(())
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let splits = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        splits
    })
}

/// Splits a term into field, whether it is `=`, and the escaped value. The first operator counts.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let (at, _) = term.char_indices().find(|(i, c)| {
        *c == '=' || (*c == '!' && term.get(i + 1..).is_some_and(|rest| rest.starts_with('=')))
    })?;
    let (field, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((field, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((field, true, value))
}

/// Escapes a value for use in a field selector.
pub fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn unescape_value(text: &str) -> Result<String, String> {
    let invalid = |what: &str| format!("invalid field selector: invalid escape sequence: {what}");
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => return Err(invalid(&format!("\\{other}"))),
                None => return Err(invalid("\\")),
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", c as u32));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

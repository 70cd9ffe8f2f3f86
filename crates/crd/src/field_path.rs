//! Resolves the field paths of rules and selectable fields in a schema.

use std::fmt::Write as _;

use super::node::SchemaNode;

/// A path such as `.spec.x['a.b']`, resolved in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    steps: Vec<(bool, String)>,
}

impl FieldPath {
    /// The path as Kubernetes prints it in errors.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (named, step) in &self.steps {
            if !named {
                let _ = write!(text, "[{step}]");
            } else if text.is_empty() {
                text.push_str(step);
            } else {
                text.push('.');
                text.push_str(step);
            }
        }
        text
    }

    /// The first step, empty if there is none.
    pub fn root(&self) -> &str {
        self.steps.first().map_or("", |(_, step)| step)
    }
}

/// Resolves a path in a schema. `brackets` allows `['name']` steps.
pub fn field_path<'n>(
    path: &str,
    node: &'n SchemaNode,
    brackets: bool,
) -> Result<(FieldPath, &'n SchemaNode), String> {
    let mut found = FieldPath { steps: Vec::new() };
    let mut here = node;
    let mut tokens = tokens(path).into_iter();
    while let Some(token) = tokens.next() {
        let ended = || "unexpected end of JSON path".to_owned();
        let name = match token.as_str() {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = tokens.next().ok_or_else(ended)?;
                let inner = quoted
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = unescape(inner).map_err(|error| format!("invalid string literal: {error}"))?;
                here = step(here, &name, &mut found)?;
                let close = tokens.next().ok_or_else(ended)?;
                if close != "]" {
                    return Err(format!("expected ] but got {close}"));
                }
                continue;
            }
            "." => tokens.next().ok_or_else(ended)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        here = step(here, &name, &mut found)?;
    }
    Ok((found, here))
}

fn step<'n>(node: &'n SchemaNode, name: &str, found: &mut FieldPath) -> Result<&'n SchemaNode, String> {
    let not_there = || "does not refer to a valid field".to_owned();
    if !node.properties.is_empty() {
        found.steps.push((true, name.to_owned()));
        return node.property(name).ok_or_else(not_there);
    }
    let values = node.values().ok_or_else(not_there)?;
    found.steps.push((false, name.to_owned()));
    Ok(values)
}

fn tokens(path: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut token = String::new();
    let mut escaped = false;
    for c in path.chars() {
        if token.starts_with('\'') {
            token.push(c);
            if c == '\'' && !escaped {
                tokens.push(std::mem::take(&mut token));
            }
            escaped = c == '\\';
            continue;
        }
        if matches!(c, '.' | '[' | ']') {
            if !token.is_empty() {
                tokens.push(std::mem::take(&mut token));
            }
            tokens.push(c.to_string());
        } else {
            token.push(c);
        }
    }
    if !token.is_empty() {
        tokens.push(token);
    }
    tokens
}

/// Resolves the escape sequences of a quoted step, of which there are fewer than in Go.
fn unescape(text: &str) -> Result<String, String> {
    value::go::unescape(text, |escaped, _| {
        let resolved = match escaped {
            Some('\'' | '\\') => escaped,
            other => other.and_then(value::go::escaped_control),
        };
        resolved
            .ok_or_else(|| format!("invalid escape char \\{}", escaped.map(String::from).unwrap_or_default()))
    })
}

//! What is wrong with a folder: one problem per line of the report, and the one line that kube-apiserver would print.

use std::fmt;

use api::FieldErrors;
use value::yaml::{self, Position};

use super::decode::Place;
use super::{File, Set};

/// More than anybody reads.
const MAX_PROBLEMS: usize = 1000;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file; empty if it is the folder as a whole.
    pub file: String,
    /// Where in it.
    pub position: Option<Position>,
    /// The path of the field; empty if it is no field's.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
    /// The line of the file, for showing it.
    pub source: Option<String>,
}

/// As a compiler prints it: the problem, the place, the line with the place underlined, the way out.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        let Some(position) = self.position else {
            if !self.file.is_empty() {
                write!(f, "\n  --> {}", self.file)?;
            }
            return self.write_hint(f, 1);
        };
        let number = position.line.to_string();
        let width = number.len();
        write!(f, "\n{:width$}--> {}:{position}", "", self.file)?;
        if let Some(source) = &self.source {
            let column = position.column.saturating_sub(1);
            let marks = source.trim_end().chars().count().saturating_sub(column).max(1);
            write!(f, "\n{:width$} |\n{number} | {}\n{:width$} | ", "", source.trim_end(), "")?;
            write!(f, "{:column$}{}", "", "^".repeat(marks))?;
        }
        self.write_hint(f, width)
    }
}

impl Problem {
    fn write_hint(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        match &self.hint {
            Some(hint) => write!(f, "\n{:width$} = help: {hint}", ""),
            None => Ok(()),
        }
    }
}

/// Why a folder is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    summary: String,
    problems: Vec<Problem>,
}

impl Refused {
    /// A folder that cannot be read at all.
    pub fn folder(set: Set, folder: &str, why: &str) -> Self {
        let problem = Problem {
            file: folder.to_owned(),
            position: None,
            field: String::new(),
            message: why.to_owned(),
            hint: Some("name a folder that the server may read".to_owned()),
            source: None,
        };
        Refused { summary: summary(set, folder, why), problems: vec![problem] }
    }

    /// Everything that is wrong.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// As kube-apiserver says it: the first problem alone.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

impl std::error::Error for Refused {}

/// Problems as they are found.
pub(super) struct Problems<'a> {
    set: Set,
    folder: &'a str,
    first: Option<String>,
    found: Vec<Problem>,
    count: usize,
}

impl<'a> Problems<'a> {
    pub(super) fn new(set: Set, folder: &'a str) -> Self {
        Problems { set, folder, first: None, found: Vec::new(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a problem. `said` is what kube-apiserver says of it, if it is the first.
    pub(super) fn push(&mut self, said: impl FnOnce() -> String, problem: Problem) {
        self.first.get_or_insert_with(said);
        self.count += 1;
        if self.found.len() < MAX_PROBLEMS {
            self.found.push(problem);
        }
    }

    /// A file that cannot be read.
    pub(super) fn unreadable(&mut self, path: &str, why: &str) {
        self.push(
            || format!("failed to read file {}: {why}", api::field::quote(path)),
            Problem {
                file: path.to_owned(),
                position: None,
                field: String::new(),
                message: format!("cannot be read: {why}"),
                hint: Some("make it a readable file or take it out of the folder".to_owned()),
                source: None,
            },
        );
    }

    /// A file whose documents cannot be told apart.
    pub(super) fn unsplittable(&mut self, file: &File, error: &yaml::Error) {
        let path = api::field::quote(&file.path);
        let problem = Problem {
            file: file.path.clone(),
            position: Some(error.position),
            field: String::new(),
            message: error.message.clone(),
            hint: Some("a line that begins with `---` separates documents and says nothing else".to_owned()),
            source: source_line(file, error.position),
        };
        self.push(|| format!("failed to split YAML documents in file {path}: {}", error.message), problem);
    }

    /// A problem at a field. `said` is what kube-apiserver says after `error loading FILE: `.
    pub(super) fn at(
        &mut self,
        file: &File,
        position: Position,
        field: &str,
        message: String,
        hint: Option<&str>,
        said: impl FnOnce() -> String,
    ) {
        let problem = Problem {
            file: file.path.clone(),
            position: Some(position),
            field: field.to_owned(),
            message,
            hint: hint.map(str::to_owned),
            source: source_line(file, position),
        };
        self.push(|| format!("error loading {}: {}", file.path, said()), problem);
    }

    /// Broken rules of the API.
    pub(super) fn invalid(
        &mut self,
        file: &File,
        kind: &str,
        name: &str,
        place: &Place,
        errors: &FieldErrors,
    ) {
        let said = format!("{kind} {}: {}", api::field::quote(name), api::field::aggregate(errors));
        for error in errors {
            let field = error.field.clone();
            self.at(file, place.of(&field), &field, error.to_string(), None, || said.clone());
        }
    }

    pub(super) fn finish(self) -> Result<(), Refused> {
        let Some(first) = self.first else { return Ok(()) };
        let summary = summary(self.set, self.folder, &first);
        let mut problems = self.found;
        if self.count > problems.len() {
            problems.push(Problem {
                file: String::new(),
                position: None,
                field: String::new(),
                message: format!("and {} more", self.count - MAX_PROBLEMS),
                hint: None,
                source: None,
            });
        }
        Err(Refused { summary, problems })
    }
}

fn summary(set: Set, folder: &str, why: &str) -> String {
    let what = if set.is_webhooks() { "webhook" } else { "policy" };
    format!("failed to load static {what} manifests from {}: {why}", api::field::quote(folder))
}

fn source_line(file: &File, position: Position) -> Option<String> {
    let content = file.content.as_ref().ok()?;
    let line = content.split(|b| *b == b'\n').nth(position.line.checked_sub(1)?)?;
    // A line of a minified file is no help.
    (line.len() <= 400).then(|| String::from_utf8_lossy(line).replace('\t', " "))
}

//! What is wrong with a folder: one problem per line of the report, and the one line that kube-apiserver would print.

use std::fmt;

use api::FieldErrors;
use value::yaml::{self, Position};

use super::decode::Place;
use super::expected::EXPECTED_OBJECTS;
use super::{File, Set};

/// More than anybody reads.
pub(super) const MAX_PROBLEMS: usize = 1000;

/// What the rules of the API say where there is no name, and what is true of objects in files: nothing generates their names.
const NAME_OR_PREFIX: &str = "name or generateName is required";
const NAME: &str = "name is required";
pub(super) const NAME_HINT: &str = "objects in files have names that end with `.static.k8s.io`";

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
        write!(f, "error: {}{}", self.message, self.picture())
    }
}

impl Problem {
    /// A problem of a file, or a folder, as a whole.
    pub fn of_file(path: &str, message: String, hint: Option<&str>) -> Self {
        Problem {
            file: path.to_owned(),
            position: None,
            field: String::new(),
            message,
            hint: hint.map(str::to_owned),
            source: None,
        }
    }

    /// A problem at a place in a file.
    pub(super) fn at(
        file: &File,
        position: Position,
        field: &str,
        message: String,
        hint: Option<&str>,
    ) -> Self {
        Problem {
            position: Some(position),
            field: field.to_owned(),
            source: source_line(file, position),
            ..Problem::of_file(&file.path, message, hint)
        }
    }

    /// The text of the problem as a warning, with its place: [`fmt::Display`] shows it as an error.
    pub fn as_warning(&self) -> String {
        format!("warning: {}{}", self.message, self.picture())
    }

    /// `FILE:LINE:COLUMN: MESSAGE`, for logs, in which a problem is one line.
    pub fn one_line(&self) -> String {
        let place = match self.position {
            Some(position) => format!("{}:{position}: ", self.file),
            None if self.file.is_empty() => String::new(),
            None => format!("{}: ", self.file),
        };
        format!("{place}{}", self.message)
    }

    /// What follows the message: place, line and hint.
    fn picture(&self) -> String {
        let mut out = String::new();
        let _ = self.write_picture(&mut out);
        out
    }

    fn write_picture(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let mut width = 1;
        if let Some(position) = self.position {
            let number = position.line.to_string();
            width = number.len();
            write!(f, "\n{:width$}--> {}:{position}", "", self.file)?;
            if let Some(source) = &self.source {
                let column = position.column.saturating_sub(1);
                let marks = source.trim_end().chars().count().saturating_sub(column).max(1);
                write!(f, "\n{:width$} |\n{number} | {}\n{:width$} | ", "", source.trim_end(), "")?;
                write!(f, "{:column$}{}", "", "^".repeat(marks))?;
            }
        } else if !self.file.is_empty() {
            write!(f, "\n  --> {}", self.file)?;
        }
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
        let problem =
            Problem::of_file(folder, why.to_owned(), Some("name a folder that the server may read"));
        Refused { summary: summary(set, folder, why), problems: vec![problem] }
    }

    /// Everything that is wrong.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What follows kube-apiserver's message, which is about the first problem: the place of that problem, then the other problems.
    pub fn places(&self) -> String {
        let mut problems = self.problems.iter();
        let mut text = problems.next().map(Problem::picture).unwrap_or_default();
        for problem in problems {
            text.push_str("\n\n");
            text.push_str(&problem.to_string());
        }
        text
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
            Problem::of_file(
                path,
                format!("cannot be read: {why}"),
                Some("make it a readable file or take it out of the folder"),
            ),
        );
    }

    /// The list of expected objects was there when the folder was last accepted.
    pub(super) fn list_is_gone(&mut self) {
        let message = format!("{EXPECTED_OBJECTS} is gone, which protected the folder from losing objects");
        let said = message.clone();
        let hint = "restore the file; to do without it, remove it and restart the server";
        let problem = Problem::of_file(self.folder, message, Some(hint));
        self.push(|| said, problem);
    }

    /// A file whose documents cannot be told apart.
    pub(super) fn unsplittable(&mut self, file: &File, error: &yaml::Error) {
        let path = api::field::quote(&file.path);
        let hint = "a line that begins with `---` separates documents and says nothing else";
        let problem = Problem::at(file, error.position, "", error.message.clone(), Some(hint));
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
        let problem = Problem::at(file, position, field, message, hint);
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
        let words = api::field::aggregate(errors).replace(NAME_OR_PREFIX, NAME);
        let said = format!("{kind} {}: {words}", api::field::quote(name));
        for error in errors {
            let (field, words) = (error.field.clone(), error.to_string());
            let hint = words.contains(NAME_OR_PREFIX).then_some(NAME_HINT);
            let words = words.replace(NAME_OR_PREFIX, NAME);
            self.at(file, place.of(&field), &field, words, hint, || said.clone());
        }
    }

    pub(super) fn finish(self) -> Result<(), Refused> {
        let Some(first) = self.first else { return Ok(()) };
        let summary = summary(self.set, self.folder, &first);
        let mut problems = self.found;
        if self.count > problems.len() {
            problems.push(Problem::of_file("", format!("and {} more", self.count - MAX_PROBLEMS), None));
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

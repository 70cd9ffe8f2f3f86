//! Problems of a directory: a full report, and the single line that kube-apiserver prints.

use std::fmt;

use api::FieldErrors;
use value::yaml::{self, Position};

use super::decode::ObjectSpans;
use super::expected::EXPECTED_OBJECTS;
use super::{ManifestFile, ManifestSet};

/// A report lists at most this many problems.
pub(super) const MAX_PROBLEMS: usize = 1000;

/// The API's message for a missing name. In files, names cannot be generated, so [`NAME`] replaces it.
const NAME_OR_PREFIX: &str = "name or generateName is required";
const NAME: &str = "name is required";
pub(super) const NAME_HINT: &str = "objects in files have names that end with `.static.k8s.io`";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// Empty if the problem concerns the directory.
    pub file: String,
    pub position: Option<Position>,
    /// The field path; empty if the problem concerns no field.
    pub field: String,
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
    /// The source line, for display.
    pub source: Option<String>,
}

/// Formats like a compiler: message, position, source line with an underline, hint.
impl fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}{}", self.message, self.location_and_hint())
    }
}

impl ManifestProblem {
    /// A problem of a whole file or directory.
    pub fn of_file(path: &str, message: String, hint: Option<&str>) -> Self {
        ManifestProblem {
            file: path.to_owned(),
            position: None,
            field: String::new(),
            message,
            hint: hint.map(str::to_owned),
            source: None,
        }
    }

    /// A problem at a source position.
    pub(super) fn at(
        file: &ManifestFile,
        position: Position,
        field: &str,
        message: String,
        hint: Option<&str>,
    ) -> Self {
        ManifestProblem {
            position: Some(position),
            field: field.to_owned(),
            source: source_line(file, position),
            ..ManifestProblem::of_file(&file.path, message, hint)
        }
    }

    /// Formats like [`fmt::Display`], but as a warning.
    pub fn as_warning(&self) -> String {
        format!("warning: {}{}", self.message, self.location_and_hint())
    }

    /// `FILE:LINE:COLUMN: MESSAGE`, for logs.
    pub fn one_line(&self) -> String {
        let position_text = match self.position {
            Some(position) => format!("{}:{position}: ", self.file),
            None if self.file.is_empty() => String::new(),
            None => format!("{}: ", self.file),
        };
        format!("{position_text}{}", self.message)
    }

    /// The lines after the message: position, source line and hint.
    fn location_and_hint(&self) -> String {
        let mut out = String::new();
        let _ = self.write_location_and_hint(&mut out);
        out
    }

    fn write_location_and_hint(&self, f: &mut impl fmt::Write) -> fmt::Result {
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

/// The directory was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    summary: String,
    problems: Vec<ManifestProblem>,
}

impl LoadError {
    /// The directory cannot be read.
    pub fn directory(set: ManifestSet, directory: &str, why: &str) -> Self {
        let problem = ManifestProblem::of_file(
            directory,
            why.to_owned(),
            Some("name a directory that the server may read"),
        );
        LoadError { summary: summary(set, directory, why), problems: vec![problem] }
    }

    pub fn problems(&self) -> &[ManifestProblem] {
        &self.problems
    }

    /// The report to print after kube-apiserver's message, which is about the first problem: the position of
    /// that problem, then all others.
    pub fn report(&self) -> String {
        let mut problems = self.problems.iter();
        let mut text = problems.next().map(ManifestProblem::location_and_hint).unwrap_or_default();
        for problem in problems {
            text.push_str("\n\n");
            text.push_str(&problem.to_string());
        }
        text
    }
}

/// kube-apiserver's message, about the first problem.
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

impl std::error::Error for LoadError {}

pub(super) struct Problems<'a> {
    set: ManifestSet,
    directory: &'a str,
    first: Option<String>,
    found: Vec<ManifestProblem>,
    count: usize,
}

impl<'a> Problems<'a> {
    pub(super) fn new(set: ManifestSet, directory: &'a str) -> Self {
        Problems { set, directory, first: None, found: Vec::new(), count: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Adds a problem. `report` is kube-apiserver's message for it, used if it is the first.
    pub(super) fn push(&mut self, report: impl FnOnce() -> String, problem: ManifestProblem) {
        self.first.get_or_insert_with(report);
        self.count += 1;
        if self.found.len() < MAX_PROBLEMS {
            self.found.push(problem);
        }
    }

    /// A file that cannot be read.
    pub(super) fn unreadable(&mut self, path: &str, why: &str) {
        self.push(
            || format!("failed to read file {}: {why}", api::field::quote(path)),
            ManifestProblem::of_file(
                path,
                format!("cannot be read: {why}"),
                Some("make it a readable file or take it out of the directory"),
            ),
        );
    }

    /// The list of expected objects existed when the directory was last accepted.
    pub(super) fn expected_objects_missing(&mut self) {
        let message =
            format!("{EXPECTED_OBJECTS} is gone, which protected the directory from losing objects");
        let report = message.clone();
        let hint = "restore the file; to do without it, remove it and restart the server";
        let problem = ManifestProblem::of_file(self.directory, message, Some(hint));
        self.push(|| report, problem);
    }

    /// A file that cannot be split into documents.
    pub(super) fn invalid_documents(&mut self, file: &ManifestFile, error: &yaml::Error) {
        let path = api::field::quote(&file.path);
        let hint = "a line that begins with `---` separates documents and says nothing else";
        let problem = ManifestProblem::at(file, error.position, "", error.message.clone(), Some(hint));
        self.push(|| format!("failed to split YAML documents in file {path}: {}", error.message), problem);
    }

    /// A problem in a file. `report` is kube-apiserver's message after `error loading FILE: `.
    pub(super) fn error_loading(&mut self, problem: ManifestProblem, report: impl FnOnce() -> String) {
        let file = problem.file.clone();
        self.push(|| format!("error loading {file}: {}", report()), problem);
    }

    /// Violations of the API's validation rules.
    pub(super) fn invalid(
        &mut self,
        file: &ManifestFile,
        kind: &str,
        name: &str,
        position_text: &ObjectSpans,
        errors: &FieldErrors,
    ) {
        let words = api::field::aggregate(errors).replace(NAME_OR_PREFIX, NAME);
        let report = format!("{kind} {}: {words}", api::field::quote(name));
        for error in errors {
            let (field, words) = (error.field.clone(), error.to_string());
            let hint = words.contains(NAME_OR_PREFIX).then_some(NAME_HINT);
            let words = words.replace(NAME_OR_PREFIX, NAME);
            self.error_loading(
                ManifestProblem::at(file, position_text.of(&field), &field, words, hint),
                || report.clone(),
            );
        }
    }

    pub(super) fn finish(self) -> Result<(), LoadError> {
        let Some(first) = self.first else { return Ok(()) };
        let summary = summary(self.set, self.directory, &first);
        let mut problems = self.found;
        if self.count > problems.len() {
            problems.push(ManifestProblem::of_file(
                "",
                format!("and {} more", self.count - MAX_PROBLEMS),
                None,
            ));
        }
        Err(LoadError { summary, problems })
    }
}

fn summary(set: ManifestSet, directory: &str, why: &str) -> String {
    let what = if set.is_webhooks() { "webhook" } else { "policy" };
    format!("failed to load static {what} manifests from {}: {why}", api::field::quote(directory))
}

fn source_line(file: &ManifestFile, position: Position) -> Option<String> {
    let content = file.content.as_ref().ok()?;
    let line = content.split(|b| *b == b'\n').nth(position.line.checked_sub(1)?)?;
    // The line of a minified file is too long to be useful.
    (line.len() <= 400).then(|| String::from_utf8_lossy(line).replace('\t', " "))
}

//! `portcullis check`: validates static manifests and configuration files with the loader of the server.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use admission::manifests::{
    EXPECTED_OBJECTS, LoadError, LoadOptions, LoadedManifests, ManifestProblem, ManifestSet,
};
use admission::policy::BuiltInKinds;
use anyhow::{Result, bail};
use clap::ValueEnum;
use server::manifests;
use value::{Value, write};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directories of static manifests. Without --plugin, a directory may contain all six admission kinds.
    #[arg(value_name = "DIR", required_unless_present_any = ["config", "authorization_config"])]
    directories: Vec<PathBuf>,
    /// Admission plugin that the directories are for: only its kinds are valid.
    #[arg(long, value_enum, conflicts_with = "config")]
    plugin: Option<ManifestPlugin>,
    /// AdmissionConfiguration file, as for --admission-control-config-file; the directories that it names are checked, too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// AuthorizationConfiguration file, as for --authorization-config.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// Treat warnings as errors: type errors in expressions, policies without a binding, a caBundle without a certificate, and
    /// directories without objects.
    #[arg(long)]
    strict: bool,
    /// Write the names of the objects in each directory to its file expected-objects.txt. From then on, the directory is rejected
    /// unless it contains exactly these objects.
    #[arg(long)]
    write_expected: bool,
    /// Format of the output.
    #[arg(long, short, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ManifestPlugin {
    #[value(name = "ValidatingAdmissionPolicy")]
    ValidatingPolicy,
    #[value(name = "MutatingAdmissionPolicy")]
    MutatingPolicy,
    #[value(name = "ValidatingAdmissionWebhook")]
    ValidatingWebhook,
    #[value(name = "MutatingAdmissionWebhook")]
    MutatingWebhook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// Text with file, line and source excerpt
    Text,
    /// A single JSON object
    Json,
    /// Workflow commands that annotate lines in GitHub Actions
    Github,
}

/// The result for one directory or file.
struct CheckReport {
    path: PathBuf,
    content: CheckedContent,
    problems: Vec<ManifestProblem>,
    /// Valid, but probably not what the author meant.
    warnings: Vec<ManifestProblem>,
}

/// A summary, empty if there are problems.
enum CheckedContent {
    /// A directory of manifests: the number of objects and the hash of their content.
    Directory(usize, String),
    /// A configuration file: a summary such as `2 authorizers`.
    File(String),
}

/// Prints the results; the error is the number of problems.
pub(crate) fn run(args: &Args) -> Result<()> {
    let set = match args.plugin {
        None => ManifestSet::Mixed,
        Some(ManifestPlugin::ValidatingPolicy) => ManifestSet::ValidatingPolicies,
        Some(ManifestPlugin::MutatingPolicy) => ManifestSet::MutatingPolicies,
        Some(ManifestPlugin::ValidatingWebhook) => ManifestSet::ValidatingWebhooks,
        Some(ManifestPlugin::MutatingWebhook) => ManifestSet::MutatingWebhooks,
    };
    let mut checked: Vec<CheckReport> =
        args.directories.iter().map(|directory| check_directory(set, directory, args)).collect();
    if let Some(path) = &args.config {
        checked.extend(check_admission_config(path, args));
    }
    checked.extend(args.authorization_config.as_deref().map(check_authorization_config));
    let mut out = std::io::stdout().lock();
    match args.output {
        OutputFormat::Text => checked.iter().for_each(|c| print_text(&mut out, c)),
        OutputFormat::Github => checked.iter().for_each(|c| print_github(&mut out, c)),
        OutputFormat::Json => {
            let _ = writeln!(out, "{}", String::from_utf8_lossy(&write::to_vec(&json_report(&checked))));
        }
    }
    let problems: usize = checked.iter().map(|c| c.problems.len()).sum();
    if problems > 0 {
        bail!("{}", counted(problems, "problem"));
    }
    Ok(())
}

/// `1 object`, `2 objects`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn check_directory(set: ManifestSet, directory: &Path, args: &Args) -> CheckReport {
    let rules = LoadOptions { strict: args.strict, kinds: &BuiltInKinds };
    let outcome = if args.write_expected {
        write_expected(set, directory, rules)
    } else {
        manifests::load(set, directory, rules)
    };
    let (content, problems, warnings) = match outcome {
        Ok(loaded) => (CheckedContent::Directory(loaded.len(), loaded.hash), Vec::new(), loaded.warnings),
        Err(refused) => {
            (CheckedContent::Directory(0, String::new()), refused.problems().to_vec(), Vec::new())
        }
    };
    CheckReport { path: directory.to_owned(), content, problems, warnings }
}

/// Checks a directory, ignoring its list of expected objects, and replaces the list.
fn write_expected(
    set: ManifestSet,
    directory: &Path,
    rules: LoadOptions<'_>,
) -> Result<LoadedManifests, LoadError> {
    let list = directory.join(EXPECTED_OBJECTS);
    let mut files = manifests::read(set, directory)?;
    files.retain(|file| Path::new(&file.path) != list);
    let shown = directory.display().to_string();
    let loaded = admission::manifests::load(set, &shown, &files, rules)?;
    let temporary = directory.join(format!(".{EXPECTED_OBJECTS}.new"));
    let written = std::fs::write(&temporary, loaded.expected_objects())
        .and_then(|()| std::fs::rename(&temporary, &list));
    written.map_err(|error| {
        LoadError::directory(set, &shown, &format!("cannot write {}: {error}", list.display()))
    })?;
    Ok(loaded)
}

/// Checks an AdmissionConfiguration file, then every `staticManifestsDir` in it.
fn check_admission_config(path: &Path, args: &Args) -> Vec<CheckReport> {
    let report = |summary: String, problems| CheckReport {
        path: path.to_owned(),
        content: CheckedContent::File(summary),
        problems,
        warnings: Vec::new(),
    };
    match manifests::configured(path) {
        Err(error) => vec![report(String::new(), vec![file_problem(path, error.to_string())])],
        Ok(directories) => {
            let noun = if directories.len() == 1 { "directory" } else { "directories" };
            let summary = format!("{} {noun} of manifests", directories.len());
            let directories =
                directories.iter().map(|(set, directory)| check_directory(*set, directory, args));
            std::iter::once(report(summary, Vec::new())).chain(directories).collect()
        }
    }
}

fn check_authorization_config(path: &Path) -> CheckReport {
    let (summary, problems) = match crate::authz::validate(path) {
        Ok(count) => (counted(count, "authorizer"), Vec::new()),
        Err(problems) => (String::new(), problems),
    };
    CheckReport {
        path: path.to_owned(),
        content: CheckedContent::File(summary),
        problems,
        warnings: Vec::new(),
    }
}

/// A problem without line and column.
pub(crate) fn file_problem(path: &Path, message: String) -> ManifestProblem {
    ManifestProblem::of_file(&path.display().to_string(), message, None)
}

fn print_text(out: &mut impl std::io::Write, checked: &CheckReport) {
    for problem in &checked.problems {
        let _ = writeln!(out, "{problem}\n");
    }
    for warning in &checked.warnings {
        let _ = writeln!(out, "{}\n", warning.as_warning());
    }
    if checked.problems.is_empty() {
        let path = checked.path.display();
        let _ = match &checked.content {
            CheckedContent::Directory(objects, hash) => {
                let hash = if hash.is_empty() { "no content" } else { hash };
                writeln!(out, "{path}: {}, {hash}", counted(*objects, "object"))
            }
            CheckedContent::File(summary) => writeln!(out, "{path}: {summary}"),
        };
    }
}

/// Prints `::error file=F,line=L,col=C::message` or `::warning …`, with special characters escaped.
fn print_github(out: &mut impl std::io::Write, checked: &CheckReport) {
    use std::fmt::Write as _;
    let escape = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let errors = checked.problems.iter().map(|problem| ("error", problem));
    let warnings = checked.warnings.iter().map(|warning| ("warning", warning));
    for (level, problem) in errors.chain(warnings) {
        let mut properties = if problem.file.is_empty() {
            String::new()
        } else {
            format!(" file={}", property(&problem.file))
        };
        if let Some(position) = problem.position {
            let _ = write!(properties, ",line={},col={}", position.line, position.column);
        }
        let help = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let _ = writeln!(out, "::{level}{properties}::{}", escape(&format!("{}{help}", problem.message)));
    }
}

fn json_report(checked: &[CheckReport]) -> Value {
    let checked_values = checked.iter().map(|checked| {
        let shown = |problem: &ManifestProblem| {
            let mut value = Value::map([("message", problem.message.as_str())]);
            if !problem.file.is_empty() {
                value.set_at(&["file"], problem.file.as_str());
            }
            if !problem.field.is_empty() {
                value.set_at(&["field"], problem.field.as_str());
            }
            if let Some(position) = problem.position {
                value.set_at(&["line"], i64::try_from(position.line).unwrap_or(i64::MAX));
                value.set_at(&["column"], i64::try_from(position.column).unwrap_or(i64::MAX));
            }
            if let Some(hint) = &problem.hint {
                value.set_at(&["hint"], hint.as_str());
            }
            value
        };
        let path = checked.path.display().to_string();
        let mut value = match &checked.content {
            CheckedContent::Directory(objects, hash) => {
                let mut value = Value::map([("folder", path)]);
                value.set_at(&["objects"], i64::try_from(*objects).unwrap_or(i64::MAX));
                value.set_at(&["hash"], hash.as_str());
                value
            }
            CheckedContent::File(_) => Value::map([("file", path)]),
        };
        value.set_at(&["problems"], Value::List(checked.problems.iter().map(shown).collect()));
        value.set_at(&["warnings"], Value::List(checked.warnings.iter().map(shown).collect()));
        value
    });
    let (directories, files): (Vec<Value>, Vec<Value>) =
        checked_values.partition(|value| value.get("folder").is_some());
    let mut report = Value::map([("valid", checked.iter().all(|c| c.problems.is_empty()))]);
    report.set_at(&["folders"], Value::List(directories));
    report.set_at(&["files"], Value::List(files));
    report
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn counted_noun_is_singular_only_for_one() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "object")), ["0 objects", "1 object", "2 objects"]);
    }
}

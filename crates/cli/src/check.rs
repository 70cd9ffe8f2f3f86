//! `portcullis check`: folders of static manifests and configuration files, checked by the loader that the server uses.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use admission::manifests::{Problem, Set};
use anyhow::{Result, bail};
use clap::ValueEnum;
use server::manifests;
use value::{Value, write};

/// The flags of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folders of static manifests. Each may hold all six admission kinds, unless --plugin says what it is for.
    #[arg(value_name = "DIR", required_unless_present_any = ["config", "authorization_config"])]
    folders: Vec<PathBuf>,
    /// The plugin whose `staticManifestsDir` the folders are.
    #[arg(long, value_enum, conflicts_with = "config")]
    plugin: Option<Plugin>,
    /// An AdmissionConfiguration, as for --admission-control-config-file: it is checked with every folder that it names.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// An AuthorizationConfiguration, as for --authorization-config.
    #[arg(long, value_name = "FILE")]
    authorization_config: Option<PathBuf>,
    /// How problems are printed.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Plugin {
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
enum Output {
    /// As a compiler prints them.
    Text,
    /// One JSON object.
    Json,
    /// As GitHub Actions shows them beside the lines.
    Github,
}

/// What a folder or a file turned out to be.
struct Checked {
    path: PathBuf,
    found: Found,
    problems: Vec<Problem>,
}

/// What is at a path, if nothing is wrong with it.
enum Found {
    /// A folder of manifests: how many objects, and the hash over them.
    Folder(usize, String),
    /// A configuration file: what it says, in a few words.
    File(String),
}

/// Checks, prints, and fails if anything is wrong.
pub(crate) fn run(args: &Args) -> Result<()> {
    let set = match args.plugin {
        None => Set::Mixed,
        Some(Plugin::ValidatingPolicy) => Set::ValidatingPolicies,
        Some(Plugin::MutatingPolicy) => Set::MutatingPolicies,
        Some(Plugin::ValidatingWebhook) => Set::ValidatingWebhooks,
        Some(Plugin::MutatingWebhook) => Set::MutatingWebhooks,
    };
    let mut checked: Vec<Checked> = args.folders.iter().map(|folder| check(set, folder)).collect();
    if let Some(path) = &args.config {
        checked.extend(admission_config(path));
    }
    checked.extend(args.authorization_config.as_deref().map(authorization_config));
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Text => checked.iter().for_each(|c| text(&mut out, c)),
        Output::Github => checked.iter().for_each(|c| github(&mut out, c)),
        Output::Json => {
            let _ = writeln!(out, "{}", String::from_utf8_lossy(&write::to_vec(&json(&checked))));
        }
    }
    let problems: usize = checked.iter().map(|c| c.problems.len()).sum();
    match problems {
        0 => Ok(()),
        1 => bail!("1 problem"),
        n => bail!("{n} problems"),
    }
}

fn check(set: Set, folder: &Path) -> Checked {
    match manifests::load(set, folder) {
        Ok(loaded) => Checked {
            path: folder.to_owned(),
            found: Found::Folder(loaded.len(), loaded.hash),
            problems: Vec::new(),
        },
        Err(refused) => Checked {
            path: folder.to_owned(),
            found: Found::Folder(0, String::new()),
            problems: refused.problems().to_vec(),
        },
    }
}

/// The file of `--admission-control-config-file`, then every folder in it, as the server takes them.
fn admission_config(path: &Path) -> Vec<Checked> {
    let found =
        |words: String, problems| Checked { path: path.to_owned(), found: Found::File(words), problems };
    match manifests::configured(path) {
        Err(error) => vec![found(String::new(), vec![whole(path, error.to_string())])],
        Ok(folders) => {
            let words = format!("{} folders of manifests", folders.len());
            let folders = folders.iter().map(|(set, folder)| check(*set, folder));
            std::iter::once(found(words, Vec::new())).chain(folders).collect()
        }
    }
}

/// The file of `--authorization-config`.
fn authorization_config(path: &Path) -> Checked {
    let (words, problems) = match crate::authz::judge(path) {
        Ok(count) => (format!("{count} authorizers"), Vec::new()),
        Err(problems) => (String::new(), problems),
    };
    Checked { path: path.to_owned(), found: Found::File(words), problems }
}

/// A problem of a file as a whole.
pub(crate) fn whole(path: &Path, message: String) -> Problem {
    Problem {
        file: path.display().to_string(),
        position: None,
        field: String::new(),
        message,
        hint: None,
        source: None,
    }
}

fn text(out: &mut impl std::io::Write, checked: &Checked) {
    for problem in &checked.problems {
        let _ = writeln!(out, "{problem}\n");
    }
    if checked.problems.is_empty() {
        let path = checked.path.display();
        let _ = match &checked.found {
            Found::Folder(objects, hash) if hash.is_empty() => {
                writeln!(out, "{path}: {objects} objects, no content")
            }
            Found::Folder(objects, hash) => writeln!(out, "{path}: {objects} objects, {hash}"),
            Found::File(words) => writeln!(out, "{path}: {words}"),
        };
    }
}

/// `::error file=F,line=L,col=C::message`, with what has a meaning there escaped.
fn github(out: &mut impl std::io::Write, checked: &Checked) {
    use std::fmt::Write as _;
    let escape = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    for problem in &checked.problems {
        let mut place = if problem.file.is_empty() {
            String::new()
        } else {
            format!(" file={}", property(&problem.file))
        };
        if let Some(position) = problem.position {
            let _ = write!(place, ",line={},col={}", position.line, position.column);
        }
        let help = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let _ = writeln!(out, "::error{place}::{}", escape(&format!("{}{help}", problem.message)));
    }
}

fn json(checked: &[Checked]) -> Value {
    let checked_values = checked.iter().map(|checked| {
        let problems = checked.problems.iter().map(|problem| {
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
        });
        let path = checked.path.display().to_string();
        let mut value = match &checked.found {
            Found::Folder(objects, hash) => {
                let mut value = Value::map([("folder", path)]);
                value.set_at(&["objects"], i64::try_from(*objects).unwrap_or(i64::MAX));
                value.set_at(&["hash"], hash.as_str());
                value
            }
            Found::File(_) => Value::map([("file", path)]),
        };
        value.set_at(&["problems"], Value::List(problems.collect()));
        value
    });
    let (folders, files): (Vec<Value>, Vec<Value>) =
        checked_values.partition(|value| value.get("folder").is_some());
    let mut report = Value::map([("valid", checked.iter().all(|c| c.problems.is_empty()))]);
    report.set_at(&["folders"], Value::List(folders));
    report.set_at(&["files"], Value::List(files));
    report
}

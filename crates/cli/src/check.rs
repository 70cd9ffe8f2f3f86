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
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// The plugin whose `staticManifestsDir` the folders are.
    #[arg(long, value_enum)]
    plugin: Option<Plugin>,
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

/// What a folder turned out to be.
struct Checked {
    folder: PathBuf,
    objects: usize,
    hash: String,
    problems: Vec<Problem>,
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
    if args.folders.is_empty() {
        bail!("name at least one folder of manifests");
    }
    let checked: Vec<Checked> = args.folders.iter().map(|folder| check(set, folder)).collect();
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
            folder: folder.to_owned(),
            objects: loaded.len(),
            hash: loaded.hash,
            problems: Vec::new(),
        },
        Err(refused) => Checked {
            folder: folder.to_owned(),
            objects: 0,
            hash: String::new(),
            problems: refused.problems().to_vec(),
        },
    }
}

fn text(out: &mut impl std::io::Write, checked: &Checked) {
    for problem in &checked.problems {
        let _ = writeln!(out, "{problem}\n");
    }
    if checked.problems.is_empty() {
        let _ = writeln!(out, "{}: {} objects, {}", checked.folder.display(), checked.objects, hash(checked));
    }
}

fn hash(checked: &Checked) -> &str {
    if checked.hash.is_empty() { "no content" } else { &checked.hash }
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
    let folders = checked.iter().map(|checked| {
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
        let mut value = Value::map([("folder", checked.folder.display().to_string())]);
        value.set_at(&["problems"], Value::List(problems.collect()));
        value.set_at(&["objects"], i64::try_from(checked.objects).unwrap_or(i64::MAX));
        value.set_at(&["hash"], checked.hash.as_str());
        value
    });
    let mut report = Value::map([("valid", checked.iter().all(|c| c.problems.is_empty()))]);
    report.set_at(&["folders"], Value::List(folders.collect()));
    report
}

//! `portcullis check`: folders of static manifests and configuration files, checked by the loader that the server uses.

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
    /// Treat warnings as errors: expressions that are wrong about the objects they are for, policies without a binding, `caBundle`s
    /// without a certificate, and folders without objects.
    #[arg(long)]
    strict: bool,
    /// Write the list of the objects of each folder to its file `expected-objects.txt`. From then on, the folder is refused when it does
    /// not have exactly these objects.
    #[arg(long)]
    write_expected: bool,
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
    problems: Vec<ManifestProblem>,
    /// Valid, but probably not what the author meant.
    warnings: Vec<ManifestProblem>,
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
        None => ManifestSet::Mixed,
        Some(Plugin::ValidatingPolicy) => ManifestSet::ValidatingPolicies,
        Some(Plugin::MutatingPolicy) => ManifestSet::MutatingPolicies,
        Some(Plugin::ValidatingWebhook) => ManifestSet::ValidatingWebhooks,
        Some(Plugin::MutatingWebhook) => ManifestSet::MutatingWebhooks,
    };
    let mut checked: Vec<Checked> = args.folders.iter().map(|folder| check(set, folder, args)).collect();
    if let Some(path) = &args.config {
        checked.extend(admission_config(path, args));
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

fn check(set: ManifestSet, folder: &Path, args: &Args) -> Checked {
    let rules = LoadOptions { strict: args.strict, kinds: &BuiltInKinds };
    let outcome = if args.write_expected {
        write_expected(set, folder, rules)
    } else {
        manifests::load(set, folder, rules)
    };
    let (found, problems, warnings) = match outcome {
        Ok(loaded) => (Found::Folder(loaded.len(), loaded.hash), Vec::new(), loaded.warnings),
        Err(refused) => (Found::Folder(0, String::new()), refused.problems().to_vec(), Vec::new()),
    };
    Checked { path: folder.to_owned(), found, problems, warnings }
}

/// Checks a folder without regard to its list of expected objects, and writes the list anew.
fn write_expected(
    set: ManifestSet,
    folder: &Path,
    rules: LoadOptions<'_>,
) -> Result<LoadedManifests, LoadError> {
    let list = folder.join(EXPECTED_OBJECTS);
    let mut files = manifests::read(set, folder)?;
    files.retain(|file| Path::new(&file.path) != list);
    let shown = folder.display().to_string();
    let loaded = admission::manifests::load(set, &shown, &files, rules)?;
    let temporary = folder.join(format!(".{EXPECTED_OBJECTS}.new"));
    let written = std::fs::write(&temporary, loaded.expected_objects())
        .and_then(|()| std::fs::rename(&temporary, &list));
    written.map_err(|error| {
        LoadError::folder(set, &shown, &format!("cannot write {}: {error}", list.display()))
    })?;
    Ok(loaded)
}

/// The file of `--admission-control-config-file`, then every folder in it, as the server takes them.
fn admission_config(path: &Path, args: &Args) -> Vec<Checked> {
    let found = |words: String, problems| Checked {
        path: path.to_owned(),
        found: Found::File(words),
        problems,
        warnings: Vec::new(),
    };
    match manifests::configured(path) {
        Err(error) => vec![found(String::new(), vec![whole(path, error.to_string())])],
        Ok(folders) => {
            let words = format!("{} folders of manifests", folders.len());
            let folders = folders.iter().map(|(set, folder)| check(*set, folder, args));
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
    Checked { path: path.to_owned(), found: Found::File(words), problems, warnings: Vec::new() }
}

/// A problem of a file as a whole.
pub(crate) fn whole(path: &Path, message: String) -> ManifestProblem {
    ManifestProblem::of_file(&path.display().to_string(), message, None)
}

fn text(out: &mut impl std::io::Write, checked: &Checked) {
    for problem in &checked.problems {
        let _ = writeln!(out, "{problem}\n");
    }
    for warning in &checked.warnings {
        let _ = writeln!(out, "{}\n", warning.as_warning());
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

/// `::error file=F,line=L,col=C::message`, or `::warning`, with what has a meaning there escaped.
fn github(out: &mut impl std::io::Write, checked: &Checked) {
    use std::fmt::Write as _;
    let escape = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let errors = checked.problems.iter().map(|problem| ("error", problem));
    let warnings = checked.warnings.iter().map(|warning| ("warning", warning));
    for (level, problem) in errors.chain(warnings) {
        let mut place = if problem.file.is_empty() {
            String::new()
        } else {
            format!(" file={}", property(&problem.file))
        };
        if let Some(position) = problem.position {
            let _ = write!(place, ",line={},col={}", position.line, position.column);
        }
        let help = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let _ = writeln!(out, "::{level}{place}::{}", escape(&format!("{}{help}", problem.message)));
    }
}

fn json(checked: &[Checked]) -> Value {
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
        let mut value = match &checked.found {
            Found::Folder(objects, hash) => {
                let mut value = Value::map([("folder", path)]);
                value.set_at(&["objects"], i64::try_from(*objects).unwrap_or(i64::MAX));
                value.set_at(&["hash"], hash.as_str());
                value
            }
            Found::File(_) => Value::map([("file", path)]),
        };
        value.set_at(&["problems"], Value::List(checked.problems.iter().map(shown).collect()));
        value.set_at(&["warnings"], Value::List(checked.warnings.iter().map(shown).collect()));
        value
    });
    let (folders, files): (Vec<Value>, Vec<Value>) =
        checked_values.partition(|value| value.get("folder").is_some());
    let mut report = Value::map([("valid", checked.iter().all(|c| c.problems.is_empty()))]);
    report.set_at(&["folders"], Value::List(folders));
    report.set_at(&["files"], Value::List(files));
    report
}

//! `portcullis authz`: an authorization configuration looked at without a server.
//!
//! `check` reads a file as the server does and prints the chain, or everything that is wrong with it. `can-i` runs the chain on one
//! question: with the roles and bindings of manifests, and with assumed answers in place of webhooks. The engine is the server's.

mod ask;
mod manifests;

#[cfg(test)]
mod tests;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admission::manifests::ManifestProblem;
use anyhow::{Context as _, Result, bail};
use authz::ReviewCompiler;
use authz::abac::AbacPolicies;
use authz::config::{
    self, AuthorizerType, CheckedConfiguration, Configuration, ConfiguredAuthorizer, Environment,
    FailurePolicy, ReviewVersion, WebhookConfiguration,
};

use crate::check;

/// The flags of `authz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Read a configuration file as the server does, and print the chain or what is wrong with it.
    Check(CheckArgs),
    /// Say whether somebody may do something, and why: VERB RESOURCE[.GROUP][/NAME], or VERB /path.
    ///
    /// Exits with 0 for yes, 1 for no, and 3 where a webhook would have to be asked.
    CanI(Box<ask::Args>),
}

/// The flags of `check`.
#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    file: FileArgs,
}

/// Where a configuration is.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct FileArgs {
    /// The configuration file, as for --authorization-config.
    #[arg(long)]
    config: PathBuf,
    /// The policies of type ABAC, as for --authorization-policy-file.
    #[arg(long)]
    policy_file: Option<PathBuf>,
    /// Do not look at the kubeconfigs that the file names: they are on another machine.
    #[arg(long)]
    without_kubeconfigs: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let out = &mut std::io::BufWriter::new(std::io::stdout().lock());
    let code = match &args.task {
        Task::Check(args) => {
            let loaded = load(&args.file)?;
            print(&args.file.config, &loaded.configuration, out)?;
            for warning in &loaded.warnings {
                writeln!(out, "warning: {}", warning.located(&args.file.config.display().to_string()))?;
            }
            ExitCode::SUCCESS
        }
        Task::CanI(args) => ask::run(args, out)?,
    };
    out.flush()?;
    Ok(code)
}

/// A configuration with the policies it needs.
struct Loaded {
    configuration: Configuration,
    warnings: Vec<config::ConfigProblem>,
    policies: Option<AbacPolicies>,
}

/// Reads a configuration as the server does: how many authorizers it has, or everything that is wrong with it.
pub(crate) fn judge(path: &Path) -> std::result::Result<usize, Vec<ManifestProblem>> {
    let whole = |why: String| vec![check::whole(path, why)];
    let bytes = std::fs::read(path).map_err(|error| whole(format!("cannot be read: {error}")))?;
    let CheckedConfiguration { configuration, .. } = read(&bytes, false).map_err(|refused| {
        let place = |problem: &config::ConfigProblem| ManifestProblem {
            position: problem.position,
            hint: problem.hint.clone(),
            source: problem.position.and_then(|position| line(&bytes, position.line)),
            ..check::whole(path, problem.message.clone())
        };
        refused.problems().iter().map(place).collect::<Vec<_>>()
    })?;
    for authorizer in &configuration.authorizers {
        if let Some(webhook) = &authorizer.webhook {
            kubeconfig(&webhook.kubeconfig)
                .map_err(|error| whole(format!("the kubeconfig of `{}`: {error:#}", authorizer.name)))?;
        }
    }
    Ok(configuration.authorizers.len())
}

/// A line of a file, unless it is too long to be a help.
fn line(bytes: &[u8], number: usize) -> Option<String> {
    let line = bytes.split(|byte| *byte == b'\n').nth(number.checked_sub(1)?)?;
    (line.len() <= 400).then(|| String::from_utf8_lossy(line).replace('\t', " "))
}

fn read(
    bytes: &[u8],
    without_kubeconfigs: bool,
) -> std::result::Result<CheckedConfiguration, config::AuthorizationConfigError> {
    let compiler = ReviewCompiler::default();
    let anywhere = |_: &str| Ok(());
    let environment = Environment {
        compiler: &compiler,
        kubeconfig: if without_kubeconfigs { &anywhere } else { &server::authorization::kubeconfig_is_there },
        required: &[],
    };
    config::load(bytes, &environment)
}

fn load(args: &FileArgs) -> Result<Loaded> {
    let path = args.config.display().to_string();
    let bytes = std::fs::read(&args.config).with_context(|| format!("cannot read `{path}`"))?;
    let CheckedConfiguration { configuration, warnings } =
        read(&bytes, args.without_kubeconfigs).map_err(|refused| {
            anyhow::anyhow!("{}\n\nkube-apiserver would say: {refused}", refused.located(&path).join("\n"))
        })?;
    if !args.without_kubeconfigs {
        for authorizer in &configuration.authorizers {
            if let Some(webhook) = &authorizer.webhook {
                kubeconfig(&webhook.kubeconfig)
                    .with_context(|| format!("the kubeconfig of `{}`", authorizer.name))?;
            }
        }
    }
    let uses_policies = configuration.authorizers.iter().any(|a| a.kind == AuthorizerType::Abac);
    let policies = match (&args.policy_file, uses_policies) {
        (_, false) => None,
        (None, true) => bail!(
            "{path}: the authorizer type ABAC needs the file of its policies: set --policy-file to what --authorization-policy-file names"
        ),
        (Some(path), true) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            Some(AbacPolicies::parse(&path.display().to_string(), &text)?.0)
        }
    };
    Ok(Loaded { configuration, warnings, policies })
}

/// Reads a kubeconfig with everything it names, as the server does before it uses one; hands back its URL.
fn kubeconfig(path: &str) -> Result<String> {
    let endpoint =
        server::outbound::from_kubeconfig(Path::new(path), &mut Vec::new()).map_err(anyhow::Error::msg)?;
    let target = server::outbound::Target::new(endpoint)?;
    Ok(target.url().to_string())
}

/// The chain, one authorizer after the other.
fn print(path: &Path, configuration: &Configuration, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{} is valid", path.display())?;
    for (i, authorizer) in configuration.authorizers.iter().enumerate() {
        let ConfiguredAuthorizer { kind, name, webhook } = authorizer;
        writeln!(out, "{}. {name} ({})", i + 1, kind.as_str())?;
        let Some(webhook) = webhook else { continue };
        let WebhookConfiguration { timeout, failure_policy, version, .. } = webhook;
        let kept = |ttl: Option<std::time::Duration>| {
            ttl.map_or_else(|| "not kept".to_owned(), |ttl| format!("kept {ttl:?}"))
        };
        let url =
            kubeconfig(&webhook.kubeconfig).unwrap_or_else(|_| format!("as {} says", webhook.kubeconfig));
        writeln!(out, "   asks {url} by {} reviews, at most {timeout:?}", review(*version))?;
        writeln!(
            out,
            "   allows are {}, other answers are {}; a failure {}",
            kept(webhook.authorized_ttl),
            kept(webhook.unauthorized_ttl),
            match failure_policy {
                FailurePolicy::NoOpinion => "is no opinion",
                FailurePolicy::Deny => "denies",
            }
        )?;
        for expression in webhook.conditions.expressions() {
            writeln!(out, "   if {}", expression.trim())?;
        }
    }
    Ok(())
}

fn review(version: ReviewVersion) -> &'static str {
    match version {
        ReviewVersion::V1 => "v1",
        ReviewVersion::V1Beta1 => "v1beta1",
    }
}

//! `portcullis authz`: validates an AuthorizationConfiguration and evaluates it without a server.
//!
//! `check` prints the authorizer chain, or every problem in the file. `can-i` evaluates the chain for one request, with roles and bindings
//! from manifests and with assumed responses instead of webhook calls. Both use the code of the server.

mod can_i;
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
    self, AuthorizationConfiguration, AuthorizerType, CheckedConfiguration, ConfiguredAuthorizer,
    Environment, FailurePolicy, WebhookConfiguration,
};

use crate::check;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: AuthzCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuthzCommand {
    /// Validate an AuthorizationConfiguration file and print the authorizer chain.
    ///
    /// Exit codes: 0 valid, 1 problems found, 2 usage error.
    Check(AuthzCheckArgs),
    /// Evaluate the authorizer chain for one request: VERB RESOURCE[.GROUP][/NAME], or VERB /PATH.
    ///
    /// Exit codes: 0 allowed, 1 denied or problems found, 2 usage error, 3 the decision depends on a webhook without --assume.
    CanI(Box<can_i::Args>),
}

#[derive(Debug, clap::Args)]
struct AuthzCheckArgs {
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct FileArgs {
    /// AuthorizationConfiguration file, as for --authorization-config.
    #[arg(long)]
    config: PathBuf,
    /// Policy file of the ABAC authorizer, as for --authorization-policy-file.
    #[arg(long)]
    policy_file: Option<PathBuf>,
    /// Do not read the kubeconfig files that the configuration names, for example because they are on another machine.
    #[arg(long)]
    without_kubeconfigs: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let out = &mut std::io::BufWriter::new(std::io::stdout().lock());
    let code = match &args.command {
        AuthzCommand::Check(args) => {
            let loaded = load(&args.file)?;
            print_chain(&args.file.config, &loaded.configuration, out)?;
            for warning in &loaded.warnings {
                writeln!(out, "warning: {}", warning.located(&args.file.config.display().to_string()))?;
            }
            ExitCode::SUCCESS
        }
        AuthzCommand::CanI(args) => can_i::run(args, out)?,
    };
    out.flush()?;
    Ok(code)
}

struct LoadedConfiguration {
    configuration: AuthorizationConfiguration,
    warnings: Vec<config::ConfigProblem>,
    /// The ABAC policies, if the chain has an ABAC authorizer.
    policies: Option<AbacPolicies>,
}

/// Validates a file with all kubeconfigs that it names. Returns the number of authorizers, or every problem.
pub(crate) fn validate(path: &Path) -> std::result::Result<usize, Vec<ManifestProblem>> {
    let whole = |why: String| vec![check::file_problem(path, why)];
    let bytes = std::fs::read(path).map_err(|error| whole(format!("cannot be read: {error}")))?;
    let CheckedConfiguration { configuration, .. } = parse(&bytes, false).map_err(|refused| {
        let located = |problem: &config::ConfigProblem| ManifestProblem {
            position: problem.position,
            hint: problem.hint.clone(),
            source: problem.position.and_then(|position| source_line(&bytes, position.line)),
            ..check::file_problem(path, problem.message.clone())
        };
        refused.problems().iter().map(located).collect::<Vec<_>>()
    })?;
    for authorizer in &configuration.authorizers {
        if let Some(webhook) = &authorizer.webhook {
            kubeconfig_url(&webhook.kubeconfig)
                .map_err(|error| whole(format!("the kubeconfig of `{}`: {error:#}", authorizer.name)))?;
        }
    }
    Ok(configuration.authorizers.len())
}

/// A line of a file, unless it is too long to be shown.
fn source_line(bytes: &[u8], number: usize) -> Option<String> {
    let line = bytes.split(|byte| *byte == b'\n').nth(number.checked_sub(1)?)?;
    (line.len() <= 400).then(|| String::from_utf8_lossy(line).replace('\t', " "))
}

fn parse(
    bytes: &[u8],
    without_kubeconfigs: bool,
) -> std::result::Result<CheckedConfiguration, config::AuthorizationConfigError> {
    let compiler = ReviewCompiler::default();
    let unchecked = |_: &str| Ok(());
    let environment = Environment {
        compiler: &compiler,
        kubeconfig: if without_kubeconfigs { &unchecked } else { &authz_config::kubeconfig_is_there },
        required: &[],
    };
    config::load(bytes, &environment)
}

fn load(args: &FileArgs) -> Result<LoadedConfiguration> {
    let path = args.config.display().to_string();
    let bytes = std::fs::read(&args.config).with_context(|| format!("cannot read `{path}`"))?;
    let CheckedConfiguration { configuration, warnings } =
        parse(&bytes, args.without_kubeconfigs).map_err(|refused| {
            anyhow::anyhow!("{}\n\nkube-apiserver's message: {refused}", refused.located(&path).join("\n"))
        })?;
    if !args.without_kubeconfigs {
        for authorizer in &configuration.authorizers {
            if let Some(webhook) = &authorizer.webhook {
                kubeconfig_url(&webhook.kubeconfig)
                    .with_context(|| format!("the kubeconfig of `{}`", authorizer.name))?;
            }
        }
    }
    let uses_policies = configuration.authorizers.iter().any(|a| a.kind == AuthorizerType::Abac);
    let policies = match (&args.policy_file, uses_policies) {
        (_, false) => None,
        (None, true) => bail!(
            "{path}: the ABAC authorizer needs a policy file: set --policy-file to the file of --authorization-policy-file"
        ),
        (Some(path), true) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
            Some(AbacPolicies::parse(&path.display().to_string(), &text)?.0)
        }
    };
    Ok(LoadedConfiguration { configuration, warnings, policies })
}

/// Reads a kubeconfig and the files that it names, as the server does. Returns the URL of its server.
fn kubeconfig_url(path: &str) -> Result<String> {
    let endpoint = outbound::from_kubeconfig(Path::new(path), &mut Vec::new()).map_err(anyhow::Error::msg)?;
    let target = outbound::OutboundTarget::new(endpoint)?;
    Ok(target.url().to_string())
}

/// Prints the authorizers in order.
fn print_chain(path: &Path, configuration: &AuthorizationConfiguration, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{} is valid", path.display())?;
    for (i, authorizer) in configuration.authorizers.iter().enumerate() {
        let ConfiguredAuthorizer { kind, name, webhook } = authorizer;
        writeln!(out, "{}. {name} ({})", i + 1, kind.as_str())?;
        let Some(webhook) = webhook else { continue };
        let WebhookConfiguration { timeout, failure_policy, version, .. } = webhook;
        let cached = |ttl: Option<std::time::Duration>| {
            ttl.map_or_else(|| "not cached".to_owned(), |ttl| format!("cached for {ttl:?}"))
        };
        let url = kubeconfig_url(&webhook.kubeconfig)
            .unwrap_or_else(|_| format!("the server in {}", webhook.kubeconfig));
        writeln!(out, "   sends {} reviews to {url}, timeout {timeout:?}", version.as_str())?;
        writeln!(
            out,
            "   allowed responses are {}, other responses are {}; if the call fails: {}",
            cached(webhook.authorized_ttl),
            cached(webhook.unauthorized_ttl),
            match failure_policy {
                FailurePolicy::NoOpinion => "no opinion",
                FailurePolicy::Deny => "deny",
            }
        )?;
        for expression in webhook.conditions.expressions() {
            writeln!(out, "   if {}", expression.trim())?;
        }
    }
    Ok(())
}

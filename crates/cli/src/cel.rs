//! `portcullis cel`: an expression, what it gives and what it costs.
//!
//! The expression runs in the environment that policies have, on variables from files or from the command line. With
//! `--batch` it is a door for programs: one JSON line in, one out.

mod batch;
mod vars;

#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::{Context as _, Result, bail};
use cel::batch::{VARIABLES, show};
use cel::{Activation, Env, NoHints, Type, Val, Version};

/// The flags of `cel`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// The expression.
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    expression: Option<String>,
    /// A variable: NAME=VALUE with VALUE in YAML or JSON, or NAME=@FILE (@- is standard input).
    ///
    /// object, oldObject, request, params, namespaceObject, self and x are always there, null where not given.
    #[arg(long = "var", value_name = "NAME=VALUE", conflicts_with = "batch")]
    vars: Vec<String>,
    /// Show the checked tree with the types of its parts instead of running it.
    #[arg(long, conflicts_with = "batch")]
    ast: bool,
    /// Answer requests from standard input, one JSON line each: {"id":…,"expr":…,"vars":{…}}.
    #[arg(long)]
    batch: bool,
}

/// Where an expression from the command line is said to be.
const ORIGIN: &str = "<expression>";

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let stdout = &mut std::io::BufWriter::new(std::io::stdout().lock());
    let done = if args.batch {
        batch::run(std::io::stdin().lock(), stdout)
    } else {
        one(args, stdout).and_then(|()| Ok(stdout.flush()?))
    };
    match done {
        // Whoever reads the answers has read enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        done => done,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn one(args: &Args, out: &mut dyn Write) -> Result<()> {
    let text = args.expression.as_deref().context("there is no expression")?;
    let vars = vars::read(&args.vars)?;
    let base = Env::kubernetes(Version::CURRENT).with_variables(VARIABLES.map(|name| (name, Type::Dyn)));
    let env = base.with_variables(vars.iter().map(|(name, _)| (name.as_str(), Type::Dyn)));
    let parsed = env.parse(text).map_err(|issues| refused(&env, &issues))?;
    for (name, _) in &vars {
        if !VARIABLES.contains(&name.as_str()) && !parsed.mentions(name) {
            bail!("--var {name}: {}", unused(name));
        }
    }
    let checked = env.check(parsed).map_err(|issues| refused(&env, &issues))?;
    if args.ast {
        writeln!(out, "{}", checked.show())?;
        return Ok(());
    }
    let estimate = checked.estimate(&NoHints);
    let mut activation = Activation::new(&env);
    for name in VARIABLES {
        activation.set(name, Val::Null);
    }
    for (name, value) in &vars {
        activation.set(name, Val::data(value));
    }
    let most = if estimate.max == u64::MAX { "no bound".to_owned() } else { estimate.max.to_string() };
    let program = checked.program().map_err(|error| anyhow::anyhow!("{error}"))?;
    let evaluation = program.run(&activation, cel::PER_CALL_LIMIT);
    if let Ok(val) = &evaluation.outcome {
        let shown = show(val);
        let (name, text) = shown.split_once(' ').unwrap_or((&shown, ""));
        let declared = checked.output_type().to_string();
        let here = if declared.split('(').next() == Some(name) { "" } else { name };
        writeln!(out, "value:    {text}")?;
        if here.is_empty() {
            writeln!(out, "type:     {declared}")?;
        } else {
            writeln!(out, "type:     {declared}, here {here}")?;
        }
    }
    writeln!(out, "cost:     {}", evaluation.cost)?;
    writeln!(out, "estimate: {} to {most}", estimate.min)?;
    match evaluation.outcome {
        Ok(_) => Ok(()),
        Err(error) => {
            out.flush()?;
            bail!("the expression compiles, but it fails on these variables: {error}")
        }
    }
}

/// A compile error, as a compiler prints it. The caller writes the first `error: ` itself.
fn refused(env: &Env, issues: &cel::Issues) -> anyhow::Error {
    let report = cel::report(env, issues, ORIGIN);
    let report = report.strip_prefix("error: ").unwrap_or(&report).trim_end();
    anyhow::anyhow!("{report}")
}

/// Why a variable that nothing reads is an error, and the way out.
fn unused(name: &str) -> String {
    match cel::nearest(name, VARIABLES) {
        Some(known) => format!("the expression does not read `{name}`; did you mean `{known}`?"),
        None => format!("the expression does not read `{name}`; leave the flag out, or correct the name"),
    }
}

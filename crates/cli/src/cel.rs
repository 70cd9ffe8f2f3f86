//! `portcullis cel`: evaluates a CEL expression in the environment of admission policies, with variables from files or flags.
//!
//! With `--batch`, a program can send many expressions: one JSON object per line in, one per line out.

mod batch;
mod vars;

#[cfg(test)]
mod tests;

use std::io::Write;

use anyhow::{Context as _, Result, bail};
use cel::batch::{VARIABLES, show};
use cel::{Activation, Env, NoHints, Type, Val, Version};

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// CEL expression to evaluate.
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    expression: Option<String>,
    /// Variable as NAME=VALUE, with VALUE in YAML or JSON, or NAME=@FILE (@- reads standard input). May be repeated.
    ///
    /// object, oldObject, request, params, namespaceObject, self and x are always declared; they are null if not set.
    #[arg(long = "var", value_name = "NAME=VALUE", conflicts_with = "batch")]
    vars: Vec<String>,
    /// Print the type-checked syntax tree instead of evaluating the expression.
    #[arg(long, conflicts_with = "batch")]
    ast: bool,
    /// Evaluate expressions from standard input, one JSON object per line: {"id":…,"expr":…,"vars":{…}}.
    #[arg(long)]
    batch: bool,
}

/// Shown instead of a file name in compile errors.
const ORIGIN: &str = "<expression>";

pub(crate) fn run(args: &Args) -> Result<()> {
    let stdout = &mut std::io::BufWriter::new(std::io::stdout().lock());
    let done = if args.batch {
        batch::run(std::io::stdin().lock(), stdout)
    } else {
        evaluate(args, stdout).and_then(|()| Ok(stdout.flush()?))
    };
    match done {
        // The reader, for example `head`, has closed the pipe.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        done => done,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn evaluate(args: &Args, out: &mut dyn Write) -> Result<()> {
    let text = args.expression.as_deref().context("no expression is given")?;
    let vars = vars::read(&args.vars)?;
    let base = Env::kubernetes(Version::CURRENT).with_variables(VARIABLES.map(|name| (name, Type::Dyn)));
    let env = base.with_variables(vars.iter().map(|(name, _)| (name.as_str(), Type::Dyn)));
    let parsed = env.parse(text).map_err(|issues| compile_error(&env, &issues))?;
    for (name, _) in &vars {
        if !VARIABLES.contains(&name.as_str()) && !parsed.mentions(name) {
            bail!("--var {name}: {}", unused_variable(name));
        }
    }
    let checked = env.check(parsed).map_err(|issues| compile_error(&env, &issues))?;
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

/// Renders compile errors with source excerpts. `main` prints the leading `error: `.
fn compile_error(env: &Env, issues: &cel::Issues) -> anyhow::Error {
    let report = cel::report(env, issues, ORIGIN);
    let report = report.strip_prefix("error: ").unwrap_or(&report).trim_end();
    anyhow::anyhow!("{report}")
}

/// The error for a variable that the expression does not use: most likely a typo.
fn unused_variable(name: &str) -> String {
    match cel::nearest(name, VARIABLES) {
        Some(known) => format!("the expression does not read `{name}`; did you mean `{known}`?"),
        None => format!("the expression does not read `{name}`; remove the flag, or correct the name"),
    }
}

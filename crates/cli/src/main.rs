//! The one binary, `portcullis`.

mod aggregation;
mod audit;
mod authz;
mod cel;
mod check;
mod flags;
mod flagz;
mod front_proxy;
mod gates;
mod limits;
mod logging;
mod serve;
mod store;
mod up;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{
    Arg, ArgAction, Args as _, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
};

/// Objects are many small strings, made on one thread and freed on another: measured, the system's allocator took a tenth of the
/// time of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Kubernetes API server whose security plane cannot be bypassed.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version = server::version::GIT_VERSION, disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start a server with no configuration at all, with its state in ./.portcullis.
    ///
    /// The first start makes a certificate authority, a serving certificate, an administrator's client certificate, a
    /// kubeconfig and an empty database; every later start finds them as they were. It listens on 127.0.0.1 only.
    Up(up::Args),
    /// Start a server with kube-apiserver's flags.
    Serve(Box<serve::Args>),
    /// Evaluate a CEL expression as policies do: its value, type, cost and estimate.
    Cel(cel::Args),
    /// Check folders of static admission manifests and configuration files, as the server would load them.
    ///
    /// Exits with 0 if nothing is wrong, 1 if something is, and 2 if it was not told what to check.
    Check(check::Args),
    /// Look at an authorization configuration without a server.
    Authz(authz::Args),
    /// Look at or repair the store of a server that does not run.
    Store(store::Args),
    /// Print the version.
    Version,
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    // What lives for long is small and lies apart: with huge pages each of it would hold two megabytes, and an idle server a third
    // more memory. A system that has none of them says so, and nothing is lost.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let command = command();
    let matches = command.clone().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let flags = || {
        let (name, matches) = matches.subcommand()?;
        command.find_subcommand(name).map(|command| flagz::read(command, matches))
    };
    let outcome = match cli.command {
        Task::Up(args) => up::run(&args, flags().unwrap_or_default()),
        Task::Serve(args) => {
            let known = matches.subcommand_matches("serve").map(serve::given).unwrap_or_default();
            serve::run(&args, &known, flags().unwrap_or_default())
        }
        Task::Cel(args) => cel::run(&args),
        Task::Check(args) => check::run(&args),
        Task::Authz(args) => match authz::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Task::Store(args) => match store::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Task::Version => {
            println!("portcullis {} ({})", env!("CARGO_PKG_VERSION"), server::version::GIT_VERSION);
            Ok(())
        }
        Task::Completion { shell } => {
            clap_complete::generate(shell, &mut self::command(), "portcullis", &mut std::io::stdout());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<serve::Reported>() => ExitCode::FAILURE,
        Err(error) => {
            let text = format!("{error:#}");
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "error: {text}");
            ExitCode::FAILURE
        }
    }
}

/// The command line, with the flags that `serve` knows by name alone.
fn command() -> Command {
    // Of a flag that is given twice the last counts, as in Kubernetes.
    let serve = serve::Args::augment_args(Command::new("serve").args_override_self(true)).args(
        flags::KNOWN.iter().map(|flag| {
            let arg = Arg::new(flag.name).long(flag.name).hide(true).action(ArgAction::Append);
            if flag.switch {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                arg.num_args(1)
            }
        }),
    );
    let about =
        Cli::command().find_subcommand("serve").and_then(|c| c.get_about().cloned()).unwrap_or_default();
    Cli::command().mut_subcommand("serve", |_| serve.about(about))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        super::command().debug_assert();
    }

    #[test]
    fn of_a_flag_that_is_given_twice_the_last_counts() {
        let words = ["portcullis", "serve", "--secure-port=1", "--secure-port=2"];
        let given = super::command().try_get_matches_from(words).unwrap();
        let serve = given.subcommand_matches("serve").unwrap();
        assert_eq!(serve.get_raw("secure_port").unwrap().next_back().unwrap(), "2");
    }
}

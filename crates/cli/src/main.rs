//! The binary `portcullis`: turns flags into a `server::Config` and runs the server, or one of the offline commands.

mod aggregation;
mod audit;
mod authz;
mod cel;
mod check;
mod duration;
mod etcd;
mod flags;
#[cfg(test)]
mod flags_page;
mod flagz;
mod front_proxy;
mod gates;
mod limits;
mod logging;
mod migrate;
mod serve;
mod serving;
mod shutdown;
mod snapshot;
mod store;
mod up;
mod version_flag;
mod watch_cache;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{
    Arg, ArgAction, Args as _, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
};

/// Objects consist of many small strings that are allocated on one thread and freed on another. The system allocator took a tenth of the
/// time of a request.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A Kubernetes API server in one binary.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version = runtime::version::GIT_VERSION, disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Start a server on 127.0.0.1 that needs no configuration.
    ///
    /// The first start creates a certificate authority, a serving certificate, a client certificate for an administrator, a kubeconfig
    /// and an empty store in --data-dir. Later starts use them again. Unauthenticated clients can reach only the health endpoints.
    Up(up::Args),
    /// Start a server with kube-apiserver's flags.
    Serve(Box<serve::Args>),
    /// Evaluate a CEL expression as admission policies do; print its value, type, cost and estimated cost.
    Cel(cel::Args),
    /// Validate static admission manifests and configuration files without a server.
    ///
    /// Exit codes: 0 valid, 1 problems found, 2 usage error.
    Check(check::Args),
    /// Validate and try out an AuthorizationConfiguration without a server.
    Authz(authz::Args),
    /// Save, verify and restore snapshots of the store.
    Snapshot(snapshot::Args),
    /// Copy all data from the embedded store of a stopped server to etcd, or from etcd to a new embedded store.
    ///
    /// Every object is decoded, copied, read back and compared. The target must be empty, and no server starts from it before the copy is
    /// complete and verified; after an interruption, the same command resumes. The source is not changed; all servers that use it must be
    /// stopped. The resourceVersions in the target exceed those of the source, so that clients list again.
    /// Exit codes: 0 copied and verified, 1 not copied or not complete, 2 usage error.
    Migrate(migrate::Args),
    /// Check or repair the store of a stopped server.
    Store(store::Args),
    /// Print the versions of portcullis and of Kubernetes.
    Version,
    /// Print a completion script for a shell.
    Completion {
        /// Shell that the script is for.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    // Long-lived allocations are small and scattered: transparent huge pages would make an idle server use a third more memory.
    // On kernels without huge pages the call fails, which does no harm.
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
        CliCommand::Up(args) => up::run(&args, flags().unwrap_or_default()),
        CliCommand::Serve(args) => {
            let unsupported =
                matches.subcommand_matches("serve").map(serve::unsupported_flags_in).unwrap_or_default();
            serve::run(&args, &unsupported, flags().unwrap_or_default())
        }
        CliCommand::Cel(args) => cel::run(&args),
        CliCommand::Check(args) => check::run(&args),
        CliCommand::Authz(args) => match authz::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        CliCommand::Snapshot(args) => snapshot::run(&args),
        CliCommand::Migrate(args) => migrate::run(&args),
        CliCommand::Store(args) => match store::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        CliCommand::Version => {
            println!("portcullis {} ({})", env!("CARGO_PKG_VERSION"), runtime::version::GIT_VERSION);
            Ok(())
        }
        CliCommand::Completion { shell } => {
            clap_complete::generate(shell, &mut self::command(), "portcullis", &mut std::io::stdout());
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<serve::AlreadyPrinted>() => ExitCode::FAILURE,
        Err(error) => {
            let text = format!("{error:#}");
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "error: {text}");
            ExitCode::FAILURE
        }
    }
}

/// The command line. `serve` also accepts the unsupported flags of kube-apiserver, hidden from `--help`.
fn command() -> Command {
    // If a flag is repeated, the last value counts, as in kube-apiserver.
    let serve = serve::Args::augment_args(Command::new("serve").args_override_self(true)).args(
        flags::UNSUPPORTED_FLAGS.iter().map(|flag| {
            let arg = Arg::new(flag.name).long(flag.name).hide(true).action(ArgAction::Append);
            if flag.boolean {
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
    fn the_last_value_of_a_repeated_flag_counts() {
        let words = ["portcullis", "serve", "--secure-port=1", "--secure-port=2"];
        let given = super::command().try_get_matches_from(words).unwrap();
        let serve = given.subcommand_matches("serve").unwrap();
        assert_eq!(serve.get_raw("secure_port").unwrap().next_back().unwrap(), "2");
    }
}

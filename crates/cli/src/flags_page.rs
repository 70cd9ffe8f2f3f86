//! Test that `docs/reference/flags.md` lists every command and flag. `UPDATE_PAGES=1` writes the page.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, Command};

use crate::flags::{FlagSupport, UNSUPPORTED_FLAGS};

const INTRODUCTION: &str = "\
# Flags

<!-- Generated from the command line definitions in crates/cli. Do not edit: run `UPDATE_PAGES=1 cargo nextest run -p cli flags_page`. -->

Every command prints its flags with `--help`. Durations are written as in Go: `30s`, `1m0s`, `1h30m`. A boolean flag of `serve` takes
an optional value: `--allow-privileged` is `--allow-privileged=true`. If a flag is repeated, the last value counts, except where the
list says that it may be repeated.

Exit codes of all commands, unless the command says otherwise: 0 success, 1 failure, 2 usage error.
";

const IGNORED: &str = "
## kube-apiserver flags that `serve` ignores

These flags have no effect here. The server starts and logs a warning with the reason.

";

const REJECTED: &str = "
## kube-apiserver flags that `serve` rejects

These flags decide about access, about the store or about the protection of data, and are not implemented. The server does not start
if one of them is set.

";

#[test]
fn the_flag_reference_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    let expected = page();
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    let line = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    assert_eq!(
        found,
        expected,
        "docs/reference/flags.md is out of date at line {}: run this test with UPDATE_PAGES=1",
        line.map_or_else(|| "the last".to_owned(), |line| (line + 1).to_string())
    );
}

fn page() -> String {
    let mut out = INTRODUCTION.to_owned();
    let command = crate::command();
    let mut subcommands: Vec<&Command> = command.get_subcommands().collect();
    subcommands.retain(|command| command.get_name() != "help");
    // The two commands that start a server come first.
    subcommands.sort_by_key(|command| {
        ["up", "serve"].iter().position(|name| *name == command.get_name()).unwrap_or(2)
    });
    for subcommand in subcommands {
        write_command("portcullis", subcommand, &mut out);
    }
    let listed = |wanted: fn(&FlagSupport) -> Option<&str>| {
        let mut flags = UNSUPPORTED_FLAGS.to_vec();
        flags.sort_by_key(|flag| flag.name);
        let rows: Vec<String> = flags
            .iter()
            .filter_map(|flag| Some(format!("| `--{}` | {} |", flag.name, wanted(&flag.support)?)))
            .collect();
        format!("| flag | reason |\n|---|---|\n{}\n", rows.join("\n"))
    };
    out.push_str(IGNORED);
    out.push_str(&listed(|support| match support {
        FlagSupport::Ignored(reason) => Some(reason),
        FlagSupport::Rejected(_) => None,
    }));
    out.push_str(REJECTED);
    out.push_str(&listed(|support| match support {
        FlagSupport::Rejected(reason) => Some(reason),
        FlagSupport::Ignored(_) => None,
    }));
    out
}

fn write_command(parent: &str, command: &Command, out: &mut String) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let about = about.trim_end_matches('.');
    write!(out, "\n## {name}\n\n{about}.\n").unwrap();
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version))
        .collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for heading in arguments.iter().map(|arg| arg.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings.sort_by_key(Option::is_some);
    for heading in headings {
        if let Some(heading) = heading {
            write!(out, "\n### {heading} ({})\n", command.get_name()).unwrap();
        }
        out.push('\n');
        for arg in arguments.iter().filter(|arg| arg.get_help_heading() == heading) {
            writeln!(out, "- {}", describe(arg)).unwrap();
        }
    }
    for subcommand in command.get_subcommands().filter(|command| command.get_name() != "help") {
        write_command(&name, subcommand, out);
    }
}

/// `` `--flag VALUE` (default `X`; alias `--other`): One sentence. ``
fn describe(arg: &Arg) -> String {
    let id = arg.get_id().to_string().to_uppercase();
    let value_name = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let mut name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (_, Some(long)) => format!("--{long}"),
        _ => value_name.clone().unwrap_or_else(|| id.clone()),
    };
    // clap derives a value name from the flag, which says nothing new.
    if let Some(value_name) = value_name.filter(|value_name| *value_name != id && name.starts_with('-')) {
        write!(name, " {value_name}").unwrap();
    }
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let help = help.trim_end_matches('.').replace('\n', " ").replace("  ", " ");
    let (help, default) = match help.strip_suffix(']').and_then(|help| help.rsplit_once(" [default: ")) {
        Some((help, default)) => (help.to_owned(), default.to_owned()),
        None => {
            let defaults: Vec<String> =
                arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
            (help, if defaults.is_empty() { String::new() } else { format!("`{}`", defaults.join(",")) })
        }
    };
    let mut notes = Vec::new();
    if !default.is_empty() {
        notes.push(format!("default {default}"));
    }
    if !values.is_empty() && values != ["true", "false"] {
        notes.push(format!("one of {}", values.join(", ")));
    }
    for alias in arg.get_visible_aliases().unwrap_or_default() {
        notes.push(format!("alias `--{alias}`"));
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("`{name}`{notes}: {help}.")
}

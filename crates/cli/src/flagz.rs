//! What the server was started with, as `/flagz` shows it. Flags name files; what is in those is never shown.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// Every flag of a command with its value or default, by name. Flags that are known by name alone are there if they were given.
pub(crate) fn read(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let mut flags: Vec<(String, String)> = command
        .get_arguments()
        .filter(|arg| {
            let given = matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
            given || !arg.is_hide_set()
        })
        .filter_map(|arg| {
            let name = arg.get_long().filter(|name| *name != "help")?;
            Some((name.to_owned(), value(arg, matches)))
        })
        .collect();
    flags.sort();
    flags
}

fn value(arg: &Arg, matches: &ArgMatches) -> String {
    let raw = matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten();
    let values: Vec<String> = raw.map(|value| value.to_string_lossy().into_owned()).collect();
    if arg.get_value_delimiter().is_some() {
        return format!("[{}]", values.join(","));
    }
    let takes_value = arg.get_action().takes_values();
    values.last().cloned().unwrap_or_else(|| if takes_value { String::new() } else { "false".to_owned() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn flags_are_shown_with_their_values_and_defaults() {
        let given = [
            "portcullis",
            "serve",
            "--authorization-mode=Node,RBAC",
            "--secure-port=7443",
            "--goaway-chance=0.1",
            "--allow-privileged",
        ];
        let command = crate::command();
        let matches = command.clone().get_matches_from(given);
        let serve = command.find_subcommand("serve").unwrap();
        let flags = super::read(serve, matches.subcommand_matches("serve").unwrap());
        let value = |name: &str| flags.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        assert_eq!(value("secure-port"), Some("7443"));
        assert_eq!(value("authorization-mode"), Some("[Node,RBAC]"));
        assert_eq!(value("allow-privileged"), Some("true"));
        assert_eq!(value("enable-admission-plugins"), Some("[]"));
        assert_eq!(value("max-requests-inflight"), Some("400"));
        assert_eq!(value("goaway-chance"), Some("0.1"), "it was given");
        assert_eq!(value("etcd-servers"), None, "it is known by name alone and was not given");
        assert_eq!(value("client-ca-file"), Some(""));
    }
}

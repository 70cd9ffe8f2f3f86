//! Flags and their values for `/flagz`. Values name files, whose content is never shown. No flag of kube-apiserver is a secret itself, but
//! a URL may contain a password, which is replaced.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use runtime::url_credentials::without_passwords;

/// Every flag of a command with its value or default, sorted by name. Hidden (unsupported) flags are included only if they are set.
pub(crate) fn read(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let mut flags: Vec<(String, String)> = command
        .get_arguments()
        .filter(|arg| {
            let given = matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
            given || !arg.is_hide_set()
        })
        .filter_map(|arg| {
            let name = arg.get_long().filter(|name| *name != "help")?;
            Some((name.to_owned(), flag_value(arg, matches)))
        })
        .collect();
    flags.sort();
    flags
}

fn flag_value(arg: &Arg, matches: &ArgMatches) -> String {
    let raw = matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten();
    let values: Vec<String> = raw.map(|value| without_passwords(&value.to_string_lossy())).collect();
    if arg.get_value_delimiter().is_some() {
        return format!("[{}]", values.join(","));
    }
    let takes_value = arg.get_action().takes_values();
    values.last().cloned().unwrap_or_else(|| if takes_value { String::new() } else { "false".to_owned() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_password_in_the_url_of_a_flag_is_not_shown() {
        let given = [
            "portcullis",
            "serve",
            "--external-hostname=https://u:secret@h",
            "--service-account-issuer=https://u:secret@h",
        ];
        let command = crate::command();
        let matches = command.clone().get_matches_from(given);
        let serve = command.find_subcommand("serve").unwrap();
        let flags = super::read(serve, matches.subcommand_matches("serve").unwrap());
        assert!(
            flags.iter().any(|(name, value)| name == "external-hostname" && value == "https://u:xxxxx@h")
        );
        assert!(flags.iter().all(|(_, value)| !value.contains("secret")));
    }

    #[test]
    fn no_flag_value_is_a_secret() {
        let command = crate::command();
        let serve = command.find_subcommand("serve").unwrap();
        let secret = |name: &str| {
            ["password", "secret", "token", "key", "credential"].iter().any(|word| name.contains(word))
        };
        // Paths of files, and properties of tokens such as their lifetime.
        let harmless = ["-file", "keyfile", "-expiration", "-ttl", "-version", "-auth", "-key"];
        for name in serve.get_arguments().filter_map(|arg| arg.get_long()).filter(|name| secret(name)) {
            assert!(harmless.iter().any(|end| name.ends_with(end)), "--{name} may be a secret");
        }
    }

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
        assert_eq!(value("goaway-chance"), Some("0.1"), "it is set");
        assert_eq!(value("oidc-issuer-url"), None, "it is unsupported and not set");
        assert_eq!(value("client-ca-file"), Some(""));
    }
}

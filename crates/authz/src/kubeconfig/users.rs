//! The users of a kubeconfig by the hosts they are for: as whom to ask whom.
//!
//! A kubeconfig for admission webhooks names a user after the server it is shown to: `host:port`, `*.domain`, `host` for port 443,
//! or `*` for all others.

use std::collections::BTreeMap;

use value::{Str, yaml};

use super::{Checked, KubeconfigError, User};

/// Users by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users<U = User> {
    by_name: BTreeMap<Str, U>,
    /// The user of the current context.
    current: Option<Str>,
}

impl Users {
    /// Reads every user of a kubeconfig.
    pub fn parse(text: &[u8]) -> Result<Self, KubeconfigError> {
        let config =
            yaml::document(text).map_err(|error| KubeconfigError::Unreadable(error.to_string()))?.value;
        let config = Checked::new(config).map_err(KubeconfigError::Unreadable)?;
        let mut by_name = BTreeMap::new();
        for entry in config.entries("users") {
            let name = Str::from(entry.str_at(&["name"]).unwrap_or_default());
            let user = match entry.get("user") {
                Some(user) if !user.is_null() => User::read(user, &name, &|file| (file.to_owned(), Ok(())))?,
                _ => User::default(),
            };
            by_name.insert(name, user);
        }
        let current = Some(config.text(&["current-context"]))
            .filter(|name| !name.is_empty())
            .and_then(|name| config.entry("contexts", "context", name))
            .and_then(|context| context.str_at(&["user"]))
            .map(Str::from);
        Ok(Users { by_name, current })
    }
}

impl<U> Users<U> {
    /// The same names with what `make` makes of each user.
    pub fn try_map<V, E>(self, mut make: impl FnMut(U) -> Result<V, E>) -> Result<Users<V>, E> {
        let by_name =
            self.by_name.into_iter().map(|(name, user)| Ok((name, make(user)?))).collect::<Result<_, E>>()?;
        Ok(Users { by_name, current: self.current })
    }

    /// As whom to ask the server at `host:port`.
    pub fn for_host(&self, host_port: &str) -> Option<&U> {
        let bare =
            host_port.strip_suffix(":443").map(|host| host.trim_start_matches('[').trim_end_matches(']'));
        self.named(host_port)
            .or_else(|| self.named(bare?))
            .or_else(|| self.by_name.get("*"))
            .or_else(|| self.by_name.get(self.current.as_ref()?))
    }

    /// A user of this name, or of a domain it is in.
    fn named(&self, host: &str) -> Option<&U> {
        self.by_name.get(host).or_else(|| {
            let mut rest = host;
            while let Some((_, parent)) = rest.split_once('.') {
                if let Some(user) = self.by_name.get(format!("*.{parent}").as_str()) {
                    return Some(user);
                }
                rest = parent;
            }
            None
        })
    }
}

#[cfg(test)]
mod tests;

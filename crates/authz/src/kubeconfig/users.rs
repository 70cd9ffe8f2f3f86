//! The users of a kubeconfig for admission webhooks, by the host that they are for.
//!
//! Each user is named after a server: `host:port`, `*.domain`, `host` for port 443, or `*` for all others.

use std::collections::BTreeMap;

use value::{Str, yaml};

use super::{KubeconfigError, KubeconfigUser, TypedKubeconfig};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigUsers<U = KubeconfigUser> {
    by_name: BTreeMap<Str, U>,
    /// The name of the user of the current context.
    current: Option<Str>,
}

impl KubeconfigUsers {
    pub fn parse(text: &[u8]) -> Result<Self, KubeconfigError> {
        let config =
            yaml::document(text).map_err(|error| KubeconfigError::Unreadable(error.to_string()))?.value;
        let config = TypedKubeconfig::new(config).map_err(KubeconfigError::Unreadable)?;
        let mut by_name = BTreeMap::new();
        for entry in config.entries("users") {
            let name = Str::from(entry.str_at(&["name"]).unwrap_or_default());
            let user = match entry.get("user") {
                Some(user) if !user.is_null() => {
                    KubeconfigUser::read(user, &name, &|file| (file.to_owned(), Ok(())))?
                }
                _ => KubeconfigUser::default(),
            };
            by_name.insert(name, user);
        }
        let current = Some(config.text(&["current-context"]))
            .filter(|name| !name.is_empty())
            .and_then(|name| config.entry("contexts", "context", name))
            .and_then(|context| context.str_at(&["user"]))
            .map(Str::from);
        Ok(KubeconfigUsers { by_name, current })
    }
}

impl<U> KubeconfigUsers<U> {
    /// Replaces each user by the result of `make`.
    pub fn try_map<V, E>(self, mut make: impl FnMut(U) -> Result<V, E>) -> Result<KubeconfigUsers<V>, E> {
        let by_name =
            self.by_name.into_iter().map(|(name, user)| Ok((name, make(user)?))).collect::<Result<_, E>>()?;
        Ok(KubeconfigUsers { by_name, current: self.current })
    }

    /// The user for the server at `host:port`.
    pub fn for_host(&self, host_port: &str) -> Option<&U> {
        let bare =
            host_port.strip_suffix(":443").map(|host| host.trim_start_matches('[').trim_end_matches(']'));
        self.named(host_port)
            .or_else(|| self.named(bare?))
            .or_else(|| self.by_name.get("*"))
            .or_else(|| self.by_name.get(self.current.as_ref()?))
    }

    /// The user with this host name, or with a wildcard for one of its domains.
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

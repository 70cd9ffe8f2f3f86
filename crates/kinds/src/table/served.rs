//! Which API versions are served: the stable ones by default, changed by `--runtime-config`.

use std::collections::BTreeMap;

use super::{GROUPS, Resource};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Explicit settings by group and version; they override the two below.
    explicit: BTreeMap<(String, String), bool>,
    /// Setting for all beta versions (`api/beta`, `api/all`).
    beta: Option<bool>,
    /// Setting for all stable versions (`api/ga`, `api/all`).
    stable: Option<bool>,
}

impl Served {
    /// Parses `--runtime-config`: comma-separated `GROUP/VERSION=true`, `api/all`, `api/beta` or `api/ga`.
    pub fn parse(config: &str) -> Result<Served, String> {
        let mut served = Served::default();
        for part in config.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, "true"));
            let on = match value {
                "true" | "1" | "t" | "T" | "TRUE" | "True" | "" => true,
                "false" | "0" | "f" | "F" | "FALSE" | "False" => false,
                _ => return Err(format!("runtime-config invalid value {name}={value}")),
            };
            match name {
                "api/all" => (served.beta, served.stable) = (Some(on), Some(on)),
                "api/beta" => served.beta = Some(on),
                "api/ga" => served.stable = Some(on),
                // The table contains no alpha versions.
                "api/alpha" => {}
                _ => {
                    let Some((group, version)) =
                        name.split_once('/').or((name == "v1").then_some(("", name)))
                    else {
                        return Err(format!("runtime-config invalid key {name}"));
                    };
                    let group = if group == "api" { "" } else { group };
                    let Some(known) = GROUPS.iter().find(|known| known.name == group) else {
                        return Err(format!("unknown api groups {group}"));
                    };
                    if !known.versions.contains(&version) {
                        return Err(format!("unknown api version {name}"));
                    }
                    served.explicit.insert((group.to_owned(), version.to_owned()), on);
                }
            }
        }
        Ok(served)
    }

    pub fn is_served(&self, group: &str, version: &str) -> bool {
        if !self.explicit.is_empty()
            && let Some(on) = self.explicit.get(&(group.to_owned(), version.to_owned()))
        {
            return *on;
        }
        if version.contains("beta") { self.beta.unwrap_or(false) } else { self.stable.unwrap_or(true) }
    }

    /// Returns true if at least one version of a built-in group is served.
    pub fn has_group(&self, name: &str) -> bool {
        super::group(name)
            .is_some_and(|group| group.versions.iter().any(|version| self.is_served(name, version)))
    }

    /// Served versions of a row, the preferred one first.
    pub fn versions<'a>(&'a self, row: &Resource) -> impl Iterator<Item = &'static str> + use<'a> {
        let group = row.group;
        row.versions.iter().map(|version| version.name).filter(move |version| self.is_served(group, version))
    }
}

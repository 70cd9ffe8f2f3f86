//! [`User`]: name, uid, groups and extra attributes. Plain data that proves nothing.

use std::collections::BTreeMap;

use api::identities as names;
use value::{Map, Str, Value};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub name: Str,
    /// Empty if the credential has none.
    pub uid: Str,
    /// In the order in which the credential lists them.
    pub groups: Vec<Str>,
    pub extra: BTreeMap<Str, Vec<Str>>,
}

impl User {
    pub fn named(name: impl Into<Str>) -> Self {
        User { name: name.into(), ..User::default() }
    }

    /// Replaces all groups of the user.
    #[must_use]
    pub fn in_groups<S: Into<Str>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.groups = groups.into_iter().map(Into::into).collect();
        self
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == names::ANONYMOUS || self.is_in(names::UNAUTHENTICATED)
    }

    /// Converts to `UserInfo` of `authentication.k8s.io/v1`.
    pub fn to_user_info(&self) -> Value {
        let mut out = Map::new();
        if !self.extra.is_empty() {
            let extra = self
                .extra
                .iter()
                .map(|(k, v)| (k.clone(), Value::List(v.iter().cloned().map(Value::String).collect())));
            out.insert("extra", Value::Map(extra.collect()));
        }
        if !self.groups.is_empty() {
            out.insert("groups", Value::List(self.groups.iter().cloned().map(Value::String).collect()));
        }
        if !self.uid.is_empty() {
            out.insert("uid", self.uid.clone());
        }
        if !self.name.is_empty() {
            out.insert("username", self.name.clone());
        }
        Value::Map(out)
    }
}

pub mod service_account {
    use value::names::{is_dns1123_label, is_dns1123_subdomain};
    use value::{Str, format_smolstr};

    use super::{User, names};

    pub fn username(namespace: &str, name: &str) -> Str {
        format_smolstr!("{}{namespace}:{name}", names::SERVICE_ACCOUNT_PREFIX)
    }

    /// The groups of every service account of a namespace.
    pub fn groups(namespace: &str) -> Vec<Str> {
        vec![
            Str::new_static(names::SERVICE_ACCOUNTS),
            format_smolstr!("{}{namespace}", names::SERVICE_ACCOUNTS_PREFIX),
        ]
    }

    pub fn user(namespace: &str, name: &str, uid: &str) -> User {
        User {
            name: username(namespace, name),
            uid: uid.into(),
            groups: groups(namespace),
            ..User::default()
        }
    }

    /// Namespace and name of a service account's user name. `None` if it is not one, or if the parts are not
    /// valid names.
    pub fn split(username: &str) -> Option<(&str, &str)> {
        let rest = username.strip_prefix(names::SERVICE_ACCOUNT_PREFIX)?;
        let (namespace, name) = rest.split_once(':')?;
        let valid = is_dns1123_label(namespace).is_empty() && is_dns1123_subdomain(name).is_empty();
        valid.then_some((namespace, name))
    }
}

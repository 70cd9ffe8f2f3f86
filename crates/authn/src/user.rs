//! [`User`]: a name, a uid, groups and extra attributes. Plain data: naming somebody proves nothing.

use std::collections::BTreeMap;

use value::{Map, Str, Value};

/// Names with a meaning of their own.
pub mod names {
    /// The group that is always allowed.
    pub const MASTERS: &str = "system:masters";
    /// The group of all nodes.
    pub const NODES: &str = "system:nodes";
    /// The group of whoever was not authenticated.
    pub const UNAUTHENTICATED: &str = "system:unauthenticated";
    /// The group of everybody who was.
    pub const AUTHENTICATED: &str = "system:authenticated";
    /// The group of all service accounts.
    pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
    /// The user of a request without credentials.
    pub const ANONYMOUS: &str = "system:anonymous";
    /// The server itself.
    pub const API_SERVER: &str = "system:apiserver";
    /// The scheduler.
    pub const SCHEDULER: &str = "system:kube-scheduler";
    /// What every node's user name begins with.
    pub const NODE_PREFIX: &str = "system:node:";
    /// What every service account's user name begins with.
    pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
    /// What the group of one namespace's service accounts begins with.
    pub const SERVICE_ACCOUNTS_PREFIX: &str = "system:serviceaccounts:";
    /// Extra: which credential was used.
    pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
    /// Extra: the pod a token is bound to.
    pub const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
    /// Extra: that pod's uid.
    pub const POD_UID: &str = "authentication.kubernetes.io/pod-uid";
    /// Extra: the node a token is bound to.
    pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
    /// Extra: that node's uid.
    pub const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
    /// Extra: the configuration of validating webhooks a token is bound to.
    pub const VALIDATING_NAME: &str = "authentication.kubernetes.io/validatingwebhookconfiguration-name";
    /// Extra: its uid.
    pub const VALIDATING_UID: &str = "authentication.kubernetes.io/validatingwebhookconfiguration-uid";
    /// Extra: the configuration of mutating webhooks a token is bound to.
    pub const MUTATING_NAME: &str = "authentication.kubernetes.io/mutatingwebhookconfiguration-name";
    /// Extra: its uid.
    pub const MUTATING_UID: &str = "authentication.kubernetes.io/mutatingwebhookconfiguration-uid";
    /// Extra: the API group whose objects the bearer may ask webhooks about.
    pub const ATTESTED_GROUPS: &str = "attestation.authentication.kubernetes.io/admissionReviewAPIGroups";
}

/// Somebody, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: Str,
    /// The uid; empty where unknown.
    pub uid: Str,
    /// The groups, in the order the credential named them.
    pub groups: Vec<Str>,
    /// Whatever else the credential said, by key.
    pub extra: BTreeMap<Str, Vec<Str>>,
}

impl User {
    /// A user with a name alone.
    pub fn named(name: impl Into<Str>) -> Self {
        User { name: name.into(), ..User::default() }
    }

    /// This user in these groups.
    #[must_use]
    pub fn in_groups<S: Into<Str>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.groups = groups.into_iter().map(Into::into).collect();
        self
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Whether nobody in particular is calling.
    pub fn is_anonymous(&self) -> bool {
        self.name == names::ANONYMOUS || self.is_in(names::UNAUTHENTICATED)
    }

    /// As `authentication.k8s.io/v1` `UserInfo`.
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

/// Service accounts as users.
pub mod service_account {
    use value::{Str, format_smolstr};

    use super::{User, names};

    /// The user name of a service account.
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

    /// The user that a service account is.
    pub fn user(namespace: &str, name: &str, uid: &str) -> User {
        User {
            name: username(namespace, name),
            uid: uid.into(),
            groups: groups(namespace),
            ..User::default()
        }
    }

    /// Namespace and name, if the user name is a service account's: both must be names Kubernetes would store.
    pub fn split(username: &str) -> Option<(&str, &str)> {
        let rest = username.strip_prefix(names::SERVICE_ACCOUNT_PREFIX)?;
        let (namespace, name) = rest.split_once(':')?;
        let namespace_ok = namespace.len() <= 63 && is_dns_label(namespace);
        let name_ok = name.len() <= 253 && name.split('.').all(is_dns_label);
        (namespace_ok && name_ok).then_some((namespace, name))
    }

    fn is_dns_label(text: &str) -> bool {
        let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        !text.is_empty()
            && text.bytes().all(|c| inner(c) || c == b'-')
            && text.bytes().next().is_some_and(inner)
            && text.bytes().next_back().is_some_and(inner)
    }
}

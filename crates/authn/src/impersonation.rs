//! Acting as somebody else: headers name whom, and every part of the wanted identity is authorized by its own check.
//!
//! Kubernetes knows several modes. The constrained ones (`associated-node`, `arbitrary-node`, `serviceaccount`, `user-info`) ask
//! two things: may the caller do this request under the mode (`impersonate-on:MODE:VERB` on what is asked for), and may it take
//! on the identity (`impersonate:MODE` on it). The plain mode asks the second alone, under the verb `impersonate`. They are tried
//! in that order and the first that allows wins; when none does, the first refusal is the answer. The mode by which a caller was
//! last allowed is tried before the others: callers mostly keep to one.
//!
//! This module knows what to check; [`Checks`] asks the authorizers.

mod last;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::Pin;

use api::field::{aggregate, quote};
use api::{Status, names as api_names};
use value::{Path, Str, format_smolstr};

use crate::caller::{Caller, Via};
use crate::headers::{Headers, UnreadableHeader, all, extra, extra_key, first};
use crate::user::{User, names, service_account};

pub use last::LastModes;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// The group of checks on parts of an identity that are no core resource.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// So many parts of one kind are worth asking for all of them at once first.
const MANY: usize = 4;

/// What an authorizer says: the refusal is the answer to the client.
pub type Checked<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// Asks the authorizers.
pub trait Checks: Send + Sync {
    /// Whether `user` may `check.verb` a part of an identity.
    fn identity<'a>(&'a self, user: &'a User, check: &'a IdentityCheck) -> Checked<'a>;

    /// Whether `user` may do the request itself under the verb `impersonate-on:MODE:VERB`, where the verb is the request's own.
    fn request<'a>(&'a self, user: &'a User, mode: &'a str) -> Checked<'a>;
}

/// One part of an identity somebody wants to take on, as a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityCheck {
    /// `impersonate` or `impersonate:MODE`.
    pub verb: Str,
    /// The API group.
    pub group: Str,
    /// `users`, `groups`, `uids`, `userextras`, `serviceaccounts` or `nodes`.
    pub resource: Str,
    /// The key of an extra attribute.
    pub subresource: Str,
    /// The namespace of a service account.
    pub namespace: Str,
    /// The name or value.
    pub name: Str,
}

/// Whom a request wants to act as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    wanted: User,
}

impl Impersonation {
    /// Reads the headers; nothing if there are none. Parts of an identity without a name are refused, and so is a header that
    /// cannot be read: ignoring it would run the request as its real caller.
    pub fn from_headers(headers: &dyn Headers) -> Result<Option<Self>, Status> {
        let unreadable = |header: UnreadableHeader| Status::bad_request(header.to_string());
        let wanted = User {
            name: first(headers, USER).map_err(unreadable)?.into(),
            uid: first(headers, UID).map_err(unreadable)?.into(),
            groups: all(headers, GROUP).map_err(unreadable)?,
            extra: extra(headers, &[Str::new_static(EXTRA)]).map_err(unreadable)?,
        };
        if !wanted.name.is_empty() {
            return Ok(Some(Impersonation { wanted }));
        }
        if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
            return Ok(None);
        }
        let shown = go_syntax(&wanted);
        Err(Status::bad_request(format!("requested {shown} without impersonating a user name")))
    }

    /// Whether a header names a wanted identity; they are removed before anybody else sees the request.
    pub fn is_header(name: &str) -> bool {
        [USER, UID, GROUP].iter().any(|h| name.eq_ignore_ascii_case(h)) || extra_key(name, EXTRA).is_some()
    }

    /// Checks that `caller` may act as whom it wants, and makes it so.
    pub async fn apply(
        self,
        caller: &Caller,
        checks: &dyn Checks,
        last: &LastModes,
    ) -> Result<Caller, Status> {
        let mut refused = None;
        let name = &caller.user().name;
        let tried_first = last.of(name);
        let others = MODES.into_iter().filter(|mode| Some(*mode) != tried_first);
        for mode in tried_first.into_iter().chain(others) {
            if !mode.serves(&self.wanted, caller.user()) {
                continue;
            }
            match mode.check(&self.wanted, caller.user(), checks).await {
                Ok(user) => {
                    if Some(mode) != tried_first {
                        last.set(name, mode);
                    }
                    let constraint = if mode.is_plain() { Str::default() } else { mode.verb() };
                    return Ok(caller.as_somebody(user, Via::Impersonation { constraint }));
                }
                Err(status) => {
                    refused.get_or_insert(status);
                }
            }
        }
        Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }
}

/// The modes in the order they are tried.
const MODES: [Mode; 5] =
    [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Plain];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account's token as the node its pod runs on.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// Any service account.
    ServiceAccount,
    /// Anybody else, with all parts.
    UserInfo,
    /// Anybody, as before there were modes.
    Plain,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Plain => "",
        }
    }

    fn is_plain(self) -> bool {
        self == Mode::Plain
    }

    fn verb(self) -> Str {
        if self.is_plain() {
            Str::new_static("impersonate")
        } else {
            format_smolstr!("impersonate:{}", self.name())
        }
    }

    /// Whether the mode is meant for this. It stands before every check: the checks below rely on it.
    fn serves(self, wanted: &User, caller: &User) -> bool {
        let name_alone = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = service_account::split(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = caller.extra.get(names::NODE_NAME).map(Vec::as_slice).unwrap_or_default();
                name_alone
                    && node.is_some_and(|node| matches!(own, [only] if only == node))
                    && service_account::split(&caller.name).is_some()
            }
            Mode::ArbitraryNode => name_alone && node.is_some(),
            Mode::ServiceAccount => name_alone && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Plain => true,
        }
    }

    async fn check(self, wanted: &User, caller: &User, checks: &dyn Checks) -> Result<User, Status> {
        // The node's own name is proven already; what the authorizer sees is the same for every node.
        let reduced = (self == Mode::AssociatedNode).then(|| {
            let keys = caller.extra.keys().cloned().collect();
            let extra = BTreeMap::from([(
                Str::new_static("authentication.kubernetes.io/associated-node-keys"),
                keys,
            )]);
            User { extra, ..caller.clone() }
        });
        let caller = reduced.as_ref().unwrap_or(caller);
        if !self.is_plain() {
            checks.request(caller, self.name()).await?;
        }
        let mut user = wanted.clone();
        checks.identity(caller, &self.name_check(&mut user)).await?;
        if !wanted.uid.is_empty() {
            checks.identity(caller, &self.part(AUTHENTICATION, "uids", wanted.uid.clone())).await?;
        }
        self.check_groups(&wanted.groups, caller, checks).await?;
        self.check_extra(&wanted.extra, caller, checks).await?;
        if user.name == names::ANONYMOUS {
            ensure_group(&mut user, names::UNAUTHENTICATED);
        } else if !user.is_in(names::UNAUTHENTICATED) {
            ensure_group(&mut user, names::AUTHENTICATED);
        }
        Ok(user)
    }

    fn part(self, group: &'static str, resource: &'static str, name: impl Into<Str>) -> IdentityCheck {
        IdentityCheck {
            verb: self.verb(),
            group: Str::new_static(group),
            resource: Str::new_static(resource),
            name: name.into(),
            ..IdentityCheck::default()
        }
    }

    /// The group in which users and groups are looked for.
    fn group(self) -> &'static str {
        if self.is_plain() { "" } else { AUTHENTICATION }
    }

    /// The check on the name; nodes and service accounts get the groups they always have.
    fn name_check(self, user: &mut User) -> IdentityCheck {
        if let Some(node) = node_name(&user.name).filter(|_| !self.is_plain()) {
            let name = if self == Mode::AssociatedNode { "*" } else { node };
            let check = self.part(self.group(), "nodes", name);
            user.groups = vec![Str::new_static(names::NODES)];
            return check;
        }
        if let Some((namespace, name)) = service_account::split(&user.name) {
            let check = IdentityCheck {
                namespace: namespace.into(),
                ..self.part(self.group(), "serviceaccounts", name)
            };
            if user.groups.is_empty() {
                user.groups = service_account::groups(namespace);
            }
            return check;
        }
        self.part(self.group(), "users", user.name.clone())
    }

    async fn check_groups(self, groups: &[Str], caller: &User, checks: &dyn Checks) -> Result<(), Status> {
        let check = |name: &str| self.part(self.group(), "groups", name);
        if !self.is_plain() {
            if groups.iter().any(Str::is_empty) {
                let why = "impersonating the empty string group is not allowed";
                return Err(refusal(caller, &check(""), why));
            }
            if groups.iter().any(|group| group == names::MASTERS) {
                let why = "impersonating the system:masters group is not allowed";
                return Err(refusal(caller, &check(names::MASTERS), why));
            }
            if groups.len() >= MANY && checks.identity(caller, &check("*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            checks.identity(caller, &check(group)).await?;
        }
        Ok(())
    }

    async fn check_extra(
        self,
        extra: &BTreeMap<Str, Vec<Str>>,
        caller: &User,
        checks: &dyn Checks,
    ) -> Result<(), Status> {
        let check = |key: &str, value: &str| IdentityCheck {
            subresource: key.into(),
            ..self.part(AUTHENTICATION, "userextras", value)
        };
        if !self.is_plain() {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(refusal(caller, &check("", ""), &why));
            }
            let many = extra.len() >= MANY || extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && checks.identity(caller, &check("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                checks.identity(caller, &check(key, value)).await?;
            }
        }
        Ok(())
    }
}

fn ensure_group(user: &mut User, group: &'static str) {
    if !user.is_in(group) {
        user.groups.push(Str::new_static(group));
    }
}

fn node_name(username: &str) -> Option<&str> {
    let node = username.strip_prefix(names::NODE_PREFIX)?;
    api_names::is_dns1123_subdomain(node).is_empty().then_some(node)
}

fn wrong_extra(key: &str, values: &[Str]) -> Option<String> {
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".to_owned());
    }
    let errors = api_names::is_domain_prefixed_path(&Path::root().field("extra").field("key"), key);
    if !errors.is_empty() {
        return Some(format!("impersonating an invalid key in extra is not allowed: {}", aggregate(&errors)));
    }
    if key.chars().any(char::is_uppercase) {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {}", quote(key)));
    }
    if values.iter().any(Str::is_empty) {
        return Some("impersonating the empty string value in extra is not allowed".to_owned());
    }
    None
}

/// The answer where no authorizer needs to be asked.
fn refusal(caller: &User, check: &IdentityCheck, why: &str) -> Status {
    let resource = if check.subresource.is_empty() {
        check.resource.to_string()
    } else {
        format!("{}/{}", check.resource, check.subresource)
    };
    let what = format!(
        "User {} cannot {} resource {} in API group {} at the cluster scope: {why}",
        quote(&caller.name),
        check.verb,
        quote(&resource),
        quote(&check.group)
    );
    let resource = api::GroupResource::new(check.group.clone(), check.resource.clone());
    Status::forbidden(&resource, &check.name, what)
}

/// The wanted identity as Go prints its struct, which is what clients see.
fn go_syntax(user: &User) -> String {
    let strings = |list: &[Str]| {
        let items: Vec<String> = list.iter().map(|item| quote(item)).collect();
        format!("[]string{{{}}}", items.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { strings(&user.groups) };
    let mut extra = String::from("map[string][]string(nil)");
    if !user.extra.is_empty() {
        let entries: Vec<String> =
            user.extra.iter().map(|(key, values)| format!("{}:{}", quote(key), strings(values))).collect();
        extra.clear();
        let _ = write!(extra, "map[string][]string{{{}}}", entries.join(", "));
    }
    format!(
        "&user.DefaultInfo{{Name:{}, UID:{}, Groups:{groups}, Extra:{extra}}}",
        quote(&user.name),
        quote(&user.uid)
    )
}

#[cfg(test)]
mod tests;

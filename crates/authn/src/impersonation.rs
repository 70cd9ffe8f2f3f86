//! Impersonation: headers name another user, and every part of that identity is authorized separately.
//!
//! Kubernetes has several modes. The constrained ones (`associated-node`, `arbitrary-node`, `serviceaccount`,
//! `user-info`) require two permissions: for the request under the mode (`impersonate-on:MODE:VERB` on the
//! requested resource), and for the identity (`impersonate:MODE`). Plain impersonation requires only the
//! second, with the verb `impersonate`. The modes are tried in this order; the first that is allowed counts,
//! and if none is, the first denial is returned. The mode that was last allowed for a caller is tried first.
//!
//! This module determines the checks; [`ImpersonationChecks`] asks the authorizers.

mod last_modes;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::Pin;

use api::field::{aggregate, quote};
use api::{Status, identities as names, names as api_names};
use value::{Path, Str, format_smolstr};

use crate::caller::{AuthenticationMethod, Caller};
use crate::headers::{Headers, UnreadableHeader, all, extra, extra_key, first};
use crate::user::{User, service_account};

pub use last_modes::LastModes;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// The API group of checks for users, groups, uids and extra attributes.
const AUTHENTICATION: &str = "authentication.k8s.io";

/// With this many groups or extra attributes, constrained modes first check a wildcard permission for all of them.
const WILDCARD_THRESHOLD: usize = 4;

/// The error is the response to the client.
pub type CheckFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// Asks the authorizers for the permissions that an impersonation needs.
pub trait ImpersonationChecks: Send + Sync {
    /// Whether `user` has `check.verb` on a part of an identity.
    fn identity<'a>(&'a self, user: &'a User, check: &'a IdentityCheck) -> CheckFuture<'a>;

    /// Whether `user` may perform the request with the verb `impersonate-on:MODE:VERB`, where VERB is the
    /// request's own.
    fn request<'a>(&'a self, user: &'a User, mode: &'a str) -> CheckFuture<'a>;
}

/// A part of an identity as a resource to authorize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityCheck {
    /// Either `impersonate` or `impersonate:MODE`.
    pub verb: Str,
    pub group: Str,
    /// `users`, `groups`, `uids`, `userextras`, `serviceaccounts` or `nodes`.
    pub resource: Str,
    /// The key of an extra attribute.
    pub subresource: Str,
    /// The namespace of a service account.
    pub namespace: Str,
    pub name: Str,
}

/// The identity that a request wants to impersonate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonation {
    wanted: User,
}

impl Impersonation {
    /// Parses the impersonation headers; `None` if there are none. Other parts without a user name are an
    /// error, and so is a header that is not UTF-8: ignoring it would run the request as the original caller.
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

    /// Whether this is an impersonation header. They are removed before the request is forwarded.
    pub fn is_header(name: &str) -> bool {
        [USER, UID, GROUP].iter().any(|h| name.eq_ignore_ascii_case(h)) || extra_key(name, EXTRA).is_some()
    }

    /// Authorizes the impersonation and returns the impersonated caller.
    pub async fn apply(
        self,
        caller: &Caller,
        checks: &dyn ImpersonationChecks,
        last_modes: &LastModes,
    ) -> Result<Caller, Status> {
        let mut refused = None;
        let name = &caller.user().name;
        let tried_first = last_modes.of(name);
        let others = MODES.into_iter().filter(|mode| Some(*mode) != tried_first);
        for mode in tried_first.into_iter().chain(others) {
            if !mode.applies_to(&self.wanted, caller.user()) {
                continue;
            }
            match mode.check(&self.wanted, caller.user(), checks).await {
                Ok(user) => {
                    if Some(mode) != tried_first {
                        last_modes.set(name, mode);
                    }
                    let constraint = if mode.is_plain() { Str::default() } else { mode.verb() };
                    return Ok(caller.impersonating(user, AuthenticationMethod::Impersonation { constraint }));
                }
                Err(status) => {
                    refused.get_or_insert(status);
                }
            }
        }
        Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }
}

/// The modes in the order in which they are tried.
const MODES: [ImpersonationMode; 5] = [
    ImpersonationMode::AssociatedNode,
    ImpersonationMode::ArbitraryNode,
    ImpersonationMode::ServiceAccount,
    ImpersonationMode::UserInfo,
    ImpersonationMode::Plain,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImpersonationMode {
    /// A service account token impersonates the node on which its pod runs.
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    /// Any other user, including groups, uid and extra attributes.
    UserInfo,
    /// The `impersonate` verb without a constraint.
    Plain,
}

impl ImpersonationMode {
    fn name(self) -> &'static str {
        match self {
            ImpersonationMode::AssociatedNode => "associated-node",
            ImpersonationMode::ArbitraryNode => "arbitrary-node",
            ImpersonationMode::ServiceAccount => "serviceaccount",
            ImpersonationMode::UserInfo => "user-info",
            ImpersonationMode::Plain => "",
        }
    }

    fn is_plain(self) -> bool {
        self == ImpersonationMode::Plain
    }

    fn verb(self) -> Str {
        if self.is_plain() {
            Str::new_static("impersonate")
        } else {
            format_smolstr!("impersonate:{}", self.name())
        }
    }

    /// Whether the mode applies to the identity. The checks below rely on this.
    fn applies_to(self, wanted: &User, caller: &User) -> bool {
        let name_alone = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = service_account::split(&wanted.name);
        match self {
            ImpersonationMode::AssociatedNode => {
                let own = caller.extra.get(names::NODE_NAME).map(Vec::as_slice).unwrap_or_default();
                name_alone
                    && node.is_some_and(|node| matches!(own, [only] if only == node))
                    && service_account::split(&caller.name).is_some()
            }
            ImpersonationMode::ArbitraryNode => name_alone && node.is_some(),
            ImpersonationMode::ServiceAccount => name_alone && account.is_some(),
            ImpersonationMode::UserInfo => node.is_none() && account.is_none(),
            ImpersonationMode::Plain => true,
        }
    }

    async fn check(
        self,
        wanted: &User,
        caller: &User,
        checks: &dyn ImpersonationChecks,
    ) -> Result<User, Status> {
        // The node's name is already proven by the token; authorizers see the same check for every node.
        let reduced = (self == ImpersonationMode::AssociatedNode).then(|| {
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

    /// The API group for checks of users and groups.
    fn group(self) -> &'static str {
        if self.is_plain() { "" } else { AUTHENTICATION }
    }

    /// The check of the name. Adds the implicit groups of nodes and service accounts.
    fn name_check(self, user: &mut User) -> IdentityCheck {
        if let Some(node) = node_name(&user.name).filter(|_| !self.is_plain()) {
            let name = if self == ImpersonationMode::AssociatedNode { "*" } else { node };
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

    async fn check_groups(
        self,
        groups: &[Str],
        caller: &User,
        checks: &dyn ImpersonationChecks,
    ) -> Result<(), Status> {
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
            if groups.len() >= WILDCARD_THRESHOLD && checks.identity(caller, &check("*")).await.is_ok() {
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
        checks: &dyn ImpersonationChecks,
    ) -> Result<(), Status> {
        let check = |key: &str, value: &str| IdentityCheck {
            subresource: key.into(),
            ..self.part(AUTHENTICATION, "userextras", value)
        };
        if !self.is_plain() {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(refusal(caller, &check("", ""), &why));
            }
            let many = extra.len() >= WILDCARD_THRESHOLD
                || extra.values().map(Vec::len).sum::<usize>() >= WILDCARD_THRESHOLD;
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

/// The denial if no authorizer needs to be asked.
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

/// Formats the identity like Go's `%#v`, which clients see in messages.
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

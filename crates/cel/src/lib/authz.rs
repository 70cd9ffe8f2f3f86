//! The `authorizer` variable: checks of what somebody may do.
//!
//! Evaluation never blocks. A check that has no answer yet ends it with [`crate::ErrorKind::NeedsCheck`]; the caller finds
//! the answer, remembers it, and evaluates again.

use std::sync::Arc;

use value::Str;

use super::{Ext, ext, refuse, string};
use crate::env::Builder;
use crate::eval::{CallContext, Error, ErrorKind, EvalResult};
use crate::val::Val;

/// Answers checks, as far as it knows.
pub trait Authorizer: Sync {
    /// The answer, or `None` if there is none yet.
    fn check(&self, check: &AuthorizerCheck) -> Option<AuthorizerDecision>;
}

/// A question: may the caller (or a service account) do this?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizerCheck {
    /// The namespace and name of the service account asked about instead of the caller.
    pub service_account: Option<(Str, Str)>,
    /// The verb.
    pub verb: Str,
    /// What it is about.
    pub target: CheckTarget,
}

/// What a check is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckTarget {
    /// A path outside the resource space.
    Path(Str),
    /// A resource.
    Resource(ResourceTarget),
}

/// The resource a check is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceTarget {
    /// The API group.
    pub group: Str,
    /// The resource.
    pub resource: Str,
    /// The subresource.
    pub subresource: Str,
    /// The namespace.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// The field selector, as written.
    pub field_selector: Option<Str>,
    /// The label selector, as written.
    pub label_selector: Option<Str>,
}

/// The answer to a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizerDecision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: Str,
    /// What went wrong, if something did.
    pub error: Option<Str>,
}

/// The values that the methods of `authorizer` give.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AuthzVal {
    /// `authorizer`, or that of a service account.
    Authorizer(Option<(Str, Str)>),
    /// A path to check.
    Path(Option<(Str, Str)>, Str),
    /// A group to check in.
    Group(Option<(Str, Str)>, Str),
    /// A resource to check.
    Resource(Option<(Str, Str)>, Arc<ResourceTarget>),
    /// An answer.
    Decision(Arc<AuthorizerDecision>),
}

impl AuthzVal {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            AuthzVal::Authorizer(_) => "kubernetes.authorization.Authorizer",
            AuthzVal::Path(..) => "kubernetes.authorization.PathCheck",
            AuthzVal::Group(..) => "kubernetes.authorization.GroupCheck",
            AuthzVal::Resource(..) => "kubernetes.authorization.ResourceCheck",
            AuthzVal::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

/// The type of the `authorizer` variable.
pub fn authorizer_type() -> crate::Type {
    crate::Type::Struct(Str::new_static("kubernetes.authorization.Authorizer"))
}

/// The type of the `authorizer.requestResource` variable.
pub fn resource_check_type() -> crate::Type {
    crate::Type::Struct(Str::new_static("kubernetes.authorization.ResourceCheck"))
}

/// The value of the `authorizer` variable.
pub fn authorizer<'a>() -> Val<'a> {
    Val::ext(Ext::Authz(AuthzVal::Authorizer(None)))
}

/// The value of the `authorizer.requestResource` variable.
pub fn request_resource<'a>(target: ResourceTarget) -> Val<'a> {
    Val::ext(Ext::Authz(AuthzVal::Resource(None, Arc::new(target))))
}

/// Adds the methods.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "path",
        &[(
            "authorizer_path",
            "kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.PathCheck",
            |_, args| match val(args)? {
                AuthzVal::Authorizer(who) => {
                    let path = string(args, 1)?;
                    if path.trim().is_empty() {
                        return Err(Error::new("path must not be empty"));
                    }
                    Ok(authz(AuthzVal::Path(who.clone(), path.into())))
                }
                _ => refuse(),
            },
        )],
    );
    b.function(
        "group",
        &[(
            "authorizer_group",
            "kubernetes.authorization.Authorizer.(string) -> kubernetes.authorization.GroupCheck",
            |_, args| match val(args)? {
                AuthzVal::Authorizer(who) => Ok(authz(AuthzVal::Group(who.clone(), string(args, 1)?.into()))),
                _ => refuse(),
            },
        )],
    );
    b.function(
        "serviceAccount",
        &[(
            "authorizer_serviceaccount",
            "kubernetes.authorization.Authorizer.(string, string) -> kubernetes.authorization.Authorizer",
            service_account,
        )],
    );
    b.function(
        "resource",
        &[(
            "groupcheck_resource",
            "kubernetes.authorization.GroupCheck.(string) -> kubernetes.authorization.ResourceCheck",
            |_, args| match val(args)? {
                AuthzVal::Group(who, group) => {
                    if string(args, 1)?.trim().is_empty() {
                        return Err(Error::new("resource must not be empty"));
                    }
                    let target = ResourceTarget {
                        group: group.clone(),
                        resource: string(args, 1)?.into(),
                        ..Default::default()
                    };
                    Ok(authz(AuthzVal::Resource(who.clone(), Arc::new(target))))
                }
                _ => refuse(),
            },
        )],
    );
    macro_rules! refine {
        ($name:literal, $id:literal, $field:ident) => {
            b.function($name, &[(
                $id,
                "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.ResourceCheck",
                |_, args| refine(args, |target, text| target.$field = text.into()),
            )]);
        };
    }
    refine!("subresource", "resourcecheck_subresource", subresource);
    refine!("namespace", "resourcecheck_namespace", namespace);
    refine!("name", "resourcecheck_name", name);
    b.function(
        "check",
        &[
            (
                "pathcheck_check",
                "kubernetes.authorization.PathCheck.(string) -> kubernetes.authorization.Decision",
                check,
            ),
            (
                "resourcecheck_check",
                "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.Decision",
                check,
            ),
        ],
    );
    b.function(
        "errored",
        &[("decision_errored", "kubernetes.authorization.Decision.() -> bool", |_, args| {
            Ok(Val::Bool(decision(args)?.error.is_some()))
        })],
    );
    b.function(
        "error",
        &[("decision_error", "kubernetes.authorization.Decision.() -> string", |_, args| {
            Ok(Val::string(decision(args)?.error.as_ref().map_or("", |error| error.as_str())))
        })],
    );
    b.function(
        "allowed",
        &[("decision_allowed", "kubernetes.authorization.Decision.() -> bool", |_, args| {
            Ok(Val::Bool(decision(args)?.allowed))
        })],
    );
    b.function(
        "reason",
        &[("decision_reason", "kubernetes.authorization.Decision.() -> string", |_, args| {
            Ok(Val::string(decision(args)?.reason.as_str()))
        })],
    );
}

/// Adds the selectors.
pub(crate) fn add_selectors(b: &mut Builder) {
    b.function(
        "fieldSelector",
        &[(
            "authorizer_fieldselector",
            "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.ResourceCheck",
            |_, args| {
                refine(args, |target, text| target.field_selector = (!text.is_empty()).then(|| text.into()))
            },
        )],
    );
    b.function(
        "labelSelector",
        &[(
            "authorizer_labelselector",
            "kubernetes.authorization.ResourceCheck.(string) -> kubernetes.authorization.ResourceCheck",
            |_, args| {
                refine(args, |target, text| target.label_selector = (!text.is_empty()).then(|| text.into()))
            },
        )],
    );
}

fn authz<'a>(val: AuthzVal) -> Val<'a> {
    Val::ext(Ext::Authz(val))
}

fn val<'v>(args: &'v [Val<'_>]) -> Result<&'v AuthzVal, Error> {
    match ext(args, 0)? {
        Ext::Authz(val) => Ok(val),
        _ => Err(Error::no_such_overload()),
    }
}

fn decision<'v>(args: &'v [Val<'_>]) -> Result<&'v AuthorizerDecision, Error> {
    match val(args)? {
        AuthzVal::Decision(decision) => Ok(decision),
        _ => Err(Error::no_such_overload()),
    }
}

fn refine<'a>(args: &[Val<'a>], set: impl FnOnce(&mut ResourceTarget, &str)) -> EvalResult<'a> {
    match val(args)? {
        AuthzVal::Resource(who, target) => {
            let mut target = (**target).clone();
            set(&mut target, string(args, 1)?);
            Ok(authz(AuthzVal::Resource(who.clone(), Arc::new(target))))
        }
        _ => refuse(),
    }
}

fn service_account<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let AuthzVal::Authorizer(_) = val(args)? else { return refuse() };
    let (namespace, name) = (string(args, 1)?, string(args, 2)?);
    let label = |text: &str, most: usize, dots: bool| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || (dots && b == b'.');
        !text.is_empty()
            && text.len() <= most
            && text.bytes().all(plain)
            && text.split('.').all(|part| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-'))
    };
    if !label(name, 253, true) {
        return Err(Error::new("Invalid service account name"));
    }
    if !label(namespace, 63, false) {
        return Err(Error::new("Invalid service account namespace"));
    }
    Ok(authz(AuthzVal::Authorizer(Some((namespace.into(), name.into())))))
}

fn check<'a>(cx: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let (who, target) = match val(args)? {
        AuthzVal::Path(who, path) => (who, CheckTarget::Path(path.clone())),
        AuthzVal::Resource(who, target) => (who, CheckTarget::Resource((**target).clone())),
        _ => return refuse(),
    };
    let check = AuthorizerCheck { service_account: who.clone(), verb: string(args, 1)?.into(), target };
    match cx.authorizer.and_then(|authorizer| authorizer.check(&check)) {
        Some(decision) => Ok(authz(AuthzVal::Decision(Arc::new(decision)))),
        None => Err(Error::of(ErrorKind::NeedsCheck(Box::new(check)))),
    }
}

//! The authorizer library: authorization checks in expressions.
//!
//! Evaluation never blocks. A check without a decision ends it with [`crate::ErrorKind::NeedsCheck`]; the caller
//! decides the check, records the decision, and evaluates again.

use std::sync::Arc;

use value::Str;

use super::{Ext, ext, refuse, string};
use crate::env::Builder;
use crate::eval::{CallContext, Error, ErrorKind, EvalResult};
use crate::val::Val;

/// Decides authorization checks from recorded decisions.
pub trait RecordedDecisions: Sync {
    /// The decision, or `None` if it is not known yet.
    fn check(&self, check: &AuthorizerCheck) -> Option<CheckDecision>;
}

/// An authorization check: may the caller, or a service account, perform this request?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizerCheck {
    /// Namespace and name of the service account to check instead of the caller.
    pub service_account: Option<(Str, Str)>,
    /// Verb of the request, such as `get`.
    pub verb: Str,
    /// Path or resource of the request.
    pub target: CheckTarget,
}

/// The path or resource that a check is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckTarget {
    /// A non-resource path such as `/healthz`.
    Path(Str),
    /// A resource request, possibly of a single object.
    Resource(ResourceTarget),
}

/// Attributes of a resource request. Empty strings mean unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceTarget {
    /// API group; empty for the core group.
    pub group: Str,
    /// Plural resource name, such as `pods`.
    pub resource: Str,
    /// Subresource, such as `status`.
    pub subresource: Str,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: Str,
    /// Object name; empty for collections.
    pub name: Str,
    /// Field selector, as written in the expression.
    pub field_selector: Option<Str>,
    /// Label selector, as written in the expression.
    pub label_selector: Option<Str>,
}

/// The decision of an authorization check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckDecision {
    /// True if the request is allowed.
    pub allowed: bool,
    /// Reason that the authorizer gave.
    pub reason: Str,
    /// Error of the authorizer, if the check failed.
    pub error: Option<Str>,
}

/// Values of the authorizer library.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AuthzVal {
    /// The authorizer of the caller, or of a service account (namespace, name).
    Authorizer(Option<(Str, Str)>),
    /// A check of a non-resource path.
    Path(Option<(Str, Str)>, Str),
    /// A check of an API group without a resource yet.
    Group(Option<(Str, Str)>, Str),
    /// A check of a resource request.
    Resource(Option<(Str, Str)>, Arc<ResourceTarget>),
    /// The result of a decided check.
    Decision(Arc<CheckDecision>),
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

/// CEL type of the `authorizer` variable.
pub fn authorizer_type() -> crate::Type {
    crate::Type::Struct(Str::new_static("kubernetes.authorization.Authorizer"))
}

/// CEL type of the `authorizer.requestResource` variable.
pub fn resource_check_type() -> crate::Type {
    crate::Type::Struct(Str::new_static("kubernetes.authorization.ResourceCheck"))
}

/// Value of the `authorizer` variable.
pub fn authorizer<'a>() -> Val<'a> {
    Val::ext(Ext::Authz(AuthzVal::Authorizer(None)))
}

/// Value of the `authorizer.requestResource` variable.
pub fn request_resource<'a>(target: ResourceTarget) -> Val<'a> {
    Val::ext(Ext::Authz(AuthzVal::Resource(None, Arc::new(target))))
}

/// Declares the methods of authorizers, checks and decisions.
pub(crate) fn add(b: &mut Builder) {
    add_authorizer(b);
    add_checks(b);
    add_decision(b);
}

fn add_authorizer(b: &mut Builder) {
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
}

fn add_checks(b: &mut Builder) {
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
}

fn add_decision(b: &mut Builder) {
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

/// Declares `fieldSelector` and `labelSelector`.
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

fn decision<'v>(args: &'v [Val<'_>]) -> Result<&'v CheckDecision, Error> {
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

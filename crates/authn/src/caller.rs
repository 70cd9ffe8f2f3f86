//! [`Caller`]: an authenticated user.

use std::sync::{Arc, Weak};

use api::identities as names;
use value::Str;

use crate::user::{User, service_account};

/// The user of a request. Only this crate can create one. Cheap to clone.
///
/// ```compile_fail,E0423
/// fn forged(inner: std::sync::Arc<authn::User>) -> authn::Caller {
///     authn::Caller(inner)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(Arc<CallerInner>);

#[derive(Debug, PartialEq, Eq)]
struct CallerInner {
    user: User,
    via: AuthenticationMethod,
    /// The original caller if `user` is impersonated, for audit.
    impersonator: Option<Caller>,
}

/// Recognizes a caller without keeping its user in memory.
#[derive(Clone, Debug, Default)]
pub struct CallerHandle(Weak<CallerInner>);

impl CallerHandle {
    /// Reports whether this is a handle of `caller` or of one of its clones. An equal caller that was authenticated anew is another one.
    pub fn is_of(&self, caller: &Caller) -> bool {
        // The handle keeps the allocation, so that no other caller can have its address.
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&caller.0))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationMethod {
    Anonymous,
    ClientCertificate,
    StaticToken,
    ServiceAccountToken,
    BootstrapToken,
    /// Headers of a front proxy with a verified certificate.
    FrontProxy,
    /// A component of this process.
    Internal,
    /// Impersonation by another caller. `constraint` is the verb that allowed it; empty for plain
    /// `impersonate`.
    Impersonation {
        /// The `authenticationMetadata.impersonationConstraint` of the audit event.
        constraint: Str,
    },
}

/// Components of this process that send requests through the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalIdentity<'a> {
    /// The server itself (`system:apiserver`, a member of `system:masters`).
    ApiServer,
    /// A controller, with the service account that it has in Kubernetes.
    ServiceAccount {
        /// Always `kube-system` for controllers.
        namespace: &'a str,
        name: &'a str,
    },
    /// The in-process scheduler (`system:kube-scheduler`).
    Scheduler,
}

impl Caller {
    /// For bootstrap and the in-process client of the controllers. Requests from outside cannot reach this.
    pub fn internal(identity: InternalIdentity<'_>) -> Self {
        let user = match identity {
            InternalIdentity::ApiServer => User::named(names::API_SERVER).in_groups([names::MASTERS]),
            InternalIdentity::ServiceAccount { namespace, name } => {
                service_account::user(namespace, name, "")
            }
            InternalIdentity::Scheduler => User::named(names::SCHEDULER),
        };
        Self::authenticated(user, AuthenticationMethod::Internal)
    }

    /// Adds `system:authenticated`, unless the credential already determines membership in that group.
    pub(crate) fn authenticated(mut user: User, via: AuthenticationMethod) -> Self {
        let already = user.name == names::ANONYMOUS
            || user.is_in(names::AUTHENTICATED)
            || user.is_in(names::UNAUTHENTICATED);
        if !already {
            user.groups.push(Str::new_static(names::AUTHENTICATED));
        }
        Caller(Arc::new(CallerInner { user, via, impersonator: None }))
    }

    /// The impersonated user. [`crate::impersonation`] has checked the permission.
    pub(crate) fn impersonating(&self, user: User, via: AuthenticationMethod) -> Self {
        Caller(Arc::new(CallerInner { user, via, impersonator: Some(self.clone()) }))
    }

    pub(crate) fn anonymous() -> Self {
        let user = User::named(names::ANONYMOUS).in_groups([names::UNAUTHENTICATED]);
        Caller(Arc::new(CallerInner { user, via: AuthenticationMethod::Anonymous, impersonator: None }))
    }

    /// A handle that recognizes this caller and its clones.
    pub fn handle(&self) -> CallerHandle {
        CallerHandle(Arc::downgrade(&self.0))
    }

    /// The address of the caller in memory, which its clones share, as a hash for caches.
    pub fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub fn user(&self) -> &User {
        &self.0.user
    }

    pub fn name(&self) -> &Str {
        &self.0.user.name
    }

    pub fn uid(&self) -> &Str {
        &self.0.user.uid
    }

    pub fn groups(&self) -> &[Str] {
        &self.0.user.groups
    }

    pub fn via(&self) -> &AuthenticationMethod {
        &self.0.via
    }

    /// The original caller if this one is impersonated.
    pub fn impersonator(&self) -> Option<&Caller> {
        self.0.impersonator.as_ref()
    }

    pub fn is_anonymous(&self) -> bool {
        self.0.user.is_anonymous()
    }
}

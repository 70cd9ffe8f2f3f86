//! [`Caller`]: somebody whose identity this crate has checked.

use std::sync::Arc;

use value::Str;

use crate::user::{User, names, service_account};

/// Whoever makes a request. Only this crate can make one; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(Arc<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    user: User,
    via: Via,
    /// Who really called, when `user` is impersonated; kept for audit.
    impersonator: Option<Caller>,
}

/// How the caller was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// Not at all: no credentials.
    Anonymous,
    /// A client certificate.
    ClientCertificate,
    /// A line of the static token file.
    StaticToken,
    /// A signed service-account token.
    ServiceAccountToken,
    /// Headers set by a front proxy that proved itself.
    FrontProxy,
    /// Part of this process.
    Internal,
    /// Another caller was allowed to act as this one. The constraint is the verb that allowed it; empty for plain
    /// `impersonate`.
    Impersonation {
        /// As audit shows it.
        constraint: Str,
    },
}

/// The parts of this process that write through the pipeline like everybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalIdentity<'a> {
    /// The server itself (`system:apiserver`, always allowed).
    ApiServer,
    /// A controller, under the service account Kubernetes gives it.
    ServiceAccount {
        /// The namespace, `kube-system` for controllers.
        namespace: &'a str,
        /// The name.
        name: &'a str,
    },
    /// The scheduler (`system:kube-scheduler`).
    Scheduler,
}

impl Caller {
    /// A part of this process. For bootstrap and the controllers' in-process client alone: no request can reach this.
    pub fn internal(identity: InternalIdentity<'_>) -> Self {
        let user = match identity {
            InternalIdentity::ApiServer => User::named(names::API_SERVER).in_groups([names::MASTERS]),
            InternalIdentity::ServiceAccount { namespace, name } => {
                service_account::user(namespace, name, "")
            }
            InternalIdentity::Scheduler => User::named(names::SCHEDULER),
        };
        Self::authenticated(user, Via::Internal)
    }

    /// A user recognised by `via`, in `system:authenticated` unless the credential has already said one way or the other.
    pub(crate) fn authenticated(mut user: User, via: Via) -> Self {
        let already = user.name == names::ANONYMOUS
            || user.is_in(names::AUTHENTICATED)
            || user.is_in(names::UNAUTHENTICATED);
        if !already {
            user.groups.push(Str::new_static(names::AUTHENTICATED));
        }
        Caller(Arc::new(Inner { user, via, impersonator: None }))
    }

    /// Somebody else whom this caller may act as; for [`crate::impersonation`] alone, which has checked it.
    pub(crate) fn as_somebody(&self, user: User, via: Via) -> Self {
        Caller(Arc::new(Inner { user, via, impersonator: Some(self.clone()) }))
    }

    /// Nobody in particular.
    pub(crate) fn anonymous() -> Self {
        let user = User::named(names::ANONYMOUS).in_groups([names::UNAUTHENTICATED]);
        Caller(Arc::new(Inner { user, via: Via::Anonymous, impersonator: None }))
    }

    /// Who is calling.
    pub fn user(&self) -> &User {
        &self.0.user
    }

    /// The user's name.
    pub fn name(&self) -> &Str {
        &self.0.user.name
    }

    /// The user's uid.
    pub fn uid(&self) -> &Str {
        &self.0.user.uid
    }

    /// The user's groups.
    pub fn groups(&self) -> &[Str] {
        &self.0.user.groups
    }

    /// How the caller was recognised.
    pub fn via(&self) -> &Via {
        &self.0.via
    }

    /// Who really called, if this caller is impersonated.
    pub fn impersonator(&self) -> Option<&Caller> {
        self.0.impersonator.as_ref()
    }

    /// Whether nobody in particular is calling.
    pub fn is_anonymous(&self) -> bool {
        self.0.user.is_anonymous()
    }
}

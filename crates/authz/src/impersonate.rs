//! Authorizes impersonation with the chain of authorizers.

use api::Status;
use authn::impersonation::{CheckFuture, IdentityCheck, ImpersonationChecks, LastModes};
use authn::{Caller, Headers, User, impersonation::Impersonation};
use value::format_smolstr;

use crate::attributes::AuthorizationAttributes;
use crate::chain::AuthorizerChain;
use crate::decision::Decision;
use crate::forbidden::forbidden;

/// The user that a request runs as: the caller itself, or the impersonated user if the chain allows it.
/// `attributes` are those of the request; `last` remembers the mode that was allowed last.
pub async fn impersonate(
    chain: &AuthorizerChain,
    caller: &Caller,
    headers: &dyn Headers,
    attributes: &AuthorizationAttributes,
    last: &LastModes,
) -> Result<Caller, Status> {
    match Impersonation::from_headers(headers)? {
        None => Ok(caller.clone()),
        Some(wanted) => wanted.apply(caller, &ChainChecks { chain, attributes }, last).await,
    }
}

struct ChainChecks<'a> {
    chain: &'a AuthorizerChain,
    attributes: &'a AuthorizationAttributes,
}

impl ChainChecks<'_> {
    /// An authorizer error denies; its text is part of the message.
    async fn authorize(&self, user: &User, attributes: &AuthorizationAttributes) -> Result<(), Status> {
        let answer = self.chain.decide(user, attributes).await;
        if answer.decision == Decision::Allow {
            return Ok(());
        }
        Err(forbidden(&user.name, attributes, &answer.why()))
    }
}

impl ImpersonationChecks for ChainChecks<'_> {
    fn identity<'a>(&'a self, user: &'a User, check: &'a IdentityCheck) -> CheckFuture<'a> {
        let attributes = AuthorizationAttributes {
            verb: check.verb.clone(),
            group: check.group.clone(),
            version: "v1".into(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
            is_resource: true,
            ..AuthorizationAttributes::default()
        };
        Box::pin(async move { self.authorize(user, &attributes).await })
    }

    fn request<'a>(&'a self, user: &'a User, mode: &'a str) -> CheckFuture<'a> {
        let verb = format_smolstr!("impersonate-on:{mode}:{}", self.attributes.verb);
        let attributes = AuthorizationAttributes { verb, ..self.attributes.clone() };
        Box::pin(async move { self.authorize(user, &attributes).await })
    }
}

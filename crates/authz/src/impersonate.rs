//! Impersonation's checks, asked of the chain.

use api::Status;
use authn::impersonation::{Checked, Checks, IdentityCheck, LastModes};
use authn::{Caller, Headers, User, impersonation::Impersonation};
use value::format_smolstr;

use crate::attributes::Attributes;
use crate::chain::Chain;
use crate::decision::Decision;
use crate::forbidden::forbidden;

/// The caller a request is to be run as: itself, or whom its headers name if the chain lets it. `attributes` is what the request
/// asks for; `last` remembers by which mode callers were let.
pub async fn impersonate(
    chain: &Chain,
    caller: &Caller,
    headers: &dyn Headers,
    attributes: &Attributes,
    last: &LastModes,
) -> Result<Caller, Status> {
    match Impersonation::from_headers(headers)? {
        None => Ok(caller.clone()),
        Some(wanted) => wanted.apply(caller, &ChainChecks { chain, attributes }, last).await,
    }
}

struct ChainChecks<'a> {
    chain: &'a Chain,
    attributes: &'a Attributes,
}

impl ChainChecks<'_> {
    /// An error on the way refuses, with its words in the message.
    async fn ask(&self, user: &User, attributes: &Attributes) -> Result<(), Status> {
        let answer = self.chain.decide(user, attributes).await;
        if answer.decision == Decision::Allow {
            return Ok(());
        }
        let reason = answer.reason.to_string();
        let why = match answer.error {
            Some(error) if reason.is_empty() => error,
            Some(error) => format!("{error}: {reason}"),
            None => reason,
        };
        Err(forbidden(&user.name, attributes, &why))
    }
}

impl Checks for ChainChecks<'_> {
    fn identity<'a>(&'a self, user: &'a User, check: &'a IdentityCheck) -> Checked<'a> {
        let attributes = Attributes {
            verb: check.verb.clone(),
            group: check.group.clone(),
            version: "v1".into(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
            is_resource: true,
            ..Attributes::default()
        };
        Box::pin(async move { self.ask(user, &attributes).await })
    }

    fn request<'a>(&'a self, user: &'a User, mode: &'a str) -> Checked<'a> {
        let verb = format_smolstr!("impersonate-on:{mode}:{}", self.attributes.verb);
        let attributes = Attributes { verb, ..self.attributes.clone() };
        Box::pin(async move { self.ask(user, &attributes).await })
    }
}

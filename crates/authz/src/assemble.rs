//! A [`Configuration`] and the authorizers that outlive it → a [`Chain`].

use std::sync::Arc;

use crate::abac::Policies;
use crate::chain::{Authorizer, Chain, Step};
use crate::config::{AuthorizerType, Configuration, WebhookConfiguration};
use crate::node::NodeAuthorizer;
use crate::observe::Observer;
use crate::rbac;
use crate::webhook::{Sender, Webhook};

/// The authorizers that are made once, at start, and stay across reloads. One that was not made cannot be configured later.
#[derive(Clone)]
pub struct Standing {
    /// Roles and bindings.
    pub rbac: Option<Arc<rbac::Index>>,
    /// Nodes.
    pub node: Option<Arc<NodeAuthorizer>>,
    /// The policy file.
    pub abac: Option<Arc<Policies>>,
    /// Who hears of decisions.
    pub observer: Arc<dyn Observer>,
}

/// Makes what sends to a webhook, by the webhook's name; its error is the configuration's.
pub type MakeSender<'a> = dyn Fn(&str, &WebhookConfiguration) -> Result<Arc<dyn Sender>, String> + 'a;

/// Builds the chain.
pub fn assemble(
    configuration: &Configuration,
    standing: &Standing,
    sender: &MakeSender<'_>,
) -> Result<Chain, String> {
    let absent = |kind: AuthorizerType| {
        format!(
            "authorizer type {} is not allowed if it was not enabled at initial server startup",
            kind.as_str()
        )
    };
    let mut steps = Vec::new();
    for configured in &configuration.authorizers {
        let authorizer = match (configured.kind, &configured.webhook) {
            (AuthorizerType::AlwaysAllow, _) => Some(Authorizer::AlwaysAllow),
            (AuthorizerType::AlwaysDeny, _) => Some(Authorizer::AlwaysDeny),
            (AuthorizerType::Rbac, _) => standing.rbac.clone().map(Authorizer::Rbac),
            (AuthorizerType::Node, _) => standing.node.clone().map(Authorizer::Node),
            (AuthorizerType::Abac, _) => standing.abac.clone().map(Authorizer::Abac),
            (AuthorizerType::Webhook, None) => None,
            (AuthorizerType::Webhook, Some(webhook)) => {
                let sender = sender(&configured.name, webhook)?;
                let observer = standing.observer.clone();
                let webhook = Webhook::new(configured.name.clone(), webhook, sender, observer);
                Some(Authorizer::Webhook(Arc::new(webhook)))
            }
        };
        let authorizer = authorizer.ok_or_else(|| absent(configured.kind))?;
        steps.push(Step { name: configured.name.clone(), authorizer });
    }
    let chain = Chain::new(steps).map_err(|error| error.to_string())?;
    Ok(chain.observed_by(standing.observer.clone()))
}

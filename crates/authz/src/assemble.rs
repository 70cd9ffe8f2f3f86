//! Builds an [`AuthorizerChain`] from an [`AuthorizationConfiguration`].

use std::sync::Arc;

use crate::abac::AbacPolicies;
use crate::chain::{Authorizer, AuthorizerChain, ChainStep};
use crate::config::{AuthorizationConfiguration, AuthorizerType, WebhookConfiguration};
use crate::node::NodeAuthorizer;
use crate::observe::AuthorizationObserver;
use crate::rbac;
use crate::webhook::{ReviewTransport, WebhookAuthorizer};

/// Authorizers that are created once at startup and shared by all chains, across reloads of the
/// configuration. One that is `None` cannot be configured later.
#[derive(Clone)]
pub struct SharedAuthorizers {
    pub rbac: Option<Arc<rbac::RbacIndex>>,
    pub node: Option<Arc<NodeAuthorizer>>,
    pub abac: Option<Arc<AbacPolicies>>,
    pub observer: Arc<dyn AuthorizationObserver>,
}

/// Creates the client for a webhook, given its name. The error is reported as an error of the configuration.
pub type MakeSender<'a> =
    dyn Fn(&str, &WebhookConfiguration) -> Result<Arc<dyn ReviewTransport>, String> + 'a;

pub fn assemble(
    configuration: &AuthorizationConfiguration,
    shared: &SharedAuthorizers,
    sender: &MakeSender<'_>,
) -> Result<AuthorizerChain, String> {
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
            (AuthorizerType::Rbac, _) => shared.rbac.clone().map(Authorizer::Rbac),
            (AuthorizerType::Node, _) => shared.node.clone().map(Authorizer::Node),
            (AuthorizerType::Abac, _) => shared.abac.clone().map(Authorizer::Abac),
            (AuthorizerType::Webhook, None) => None,
            (AuthorizerType::Webhook, Some(webhook)) => {
                let sender = sender(&configured.name, webhook)?;
                let observer = shared.observer.clone();
                let webhook = WebhookAuthorizer::new(configured.name.clone(), webhook, sender, observer);
                Some(Authorizer::Webhook(Arc::new(webhook)))
            }
        };
        let authorizer = authorizer.ok_or_else(|| absent(configured.kind))?;
        steps.push(ChainStep { name: configured.name.clone(), authorizer });
    }
    let chain = AuthorizerChain::new(steps).map_err(|error| error.to_string())?;
    Ok(chain.observed_by(shared.observer.clone()))
}

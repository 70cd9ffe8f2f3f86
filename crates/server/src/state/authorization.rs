//! Authorization: the configured chain of authorizers, and the informers that feed RBAC and the Node authorizer.

use std::sync::Arc;

use api::Status;
use arc_swap::ArcSwap;
use authn::{Caller, Via};
use authz::{Attributes, Chain, Permit, Refusal, rbac};

use crate::authorization::AuthorizationMetrics;
use crate::call::Call;
use crate::catalog::ServedResource;
use crate::informer::RoleInformers;

/// The authorization subsystem.
pub struct Authorizers {
    /// Decides for clients. It is replaced when the authorization configuration file changes.
    pub chain: Arc<ArcSwap<Chain>>,
    /// Decides for parts of this process, by RBAC alone: no webhook is called for them, and no configuration of the chain can
    /// lock the server out of itself.
    pub internal: Arc<Chain>,
    pub metrics: Arc<AuthorizationMetrics>,
    /// The stored roles and bindings, indexed.
    pub rbac: Arc<rbac::Index>,
    /// How far [`Authorizers::rbac`] follows the store.
    pub(crate) roles: RoleInformers,
}

impl Authorizers {
    /// The chain that decides for `caller`.
    pub fn chain_for(&self, caller: &Caller) -> Arc<Chain> {
        match caller.via() {
            Via::Internal => Arc::clone(&self.internal),
            _ => self.chain.load_full(),
        }
    }

    /// Authorizes the creation of the object that a PUT names, when there is no such object yet.
    pub async fn authorize_create(&self, call: &Call, kind: &ServedResource) -> Result<Permit, Status> {
        let info = &call.info;
        let attributes = Attributes {
            path: info.path.as_str().into(),
            version: info.version.clone(),
            ..Attributes::resource("create", info.group.clone(), kind.resource.resource.clone())
                .in_namespace(info.namespace.clone())
                .named(info.name.clone())
        };
        self.chain_for(call.caller()).authorize(call.caller(), attributes).await.map_err(|refusal| {
            match refusal {
                Refusal::Denied { status, .. } => status,
                // The cause may name internals, so the client does not get it.
                Refusal::Failed { .. } => Status::internal("the request could not be authorized"),
            }
        })
    }
}

//! Authorization: the configured chain of authorizers, and the informers that feed RBAC and the Node authorizer.

use std::sync::Arc;

use api::Status;
use arc_swap::ArcSwap;
use authn::names::MASTERS;
use authn::{AuthenticationMethod, Caller};
use authz::config::AuthorizerType;
use authz::node::{self, NodeAuthorizer};
use authz::{AuthorizationAttributes, Authorizer, AuthorizerChain, ChainStep, Denial, Permit, rbac};
use authz_config::{AuthorizationMetrics, LoadedAuthorization, follow};
use catalog::ServedResource;
use catalog::keys;
use runtime::identity;
use tokio::sync::watch;

use super::Storage;
use crate::call::Call;
use crate::config::ConfigError;
use crate::informer::{RoleInformers, UnreadableConcern, start_informer};
use crate::metrics::Metrics;

pub struct Authorizers {
    /// Decides for clients, and for the built-in controllers and the scheduler, which act for users: who may not delete an object must not
    /// have the garbage collector delete it. It is replaced when the authorization configuration file changes.
    pub chain: Arc<ArcSwap<AuthorizerChain>>,
    /// Decides for the server itself, by RBAC alone: no webhook is called for it, and no configuration of the chain can lock it out.
    pub internal: Arc<AuthorizerChain>,
    pub metrics: Arc<AuthorizationMetrics>,
    /// The stored roles and bindings, indexed.
    pub rbac: Arc<rbac::RbacIndex>,
    /// How far [`Authorizers::rbac`] follows the store.
    pub(crate) roles: RoleInformers,
}

impl Authorizers {
    /// The chain that decides for `caller`.
    pub fn chain_for(&self, caller: &Caller) -> Arc<AuthorizerChain> {
        match caller.via() {
            AuthenticationMethod::Internal if caller.user().is_in(MASTERS) => Arc::clone(&self.internal),
            _ => self.chain.load_full(),
        }
    }

    /// Authorizes the creation of the object that a PUT names, when there is no such object yet.
    pub async fn authorize_create(&self, call: &Call, kind: &ServedResource) -> Result<Permit, Status> {
        let info = &call.info;
        let attributes = AuthorizationAttributes {
            path: info.path.as_str().into(),
            version: info.version.clone(),
            ..AuthorizationAttributes::resource("create", info.group.clone(), kind.resource.resource.clone())
                .in_namespace(info.namespace.clone())
                .named(info.name.clone())
        };
        self.chain_for(call.caller()).authorize(call.caller(), attributes).await.map_err(|refusal| {
            match refusal {
                Denial::Denied { status, .. } => status,
                // The cause may name internals, so the client does not get it.
                Denial::Failed { .. } => Status::internal("the request could not be authorized"),
            }
        })
    }
}

impl Authorizers {
    /// Starts the informers of the authorizers in use, builds the chain, and watches the files that it was configured by until
    /// `stopped`.
    pub(crate) fn build(
        configuration: LoadedAuthorization,
        storage: &Storage,
        metrics: &Metrics,
        stopped: watch::Receiver<bool>,
    ) -> Result<Authorizers, ConfigError> {
        let index = Arc::new(rbac::RbacIndex::default());
        let roles = start_rbac_informers(storage, &index);
        let node = configuration.uses(AuthorizerType::Node).then(|| start_node_informers(storage));
        let metrics = AuthorizationMetrics::new(metrics.registry(), &identity::id(&identity::host()))
            .map_err(ConfigError::other)?;
        let (chain, parts, files) = configuration.build_chain(&index, node, Arc::clone(&metrics))?;
        let chain = Arc::new(ArcSwap::from_pointee(chain));
        let internal = ChainStep { name: "rbac".into(), authorizer: Authorizer::Rbac(Arc::clone(&index)) };
        let internal = Arc::new(AuthorizerChain::new(vec![internal]).map_err(ConfigError::other)?);
        follow(configuration, parts, files, &chain, stopped);
        Ok(Authorizers { chain, internal, metrics, rbac: index, roles })
    }
}

/// Keeps the index equal to the stored roles and bindings. The kind of an object follows from its storage directory.
fn start_rbac_informers(storage: &Storage, index: &Arc<rbac::RbacIndex>) -> RoleInformers {
    let informer = |plural, prefix, kind: rbac::RbacKind| {
        let closed = Arc::clone(index);
        let notes = UnreadableConcern::of_grants(&storage.unreadable, move || closed.close());
        let index = Arc::clone(index);
        (plural, start_informer(&storage.store, prefix, notes, move |old, new| index.apply(kind, old, new)))
    };
    RoleInformers([
        informer("roles", keys::ROLES, rbac::RbacKind::Role),
        informer("clusterroles", keys::CLUSTER_ROLES, rbac::RbacKind::ClusterRole),
        informer("rolebindings", keys::ROLE_BINDINGS, rbac::RbacKind::RoleBinding),
        informer("clusterrolebindings", keys::CLUSTER_ROLE_BINDINGS, rbac::RbacKind::ClusterRoleBinding),
    ])
}

/// The storage directories from which the Node authorizer derives what each node may read.
const NODE_GRAPH_SOURCES: [(&str, node::GraphKind); 5] = [
    (keys::PODS, node::GraphKind::Pod),
    (keys::PERSISTENT_VOLUMES, node::GraphKind::PersistentVolume),
    (keys::VOLUME_ATTACHMENTS, node::GraphKind::VolumeAttachment),
    (keys::RESOURCE_SLICES, node::GraphKind::ResourceSlice),
    (keys::POD_CERTIFICATE_REQUESTS, node::GraphKind::PodCertificateRequest),
];

fn start_node_informers(storage: &Storage) -> Arc<NodeAuthorizer> {
    let nodes = Arc::new(NodeAuthorizer::new());
    for (prefix, kind) in NODE_GRAPH_SOURCES {
        let (authorizer, closed) = (Arc::clone(&nodes), Arc::clone(&nodes));
        let notes = UnreadableConcern::of_grants(&storage.unreadable, move || closed.graph().close());
        start_informer(&storage.store, prefix, notes, move |old, new| {
            authorizer.graph().apply(kind, old, new);
        });
    }
    nodes
}

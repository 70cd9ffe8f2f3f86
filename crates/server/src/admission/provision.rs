//! NamespaceAutoProvision: whoever creates something in a namespace that does not exist creates the namespace, too. Off unless a flag
//! names it.

use std::sync::Arc;

use admission::{AsyncPlugin, Attributes, BoxFuture, ClusterView, Operation, Pass};
use api::Status;
use authn::InternalIdentity;
use value::Value;

use super::attached::Attached;
use crate::client::Client;
use crate::state::State;

/// The stage.
#[derive(Default)]
pub(crate) struct Provision {
    server: Attached,
}

impl Provision {
    /// Tells it where namespaces are made, once.
    pub(crate) fn attach(&self, state: &Arc<State>) {
        self.server.attach(state);
    }

    async fn provide(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let server = self.server.server("the server is not ready to create namespaces")?;
        let namespace = Value::map([
            ("apiVersion", Value::from("v1")),
            ("kind", Value::from("Namespace")),
            ("metadata", Value::map([("name", attributes.namespace.clone())])),
        ]);
        let client = Client::new(server, InternalIdentity::ApiServer);
        // Creating a namespace passes this chain, too, and ends there: a namespace is in none.
        let created: BoxFuture<'_, Result<Value, Status>> =
            Box::pin(client.create("/api/v1/namespaces", &namespace));
        match created.await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == 409 => Ok(()),
            Err(status) if status.code() == 403 => Err(status),
            Err(status) => Err(attributes.forbidden(status.message())),
        }
    }
}

/// Whether there is a namespace to make for a request.
fn lacks_namespace(attributes: &Attributes<'_>, cluster: &dyn ClusterView) -> bool {
    attributes.operation == Operation::Create
        && !attributes.dry_run
        && !attributes.namespace.is_empty()
        && !attributes.is_kind("", "Namespace")
        && cluster.object("", "namespaces", "", &attributes.namespace).is_none()
}

impl AsyncPlugin for Provision {
    fn mutate<'a>(
        &'a self,
        pass: &'a mut Pass<'_, '_>,
        _: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        if lacks_namespace(pass.attributes, pass.cluster) {
            return Box::pin(self.provide(pass.attributes));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

//! The admission plugin NamespaceAutoProvision: creates the namespace of a new object if it does not exist. Off by default.

use admission::{AdmissionAttributes, AdmissionFuture, AsyncPlugin, ClusterView, MutatingRequest, Operation};
use api::Status;
use value::Value;

use crate::loopback::Loopback;

pub(crate) struct NamespaceAutoProvision {
    loopback: Loopback,
}

impl NamespaceAutoProvision {
    pub(crate) fn new(loopback: Loopback) -> Self {
        NamespaceAutoProvision { loopback }
    }

    async fn create_namespace(&self, attributes: &AdmissionAttributes<'_>) -> Result<(), Status> {
        let client = self.loopback.client("the server is not ready to create namespaces")?;
        let namespace = Value::map([
            ("apiVersion", Value::from("v1")),
            ("kind", Value::from("Namespace")),
            ("metadata", Value::map([("name", attributes.namespace.clone())])),
        ]);
        // This request passes the plugin as well, which ignores it, because a Namespace is cluster-scoped.
        let created: AdmissionFuture<'_, Result<Value, Status>> =
            Box::pin(client.create("/api/v1/namespaces", &namespace));
        match created.await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == 409 => Ok(()),
            Err(status) if status.code() == 403 => Err(status),
            Err(status) => Err(attributes.forbidden(status.message())),
        }
    }
}

fn lacks_namespace(attributes: &AdmissionAttributes<'_>, cluster: &dyn ClusterView) -> bool {
    attributes.operation == Operation::Create
        && !attributes.dry_run
        && !attributes.namespace.is_empty()
        && !attributes.is_kind("", "Namespace")
        && cluster.object("", "namespaces", "", &attributes.namespace).is_none()
}

impl AsyncPlugin for NamespaceAutoProvision {
    fn mutate<'a>(
        &'a self,
        pass: &'a mut MutatingRequest<'_, '_>,
        _: Option<&'a mut Value>,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        if lacks_namespace(pass.attributes, pass.cluster) {
            return Box::pin(self.create_namespace(pass.attributes));
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

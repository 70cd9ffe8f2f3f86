//! The namespace and name of a Service.

use std::fmt;

use api::meta;
use value::{Str, Value};

/// The Service that addresses are allocated for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    pub namespace: Str,
    pub name: Str,
}

impl ServiceRef {
    pub fn of(service: &Value) -> Self {
        ServiceRef { namespace: meta::namespace(service).into(), name: meta::name(service).into() }
    }

    /// Returns true for the `kubernetes` Service, through which pods reach this server.
    pub fn is_kubernetes(&self) -> bool {
        self.namespace == "default" && self.name == "kubernetes"
    }
}

impl fmt::Display for ServiceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

//! The two shapes of a link of the chain: a built-in plugin that answers at once, and a stage that may have to wait.

use api::Status;
use value::Value;

use crate::{Attributes, Cluster, InForce, Later, Notes, Reinvocation, Seen};

/// One built-in admission plugin: decides at once, from memory.
pub trait Plugin: Send + Sync {
    /// May change the object, in its stored shape, or refuse. Not asked when something is deleted.
    fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let _ = (attributes, object, cluster, notes);
        Ok(())
    }

    /// May refuse a deletion in the mutating phase, before any webhook hears of it.
    fn admit_deletion(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let _ = attributes;
        Ok(())
    }

    /// May refuse. `object` is absent when something is deleted.
    fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let _ = (attributes, object, cluster, notes);
        Ok(())
    }
}

/// A request on its way through the mutating stages.
pub struct Pass<'a, 'r> {
    /// What is asked.
    pub attributes: &'a Attributes<'r>,
    /// The cluster.
    pub cluster: &'a dyn Cluster,
    /// What is said besides.
    pub notes: &'a mut Notes,
    /// The passes so far.
    pub passes: &'a mut Reinvocation,
}

/// A link of the chain that may have to wait: policies (authorization checks), webhooks, quota.
pub trait Stage: Send + Sync {
    /// Takes what is in force now for a request that is about to begin.
    fn begin(&self, in_force: &InForce) {
        let _ = in_force;
    }

    /// May change the object, in its stored shape, or refuse. The object is absent when something is deleted.
    fn mutate<'a>(
        &'a self,
        pass: &'a mut Pass<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> Later<'a, Result<(), Status>> {
        let _ = (pass, object);
        Box::pin(std::future::ready(Ok(())))
    }

    /// May refuse.
    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        cluster: &'a dyn Cluster,
        notes: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let _ = (attributes, object, cluster, notes);
        Box::pin(std::future::ready(Ok(())))
    }
}

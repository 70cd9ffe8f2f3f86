//! Cluster roles with an `aggregationRule`: keeps their rules equal to the union of the rules of the roles they select.

use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, PatchBody, ResourceKind, WatchSource, unless_gone};
use crate::drive::{self, Controller, ReconcileOutcome};

pub(crate) const NAME: &str = "clusterrole-aggregation-controller";

/// Computes the rules that a cluster role should have, given all cluster roles sorted by name; `None` if it does not aggregate or is
/// up to date. The authorizer defines the union.
pub type Aggregate = fn(&Value, &[&Value]) -> Option<Vec<Value>>;

/// Maximum nesting of aggregated roles resolved in one reconciliation. Deeper nesting takes further reconciliations.
const DEPTH: usize = 8;

struct ClusterRoleAggregation<A> {
    api: Arc<A>,
    roles: Arc<ResourceKind>,
    aggregate: Aggregate,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, aggregate: Aggregate, stop: watch::Receiver<bool>) {
    let Some(roles) = api.kind("rbac.authorization.k8s.io/v1", "ClusterRole") else { return };
    let sources = vec![WatchSource::Kind(Arc::clone(&roles))];
    drive::run(ClusterRoleAggregation { api: Arc::clone(&api), roles, aggregate }, api, sources, stop).await;
}

impl<A: Api> Controller for ClusterRoleAggregation<A> {
    /// One key for all roles, because dependencies between roles are known only from all of them.
    type Key = ();
    const NAME: &'static str = NAME;
    const WORKERS: usize = 1;

    fn observe(&self, _: &ObjectChange) -> Vec<((), Duration)> {
        vec![((), Duration::ZERO)]
    }

    async fn reconcile(&self, (): ()) -> Result<ReconcileOutcome<()>, Status> {
        let outdated = outdated(self.api.list(&self.roles, "")?, self.aggregate).await;
        let writes = outdated.into_iter().map(|OutdatedRole { name, uid, rules }| {
            // A role of the same name that was created meanwhile is another role.
            let patch = Value::map([("metadata", Value::map([("uid", uid)])), ("rules", rules)]);
            (self.roles.object_ref("", &name), PatchBody::Merge(patch))
        });
        let mut under_way = tokio::task::JoinSet::new();
        for (object_ref, patch) in writes {
            let api = Arc::clone(&self.api);
            under_way.spawn(async move { unless_gone(api.patch(&object_ref, "", &patch).await) });
        }
        let mut outcome = Ok(ReconcileOutcome::Done);
        while let Some(written) = under_way.join_next().await {
            if let Err(status) = written.unwrap_or_else(|e| Err(Status::internal(e))) {
                outcome = Err(status);
            }
        }
        outcome
    }
}

/// An aggregated role and the rules that it should have.
#[derive(Debug, PartialEq)]
struct OutdatedRole {
    name: Str,
    uid: Str,
    rules: Value,
}

/// The aggregated roles whose rules are outdated, with their new rules. A role that selects another aggregated role gets the rules
/// which that role will have. Yields after each role, because a union can be large.
async fn outdated(mut roles: Vec<Value>, aggregate: Aggregate) -> Vec<OutdatedRole> {
    roles.sort_by(|a, b| meta::name(a).cmp(meta::name(b)));
    let mut writes: Vec<OutdatedRole> = Vec::new();
    for _ in 0..DEPTH {
        let all: Vec<&Value> = roles.iter().collect();
        let mut changed: Vec<(usize, Value)> = Vec::new();
        for (at, role) in roles.iter().enumerate() {
            if role.at(&["aggregationRule"]).is_some_and(|rule| !rule.is_null()) {
                changed.extend(aggregate(role, &all).map(|rules| (at, Value::List(rules))));
                tokio::task::yield_now().await;
            }
        }
        if changed.is_empty() {
            break;
        }
        for (at, rules) in changed {
            let Some(role) = roles.get_mut(at) else { continue };
            role.set_at(&["rules"], rules.clone());
            let name = meta::name(role);
            match writes.iter_mut().find(|write| write.name == name) {
                Some(write) => write.rules = rules,
                None => writes.push(OutdatedRole { name: name.into(), uid: meta::uid(role).into(), rules }),
            }
        }
    }
    writes
}

#[cfg(test)]
mod tests;

//! Searches the node for a pod.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{Status, meta};
use dra::{AllocationBudget, CandidateNode, ClaimAllocation, PendingClaim};
use value::{Str, Value};

use super::cache::SchedulerCache;
use super::devices::LentAllocator;
use super::fit::{self, NodeRejection};
use super::pod_claims::PodClaims;
use super::unsupported;

/// Time limit of the device search for one pod, over all nodes; kube-scheduler allows the same time for each node.
const MAX_SEARCH: Duration = Duration::from_secs(10);
/// Limit for (bytes of a pod's node constraints) × (number of nodes), which keeps the comparison under a second: 2 kB for 10,000 nodes.
const MAX_COMPARED: usize = 20_000_000;

/// The node chosen for a pod and the allocations of its claims there.
pub(super) struct Placement {
    pub(super) node: Str,
    /// Claims to allocate, with their new allocations.
    pub(super) allocated: Vec<(Value, ClaimAllocation)>,
    /// Claims that are already allocated.
    pub(super) shared: Vec<Value>,
}

/// The reason why a pod was not scheduled.
pub(super) struct SchedulingFailure {
    pub(super) why: String,
    /// An already allocated claim was not available on at least one node.
    pub(super) is_out_of_reach: bool,
    /// The search was aborted because it exceeded its budget.
    pub(super) is_too_costly: bool,
}

impl From<String> for SchedulingFailure {
    fn from(why: String) -> Self {
        SchedulingFailure { why, is_out_of_reach: false, is_too_costly: false }
    }
}

/// Searches for at most [`MAX_SEARCH`], on a thread of its own: the search is CPU-bound and must not block an async worker thread.
pub(super) async fn find_placement(
    cache: Arc<Mutex<SchedulerCache>>,
    pod: Value,
    pod_claims: PodClaims,
) -> Result<Result<Placement, SchedulingFailure>, Status> {
    let attempt = value::Budget::new(u64::MAX);
    let own = attempt.clone();
    let mut search = tokio::task::spawn_blocking(move || choose(&cache, &pod, pod_claims, &own));
    let chosen = match tokio::time::timeout(MAX_SEARCH, &mut search).await {
        Ok(chosen) => chosen,
        Err(_) => {
            attempt.cancel();
            search.await
        }
    };
    chosen.map_err(|_| Status::internal("the search for a node panicked"))
}

/// Finds the best node for a pod, or the reason why there is none. Works on a snapshot, so that observing changes never waits for it.
fn choose(
    cache: &Mutex<SchedulerCache>,
    pod: &Value,
    pod_claims: PodClaims,
    attempt: &value::Budget,
) -> Result<Placement, SchedulingFailure> {
    if let Some(why) = unsupported::first_unsupported_feature(pod) {
        return Err(format!("not scheduled: {why}, which the built-in scheduler does not support").into());
    }
    let read: Result<Vec<PendingClaim>, dra::Error> =
        pod_claims.open.iter().map(PendingClaim::read).collect();
    let read = read.map_err(|error| error.to_string())?;
    let cluster = Arc::clone(&cache.lock().unwrap_or_else(PoisonError::into_inner).cluster);
    check_terms(pod, cluster.nodes.len())?;
    let (fitting, mut reasons) = cluster.fitting(pod, attempt).map_err(|_| too_costly())?;
    let mut allocator = (!read.is_empty()).then(|| LentAllocator::take(cache));
    let mut budget = AllocationBudget::of(attempt);
    for name in fitting {
        let Some(object) = cluster.nodes.get(&name) else { continue };
        let node = CandidateNode::of(object);
        let reached = pod_claims.shared.iter().all(|claim| {
            attempt.check().is_ok()
                && claim.at(&["status", "allocation"]).is_some_and(|a| node.reaches(a).unwrap_or(false))
        });
        attempt.check().map_err(|_| too_costly())?;
        if !reached {
            *reasons.entry(NodeRejection::OutOfReach).or_insert(0) += 1;
            continue;
        }
        let Some(allocator) = &mut allocator else {
            return Ok(Placement { node: name, allocated: Vec::new(), shared: pod_claims.shared });
        };
        match allocator.get().allocate(&read, &node, &mut budget) {
            Ok(Some(allocations)) => {
                for (claim, allocation) in pod_claims.open.iter().zip(&allocations) {
                    allocator.get().hold(meta::uid(claim), allocation);
                }
                let allocated = pod_claims.open.into_iter().zip(allocations).collect();
                return Ok(Placement { node: name, allocated, shared: pod_claims.shared });
            }
            Ok(None) => *reasons.entry(NodeRejection::NoDevices).or_insert(0) += 1,
            // An error about search complexity on one node ends the whole search instead of repeating it on all of them.
            Err(error) if error.concerns_only_the_node() && !matches!(error, dra::Error::TooComplex(_)) => {
                *reasons.entry(NodeRejection::Devices(error.to_string())).or_insert(0) += 1;
            }
            Err(error) => {
                let is_too_costly = matches!(error, dra::Error::TooCostly | dra::Error::TooComplex(_));
                return Err(SchedulingFailure { is_too_costly, ..error.to_string().into() });
            }
        }
    }
    let why = fit::unschedulable_message(cluster.nodes.len(), &reasons);
    let is_out_of_reach = reasons.contains_key(&NodeRejection::OutOfReach);
    Err(SchedulingFailure { is_out_of_reach, ..why.into() })
}

/// The failure of a search that took longer than [`MAX_SEARCH`].
fn too_costly() -> SchedulingFailure {
    let why = "comparing the pod with all nodes takes too long; use fewer host ports and resource claims";
    SchedulingFailure { is_too_costly: true, ..why.to_owned().into() }
}

/// Fails if a pod's node constraints are too long to be compared with this many nodes.
fn check_terms(pod: &Value, nodes: usize) -> Result<(), String> {
    if fit::terms_size(pod).saturating_mul(nodes) > MAX_COMPARED {
        return Err(format!(
            "tolerations, node selectors and affinity are too long to be compared with {nodes} nodes"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_terms;
    use crate::fake::parse;

    #[test]
    fn node_constraints_that_are_too_long_for_the_number_of_nodes_are_not_compared() {
        let pod = |field: &str| {
            let long = "x".repeat(30_000);
            parse(&format!(r#"{{"spec":{{"{field}":{{"k":"{long}"}}}}}}"#))
        };
        for field in ["tolerations", "nodeSelector", "affinity"] {
            assert_eq!(check_terms(&pod(field), 600), Ok(()), "{field}");
            let why = check_terms(&pod(field), 700).unwrap_err();
            assert!(why.ends_with("are too long to be compared with 700 nodes"), "{field}: {why}");
        }
        assert_eq!(check_terms(&pod("volumes"), 1_000_000), Ok(()));
    }
}

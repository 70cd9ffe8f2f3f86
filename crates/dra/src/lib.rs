//! Dynamic resource allocation: allocates devices to the ResourceClaims of a pod on a node.
//!
//! A [`DeviceAllocator`] knows the DeviceClasses, the ResourceSlices and the allocated claims. It tries [`PendingClaim`]s on a
//! [`CandidateNode`] and returns a [`ClaimAllocation`] for each. It does no I/O, and equal input gives equal results. A scheduler
//! uses it like this:
//!
//! ```
//! use dra::{AllocationBudget, CandidateNode, DeviceAllocator, DraGates, PendingClaim};
//!
//! let parse = |text: &str| value::json::parse(text.as_bytes()).unwrap();
//! let classes = [parse(r#"{"metadata": {"name": "gpu"}, "spec": {}}"#)];
//! let slices = [parse(
//!     r#"{"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "nodeName": "n1",
//!         "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}}"#,
//! )];
//! let wanted = parse(
//!     r#"{"metadata": {"name": "c", "namespace": "default", "uid": "1"}, "spec": {"devices": {"requests": [
//!         {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}}"#,
//! );
//!
//! // Build an allocator whenever classes or slices change.
//! let mut allocator = DeviceAllocator::new(&classes, &slices, DraGates::default());
//! // Call `allocator.taint(&rules)` with the stored DeviceTaintRules, `observe` with every stored claim and whenever one
//! // changes, and `forget` when one is deleted.
//! allocator.observe(&wanted);
//!
//! // For every pod: read the claims that are not allocated yet, then try them node by node.
//! let claims = [PendingClaim::read(&wanted).unwrap()];
//! let node = parse(r#"{"metadata": {"name": "n1", "labels": {}}}"#);
//! let mut budget = AllocationBudget::default();
//! let allocations = allocator.allocate(&claims, &CandidateNode::of(&node), &mut budget).unwrap().unwrap();
//!
//! // Hold the allocations until the claims' new status is observed, and write that status.
//! allocator.hold("1", &allocations[0]);
//! let status = allocations[0].to_value(&mut || "11111111-2222-3333-4444-555555555555".to_owned());
//! assert_eq!(status.str_at(&["nodeSelector", "nodeSelectorTerms"]), None);
//! assert_eq!(status.list_at(&["devices", "results"])[0].str_at(&["device"]), Some("gpu-0"));
//! assert_eq!(allocator.allocate(&claims, &CandidateNode::of(&node), &mut budget), Ok(None));
//! ```
//!
//! `Ok(None)` means that this node cannot serve the claims now. After an [`Error`], [`Error::concerns_only_the_node`] says
//! whether to try other nodes. Allocated claims are not passed to [`DeviceAllocator::allocate`]; [`CandidateNode::reaches`]
//! says whether a node can use their devices.
//!
//! Admin access (KEP-5018) ignores existing allocations and does not affect later ones: it takes no device, counter or
//! capacity, and shows only in the allocation results.

#![warn(missing_docs)]

mod allocation;
mod allocator;
mod budget;
mod capacity;
mod claim;
mod constraint;
mod error;
mod inventory;
mod node;
mod search;
mod selectors;
mod usage;

pub use allocation::{ClaimAllocation, DeviceResult};
pub use allocator::{DeviceAllocator, DraGates};
pub use budget::AllocationBudget;
pub use claim::PendingClaim;
pub use error::Error;
pub use node::{CandidateNode, NodeSelector, NodeSelectorError};

#[cfg(test)]
mod tests;

//! Dynamic resource allocation: the claims of a pod, device classes and resource slices become allocations on a node.
//!
//! The crate decides and does nothing else: objects come in as trees, allocations go out as values, nothing is read or written,
//! and the same input always gives the same output. A scheduler uses it like this:
//!
//! ```
//! use dra::{DeviceAllocator, AllocationBudget, PendingClaim, DraGates, CandidateNode};
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
//! // Once per change of classes or slices: what there is.
//! let mut allocator = DeviceAllocator::new(&classes, &slices, DraGates::default());
//! // And `allocator.taint(&rules)` for the stored rules that taint devices.
//! // For every stored claim, and again whenever one changes: what is taken. `forget` when one is deleted.
//! allocator.observe(&wanted);
//!
//! // For every pod: the claims that are not allocated yet, read once, then tried node by node.
//! let claims = [PendingClaim::read(&wanted).unwrap()];
//! let node = parse(r#"{"metadata": {"name": "n1", "labels": {}}}"#);
//! let mut budget = AllocationBudget::default();
//! let allocations = allocator.allocate(&claims, &CandidateNode::of(&node), &mut budget).unwrap().unwrap();
//!
//! // One allocation per claim, in their order: hold them until the claims' new status is observed, and write that status.
//! allocator.hold("1", &allocations[0]);
//! let status = allocations[0].to_value(&mut || "11111111-2222-3333-4444-555555555555".to_owned());
//! assert_eq!(status.str_at(&["nodeSelector", "nodeSelectorTerms"]), None);
//! assert_eq!(status.list_at(&["devices", "results"])[0].str_at(&["device"]), Some("gpu-0"));
//! assert_eq!(allocator.allocate(&claims, &CandidateNode::of(&node), &mut budget), Ok(None));
//! ```
//!
//! `Ok(None)` means that this node cannot serve the claims now. An [`Error`] says what is wrong, and
//! [`Error::concerns_only_the_node`] whether other nodes are worth trying. A claim that is allocated already is not given to
//! [`DeviceAllocator::allocate`]; whether a node can reach it is [`CandidateNode::reaches`].
//!
//! Admin access (KEP-5018) looks past every allocation and leaves no trace in what others get: devices used that way are not in
//! use, take no counters and no capacity, and only the results say so.

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

//! The Kubernetes object model: kinds, metadata, selectors, quantities, Status errors.

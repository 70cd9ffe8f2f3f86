//! The Common Expression Language with Kubernetes' libraries and costs.

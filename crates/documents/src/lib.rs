//! The documents that describe the resources of a server: discovery and OpenAPI.
//!
//! Both are built from the table of built-in kinds, the served CRDs and the documents of aggregated API servers.
//! [`discovery::DiscoveryResource`] is one resource in one version; [`openapi::OpenApi`] builds OpenAPI v2 and v3 documents on first use
//! and caches them.
//!
//! ```
//! use documents::discovery::{DiscoveryResource, storage_hash};
//!
//! let row = kinds::table::find("apps", "v1", "deployments").unwrap();
//! let resource = DiscoveryResource::of(row, "v1");
//! assert_eq!((resource.kind, resource.namespaced), ("Deployment", true));
//! assert_eq!(resource.storage_hash, storage_hash(row));
//! ```

pub mod discovery;
pub mod openapi;

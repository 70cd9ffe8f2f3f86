//! The APIs that are served: built-in resources, custom resources, and those of aggregated API servers.

use resources::openapi::OpenApi;

use crate::aggregation::Aggregation;
use crate::catalog::Catalog;
use crate::conversion;
use crate::crd_controller::CrdProgress;
use crate::handlers::documents::OpenApiBuilders;
use crate::handlers::watch::shared_frames::SharedFrames;

/// The served APIs.
pub struct ServedApis {
    pub catalog: Catalog,
    /// How far the custom resources of the catalog follow the stored CRDs.
    pub(crate) crds: CrdProgress,
    /// The conversion webhooks of CRDs.
    pub conversions: conversion::Targets,
    pub(crate) aggregation: Aggregation,
    /// The OpenAPI documents; each is built when it is first requested.
    pub openapi: OpenApi,
    /// Limits how many OpenAPI documents are built at a time.
    pub(crate) openapi_builders: OpenApiBuilders,
    /// Watch events in a requested version, shared by the watches that need the same conversion.
    pub(crate) shared_frames: SharedFrames,
    /// `--allow-privileged`.
    pub allow_privileged: bool,
    /// The feature gate `DRAAdminAccess`: without it, new objects lose the field `adminAccess`.
    pub admin_access: bool,
    /// Objects may have the names that are reserved for static manifests: there are none on this server.
    pub static_names: bool,
}

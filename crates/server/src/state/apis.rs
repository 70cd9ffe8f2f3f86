//! The APIs that are served: built-in resources, custom resources, and those of aggregated API servers.

use api::features::Features;
use catalog::Catalog;
use documents::openapi::OpenApi;

use super::Storage;
use crate::aggregation::ApiAggregation;
use crate::config::{ApisConfig, ConfigError};
use crate::conversion;
use crate::crd_controller::{self, CrdProgress};
use crate::handlers::documents::{AggregatedDiscovery, OpenApiBuilders};
use crate::handlers::watch::shared_frames::SharedFrames;
use crate::metrics::Metrics;

pub struct ServedApis {
    pub catalog: Catalog,
    /// How far the custom resources of the catalog follow the stored CRDs.
    pub(crate) crds: CrdProgress,
    /// The conversion webhooks of CRDs.
    pub conversions: conversion::ConversionWebhookClients,
    pub(crate) aggregation: ApiAggregation,
    /// The OpenAPI documents; each is built when it is first requested.
    pub openapi: OpenApi,
    /// The discovery document of all groups.
    pub(crate) aggregated_discovery: AggregatedDiscovery,
    /// Limits how many OpenAPI documents are built at a time.
    pub(crate) openapi_builders: OpenApiBuilders,
    /// Watch events in a requested version, shared by the watches that need the same conversion.
    pub(crate) shared_frames: SharedFrames,
    /// Containers may be privileged (`--allow-privileged`).
    pub allow_privileged: bool,
    /// The feature gate `DRAAdminAccess`: without it, new objects lose the field `adminAccess`.
    pub admin_access: bool,
    pub features: Features,
    /// Objects may have the names that are reserved for static manifests, because this server does not support static manifests.
    pub static_names: bool,
}

/// Facts about other subsystems that the served APIs depend on.
pub(crate) struct ApisContext {
    /// OpenID discovery of the token issuer is served, so the OpenAPI documents describe it.
    pub(crate) has_issuer_discovery: bool,
    /// The feature gate of static manifests, which reserves names for them.
    pub(crate) static_manifests: bool,
}

impl ApisConfig {
    /// Reads the stored CRDs into the catalog and starts the informer of APIServices. The informer of CRDs that is returned must be
    /// started with [`crd_controller::start`], because it writes the status of CRDs.
    pub(crate) fn build(
        self,
        storage: &Storage,
        metrics: &Metrics,
        context: &ApisContext,
    ) -> Result<(ServedApis, crd_controller::CrdInformer), ConfigError> {
        let ApisConfig { runtime_config, features, proxy_client, redirects, allow_privileged, admin_access } =
            self;
        let served = runtime_config.served(features);
        let Storage { store, unreadable, .. } = storage;
        let catalog = Catalog::new(served.clone());
        let (crds, crd_informer) = crd_controller::load(store, unreadable, &catalog);
        let registry = metrics.registry();
        let apis = ServedApis {
            catalog,
            crds,
            conversions: conversion::ConversionWebhookClients::default(),
            aggregation: ApiAggregation::start(
                store,
                unreadable,
                proxy_client.as_ref(),
                redirects,
                &served,
                registry,
            )?,
            openapi: OpenApi::new(served, "1.37").with_issuer(context.has_issuer_discovery),
            aggregated_discovery: AggregatedDiscovery::default(),
            openapi_builders: OpenApiBuilders::default(),
            shared_frames: SharedFrames::new(registry).map_err(ConfigError::other)?,
            allow_privileged,
            admin_access,
            features,
            static_names: !context.static_manifests,
        };
        Ok((apis, crd_informer))
    }
}

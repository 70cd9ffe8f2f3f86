//! Metrics of static manifests, under the names of Kubernetes and of KEP-5793.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use admission::manifests::{LoadedManifests, ManifestSet};
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec};
use runtime::MetricRegistry;

use super::{plugin_of, plugins};

#[derive(Debug)]
pub(crate) struct ManifestMetrics {
    id_hash: String,
    reloads: IntCounterVec,
    times: GaugeVec,
    info: IntGaugeVec,
    /// The hash of each plugin in `info`, to remove its series when the hash changes.
    hashes: Mutex<BTreeMap<&'static str, String>>,
    kep_reloads: IntCounterVec,
    kep_times: GaugeVec,
    objects: IntGaugeVec,
    warnings: IntGaugeVec,
    removed: IntCounterVec,
}

impl ManifestMetrics {
    /// Registers the metrics. `id_hash` is the hash of the server's identity.
    pub(crate) fn new(registry: &MetricRegistry, id_hash: String) -> Result<Arc<Self>, prometheus::Error> {
        const RELOADS: &str = "Total number of automatic reloads of admission manifest configuration split by status, plugin, and apiserver identity.";
        const TIMES: &str = "Timestamp of the last automatic reload of admission manifest configuration split by status, plugin, and apiserver identity.";
        let labels = &["apiserver_id_hash", "plugin", "status"];
        let info = registry.gauge_vec(
            "apiserver_manifest_admission_config_controller_last_config_info",
            "[ALPHA] Information about the last applied admission manifest configuration with hash as label, split by plugin and apiserver identity.",
            &["apiserver_id_hash", "hash", "plugin"],
        )?;
        let objects = registry.gauge_vec(
            "apiserver_admission_manifest_config_objects",
            "[ALPHA] Number of objects of admission manifest configuration that are in force, split by plugin and kind.",
            &["plugin", "kind"],
        )?;
        let warnings = registry.gauge_vec(
            "apiserver_admission_manifest_config_warnings",
            "[ALPHA] Number of warnings about the admission manifest configuration that is in force, split by plugin.",
            &["plugin"],
        )?;
        Ok(Arc::new(ManifestMetrics {
            id_hash,
            info,
            hashes: Mutex::default(),
            objects,
            warnings,
            removed: registry.counter_vec(
                "apiserver_admission_manifest_config_removed_objects_total",
                "[ALPHA] Total number of objects that reloads of admission manifest configuration removed, split by plugin and kind.",
                &["plugin", "kind"],
            )?,
            reloads: registry.counter_vec(
                "apiserver_manifest_admission_config_controller_automatic_reloads_total",
                &format!("[ALPHA] {RELOADS}"),
                labels,
            )?,
            times: registry.float_gauge_vec(
                "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
                &format!("[ALPHA] {TIMES}"),
                labels,
            )?,
            kep_reloads: registry.counter_vec(
                "apiserver_admission_manifest_config_automatic_reloads_total",
                &format!("[ALPHA] {RELOADS}"),
                &["plugin", "status"],
            )?,
            kep_times: registry.float_gauge_vec(
                "apiserver_admission_manifest_config_automatic_reload_last_timestamp_seconds",
                &format!("[ALPHA] {TIMES}"),
                &["plugin", "status"],
            )?,
        }))
    }

    pub(super) fn reloaded(&self, set: ManifestSet, ok: bool) {
        let status = if ok { "success" } else { "failure" };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        for plugin in plugins(set) {
            self.reloads.with_label_values(&[self.id_hash.as_str(), plugin, status]).inc();
            self.times.with_label_values(&[self.id_hash.as_str(), plugin, status]).set(now);
            self.kep_reloads.with_label_values(&[plugin, status]).inc();
            self.kep_times.with_label_values(&[plugin, status]).set(now);
        }
    }

    pub(super) fn in_force(&self, set: ManifestSet, loaded: &LoadedManifests) {
        let count = |objects: usize| i64::try_from(objects).unwrap_or(i64::MAX);
        for kind in set.kinds() {
            let labels = &[plugin_of(kind), kind];
            self.objects.with_label_values(labels).set(count(loaded.of_kind(kind).len()));
            // Creates the series before an object is removed, so that its first increase is visible.
            self.removed.with_label_values(labels).inc_by(0);
        }
        for plugin in plugins(set) {
            self.warnings.with_label_values(&[plugin]).set(count(loaded.warnings.len()));
            let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(before) = hashes.insert(plugin, loaded.hash.clone()) {
                let _ = self.info.remove_label_values(&[self.id_hash.as_str(), &before, plugin]);
            }
            self.info.with_label_values(&[self.id_hash.as_str(), &loaded.hash, plugin]).set(1);
        }
    }

    /// Counts the objects that a reload removed, given by kind and name.
    pub(super) fn removed(&self, objects: &[&(&'static str, String)]) {
        for (kind, _) in objects {
            self.removed.with_label_values(&[plugin_of(kind), kind]).inc();
        }
    }
}

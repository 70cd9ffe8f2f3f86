//! Deletes the objects of a deleted CRD, and reports the progress in its `Terminating` condition.

use std::collections::HashSet;
use std::time::Duration;

use api::field::aggregate;
use api::{Status, meta};
use catalog::encode;
use catalog::keys::{self, CRDS, UnreachableKey};
use catalog::{ObjectReach, ServedResource};
use crd::names::{self, CLEANUP, OVERLAPPING};
use tracing::warn;
use value::{Str, Value};

use super::PATH;
use super::status::CrdStatusWriter;
use crate::consistent_reads;
use crate::write;

/// Interval of checks whether the objects of a deleted CRD are gone.
const POLL: Duration = Duration::from_millis(250);
/// Time after which the status reports that objects of a deleted CRD remain.
const PATIENCE: Duration = Duration::from_mins(1);
/// Conflict retries when the status of a terminating CRD is written, before the whole cleanup is retried.
const ATTEMPTS: usize = 10;

impl CrdStatusWriter {
    /// Deletes the objects of a CRD, then removes its cleanup finalizer.
    pub(super) async fn delete_all_objects(&self, name: &Str) -> Result<(), Status> {
        let progress = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
        let Some(crd) = self.set_terminating(name, progress, false).await? else { return Ok(()) };
        let established = crd
            .list_at(&["status", "conditions"])
            .iter()
            .any(|c| c.str_at(&["type"]) == Some("Established") && c.str_at(&["status"]) == Some("True"));
        let text = |path: &[&str]| crd.str_at(path).unwrap_or_default().to_owned();
        let (group, plural) = (text(&["spec", "group"]), text(&["spec", "names", "plural"]));
        let condition = if kinds::table::overlapping(&group, &plural).is_some() {
            ("False", OVERLAPPING.0, OVERLAPPING.1)
        } else if established {
            self.delete_objects(name, &group, &plural).await?;
            ("False", "InstanceDeletionCompleted", "removed all instances")
        } else {
            ("False", "NeverEstablished", "resource was never established")
        };
        self.set_terminating(name, condition, true).await.map(drop)
    }

    /// Writes the `Terminating` condition; removes the cleanup finalizer if `done`. `None` if the CRD no longer exists.
    async fn set_terminating(
        &self,
        name: &Str,
        condition: (&str, &str, &str),
        done: bool,
    ) -> Result<Option<Value>, Status> {
        let mut attempts = 0;
        loop {
            let Some(entry) = self.state.storage.store.get(&keys::cluster_scoped(CRDS, name)) else {
                return Ok(None);
            };
            let mut crd = encode::tree(&entry)?;
            let mut status = crd.get("status").cloned().unwrap_or_default();
            names::set(&mut status, "Terminating", condition, &self.now());
            crd.set_at(&["status"], status);
            if done {
                let finalizers: Vec<Value> =
                    meta::finalizers(&crd).filter(|found| *found != CLEANUP).map(Value::from).collect();
                meta::set(&mut crd, "finalizers", Value::List(finalizers));
            }
            match self.client.update(&format!("{PATH}/{name}/status"), &crd).await {
                Ok(updated) => return Ok(Some(updated)),
                // After too many conflicts the error is returned; the caller retries later.
                Err(status) if status.code() == 409 && attempts < ATTEMPTS => attempts += 1,
                Err(status) if status.code() == 404 => return Ok(None),
                Err(status) => return Err(status),
            }
        }
    }

    async fn delete_objects(&self, name: &Str, group: &str, plural: &str) -> Result<(), Status> {
        let kind = match self.state.apis.catalog.reach(name) {
            ObjectReach::Through(kind) => kind,
            ObjectReach::Hidden => return self.remove_unreachable(name, group, plural).await,
            ObjectReach::Unknown => {
                let why = format!(
                    "could not list instances: unable to find a custom resource client for {plural}.{group}"
                );
                self.set_terminating(name, ("True", "InstanceDeletionFailed", &why), false).await?;
                return Err(Status::internal(why));
            }
        };
        let scope = kind.scope("");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut asked = HashSet::new();
        loop {
            // As all servers have written them: with the finalizer gone, objects that are left would stay forever.
            let left = consistent_reads::entries(&self.state.storage.store, &scope).await?;
            if left.is_empty() {
                return Ok(());
            }
            let mut problems = Vec::new();
            for entry in &left {
                let namespace = kind.namespace_of(&entry.key).to_owned();
                if !asked.insert((entry.key.clone(), entry.revision)) {
                    continue;
                }
                let object = keys::name(&entry.key);
                if let Err(status) = self.delete_one(&kind, &namespace, object).await {
                    problems.push(status.message().to_owned());
                }
            }
            if !problems.is_empty() {
                let why = format!("could not issue all deletes: {}", aggregate(problems));
                self.set_terminating(name, ("True", "InstanceDeletionFailed", &why), false).await?;
                return Err(Status::internal(why));
            }
            if tokio::time::Instant::now() > deadline {
                let why =
                    "could not confirm zero CustomResources remaining: timed out waiting for the condition";
                self.set_terminating(name, ("True", "InstanceDeletionCheck", why), false).await?;
                return Err(Status::internal(why));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Removes the objects of an established CRD none of whose versions has a path: built-in resources have them all. There is no
    /// admission, and finalizers are ignored, because no client could remove them.
    async fn remove_unreachable(&self, name: &Str, group: &str, plural: &str) -> Result<(), Status> {
        let store = &self.state.storage.store;
        let left = consistent_reads::entries(store, &keys::custom_prefix(group, plural)).await?;
        if !left.is_empty() {
            warn!(
                crd = %name,
                objects = left.len(),
                "removing the objects of a deleted CRD without admission, because built-in resources have the paths of all its versions"
            );
        }
        let keys = left.iter().filter_map(|entry| UnreachableKey::new(group, plural, &entry.key));
        for key in keys {
            write::remove_unreachable(store, &key).await.map_err(|error| {
                Status::internal(format!("cannot remove {}: {error}", keys::below_root(key.as_str())))
            })?;
        }
        Ok(())
    }

    /// Deletes one object through an internal path, which works even for versions that are not served.
    async fn delete_one(&self, kind: &ServedResource, namespace: &str, name: &str) -> Result<(), Status> {
        let (api_version, plural) = (kind.gvk.api_version(), &kind.resource.resource);
        let path = if kind.namespaced {
            format!("/apis/{api_version}/namespaces/{namespace}/{plural}/{name}")
        } else {
            format!("/apis/{api_version}/{plural}/{name}")
        };
        let options = Value::map([("kind", "DeleteOptions"), ("apiVersion", "v1")]);
        match self.client.delete(&path, &options).await {
            Err(status) if status.code() != 404 => Err(status),
            _ => Ok(()),
        }
    }
}

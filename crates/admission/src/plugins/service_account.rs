//! ServiceAccount: assigns a service account to every pod, checks that it exists, and mounts a token.
//!
//! A controller creates the account `default` of a new namespace, so this plugin waits briefly for it.

use std::collections::HashSet;
use std::sync::Arc;

use api::{Status, meta};
use value::{Map, Value};

use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, MutatingRequest,
    Operation, VersionedObject,
};

const DEFAULT: &str = "default";
const VOLUME_PREFIX: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// 3607 marks tokens whose lifetime the server may extend to one year.
const EXPIRATION_SECONDS: i64 = 3607;

#[derive(Debug)]
pub struct ServiceAccount {
    /// Returns five random letters for the volume's name.
    pub suffix: fn() -> String,
}

impl ServiceAccount {
    fn handles(attributes: &AdmissionAttributes<'_>) -> bool {
        attributes.resource.resource == "pods"
            && attributes.resource.group.is_empty()
            && match attributes.subresource.as_str() {
                "" => attributes.operation == Operation::Create,
                "ephemeralcontainers" => attributes.operation == Operation::Update,
                _ => false,
            }
    }

    async fn prepare(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        cluster: &dyn ClusterView,
    ) -> Result<(), Status> {
        // The kubelet deletes a mirror pod that differs from the one it created.
        if attributes.subresource.is_empty() && !meta::is_mirror_pod(pod) {
            let name = pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default();
            if name.is_empty() {
                pod.set_at(&["spec", "serviceAccountName"], DEFAULT);
                pod.set_at(&["spec", "serviceAccount"], DEFAULT);
            }
            let account = account(attributes, pod, cluster).await?;
            let automount = pod
                .bool_at(&["spec", "automountServiceAccountToken"])
                .or_else(|| account.bool_at(&["automountServiceAccountToken"]))
                .unwrap_or(true);
            if automount {
                self.mount_token(pod);
            }
            if pod.list_at(&["spec", "imagePullSecrets"]).is_empty() {
                let names = account.list_at(&["imagePullSecrets"]).iter();
                let secrets: Vec<Value> = names
                    .map(|secret| match secret.str_at(&["name"]) {
                        Some(name) => Value::map([("name", name)]),
                        None => Value::Map(Map::new()),
                    })
                    .collect();
                if !secrets.is_empty() {
                    pod.set_at(&["spec", "imagePullSecrets"], secrets);
                }
            }
        }
        check(attributes, pod, cluster).await
    }

    fn mount_token(&self, pod: &mut Value) {
        let existing = pod
            .list_at(&["spec", "volumes"])
            .iter()
            .filter_map(|volume| volume.str_at(&["name"]))
            .find(|name| name.starts_with(VOLUME_PREFIX))
            .map(str::to_owned);
        let has_volume = existing.is_some();
        let name = existing.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", (self.suffix)()));
        let mut needed = false;
        for field in ["initContainers", "containers"] {
            let Some(containers) = pod.at_mut(&["spec", field]).and_then(Value::as_list_mut) else {
                continue;
            };
            for container in containers {
                let mounts = container.list_at(&["volumeMounts"]);
                if mounts.iter().any(|mount| mount.str_at(&["mountPath"]) == Some(MOUNT_PATH)) {
                    continue;
                }
                let mount = Value::map([
                    ("mountPath", Value::from(MOUNT_PATH)),
                    ("name", Value::from(name.as_str())),
                    ("readOnly", Value::from(true)),
                ]);
                super::append(container, &["volumeMounts"], mount);
                needed = true;
            }
        }
        if needed && !has_volume {
            super::append(pod, &["spec", "volumes"], token_volume(&name));
        }
    }
}

impl AsyncPlugin for ServiceAccount {
    fn mutate<'a>(
        &'a self,
        request: &'a mut MutatingRequest<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        match object {
            // Only creations are changed. All checks run in the validating phase.
            Some(pod)
                if Self::handles(request.attributes) && request.attributes.operation == Operation::Create =>
            {
                Box::pin(self.prepare(request.attributes, pod, request.cluster))
            }
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        match object.stored() {
            Some(pod) if Self::handles(attributes) => Box::pin(check(attributes, pod, cluster)),
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }
}

/// The pod's service account. Waits briefly for it to be created.
async fn account(
    attributes: &AdmissionAttributes<'_>,
    pod: &Value,
    cluster: &dyn ClusterView,
) -> Result<Arc<Value>, Status> {
    let namespace = attributes.namespace.as_str();
    let name = pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default();
    if name.is_empty() {
        let why = format!("no service account specified for pod {namespace}/{}", meta::name(pod));
        return Err(attributes.refuse(Some(pod), why));
    }
    let found = match cluster.object("", "serviceaccounts", namespace, name) {
        None if name == DEFAULT => cluster.wait_for_object("", "serviceaccounts", namespace, name).await,
        found => found,
    };
    found.ok_or_else(|| {
        let quoted = api::field::quote(name);
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {quoted} not found");
        attributes.refuse(Some(pod), why)
    })
}

async fn check(
    attributes: &AdmissionAttributes<'_>,
    pod: &Value,
    cluster: &dyn ClusterView,
) -> Result<(), Status> {
    let new = attributes.subresource.is_empty();
    if new && meta::is_mirror_pod(pod) {
        return check_mirror(pod).map_err(|why| attributes.refuse(Some(pod), why));
    }
    let account = account(attributes, pod, cluster).await?;
    let enforced = account
        .str_at(&["metadata", "annotations", api::labels::ENFORCE_MOUNTABLE_SECRETS])
        .is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"));
    if !enforced {
        return Ok(());
    }
    if new {
        return check_secrets(&account, pod).map_err(|why| attributes.refuse(Some(pod), why));
    }
    // kube-apiserver returns this as a plain error, not as a 403.
    let secrets = names(&account, "secrets");
    check_containers(&account, &secrets, pod, ("ephemeralContainers", "ephemeral container"))
        .map_err(Status::plain)
}

fn check_mirror(pod: &Value) -> Result<(), &'static str> {
    if pod.str_at(&["spec", "serviceAccountName"]).is_some_and(|name| !name.is_empty()) {
        return Err("a mirror pod may not reference service accounts");
    }
    if super::pod_secrets::refers_to_secrets(pod) {
        return Err("a mirror pod may not reference secrets");
    }
    let projects_token = pod.list_at(&["spec", "volumes"]).iter().any(|volume| {
        let sources = volume.list_at(&["projected", "sources"]).iter();
        sources.clone().any(|source| source.get("serviceAccountToken").is_some())
    });
    if projects_token {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

/// With `enforce-mountable-secrets`, a pod may use only secrets that its service account lists.
fn check_secrets(account: &Value, pod: &Value) -> Result<(), String> {
    let name = meta::name(account);
    let (secrets, pull_secrets) = (names(account, "secrets"), names(account, "imagePullSecrets"));
    for volume in pod.list_at(&["spec", "volumes"]) {
        if let Some(source) = volume.get("secret") {
            let secret = source.str_at(&["secretName"]).unwrap_or_default();
            if !secrets.contains(secret) {
                return Err(format!(
                    "volume with secret.secretName=\"{secret}\" is not allowed because service account {name} does not reference that secret"
                ));
            }
        }
    }
    check_containers(account, &secrets, pod, ("initContainers", "init container"))?;
    check_containers(account, &secrets, pod, ("containers", "container"))?;
    for (i, reference) in pod.list_at(&["spec", "imagePullSecrets"]).iter().enumerate() {
        let secret = reference.str_at(&["name"]).unwrap_or_default();
        if !pull_secrets.contains(secret) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{secret}\" is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn check_containers(
    account: &Value,
    secrets: &HashSet<&str>,
    pod: &Value,
    (field, words): (&str, &str),
) -> Result<(), String> {
    let account_name = meta::name(account);
    for container in pod.list_at(&["spec", field]) {
        let name = container.str_at(&["name"]).unwrap_or_default();
        for variable in container.list_at(&["env"]) {
            if let Some(reference) = variable.at(&["valueFrom", "secretKeyRef"]) {
                let secret = reference.str_at(&["name"]).unwrap_or_default();
                if !secrets.contains(secret) {
                    let variable = variable.str_at(&["name"]).unwrap_or_default();
                    return Err(format!(
                        "{words} {name} with envVar {variable} referencing secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret"
                    ));
                }
            }
        }
        for source in container.list_at(&["envFrom"]) {
            if let Some(reference) = source.get("secretRef") {
                let secret = reference.str_at(&["name"]).unwrap_or_default();
                if !secrets.contains(secret) {
                    return Err(format!(
                        "{words} {name} with envFrom referencing secret.secretName=\"{secret}\" is not allowed because service account {account_name} does not reference that secret"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The names of the secrets that an account lists; a set, because a pod and its account can have many.
fn names<'a>(account: &'a Value, field: &str) -> HashSet<&'a str> {
    let references = account.list_at(&[field]).iter();
    references.map(|reference| reference.str_at(&["name"]).unwrap_or_default()).collect()
}

/// A projected volume with token, CA certificate and namespace.
fn token_volume(name: &str) -> Value {
    let token = Value::map([(
        "serviceAccountToken",
        Value::map([("expirationSeconds", Value::from(EXPIRATION_SECONDS)), ("path", Value::from("token"))]),
    )]);
    let authority = Value::map([(
        "configMap",
        Value::map([
            ("items", Value::list([Value::map([("key", "ca.crt"), ("path", "ca.crt")])])),
            ("name", Value::from("kube-root-ca.crt")),
        ]),
    )]);
    let field = Value::map([("apiVersion", "v1"), ("fieldPath", "metadata.namespace")]);
    let item = Value::map([("fieldRef", field), ("path", Value::from("namespace"))]);
    let namespace = Value::map([("downwardAPI", Value::map([("items", Value::list([item]))]))]);
    let projected = Value::map([
        ("defaultMode", Value::from(0o644)),
        ("sources", Value::list([token, authority, namespace])),
    ]);
    Value::map([("name", Value::from(name)), ("projected", projected)])
}

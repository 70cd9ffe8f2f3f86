//! OwnerReferencesPermissionEnforcement: changing an object's owners requires permission to delete the
//! object, and setting `blockOwnerDeletion` requires permission to update the owner's finalizers. Off by
//! default.

use std::collections::HashSet;

use api::{GroupVersion, Status, meta};
use value::{Str, Value};

use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, Operation,
    VersionedObject,
};

#[derive(Debug)]
pub struct OwnerReferencesPermissionEnforcement;

impl AsyncPlugin for OwnerReferencesPermissionEnforcement {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        _: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let writes = attributes.operation.is_write();
        // Kubelets update the status of pods with any owners.
        let exempt = attributes.resource.resource == "pods"
            && attributes.resource.group.is_empty()
            && attributes.subresource == "status";
        let owners = |object: &Value| object.list_at(&["metadata", "ownerReferences"]).to_vec();
        match object.stored() {
            Some(new)
                if writes
                    && !exempt
                    && owners(new) != attributes.old_object.stored().map(owners).unwrap_or_default() =>
            {
                Box::pin(check(attributes, new, cluster))
            }
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }
}

async fn check(
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
    cluster: &dyn ClusterView,
) -> Result<(), Status> {
    // A creation needs no permission to delete.
    if attributes.operation != Operation::Create {
        let question = authz::AuthorizationAttributes {
            version: attributes.version.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            subresource: attributes.subresource.clone(),
            ..authz::AuthorizationAttributes::resource(
                "delete",
                attributes.resource.group.clone(),
                attributes.resource.resource.clone(),
            )
        };
        if let Err(why) = authorize(attributes, question, cluster).await {
            let why = format!("cannot set an ownerRef on a resource you can't delete: {why}");
            return Err(attributes.refuse(Some(new), why));
        }
    }
    check_blocking(attributes, new, cluster).await
}

/// The error explains why the user may not do this.
async fn authorize(
    attributes: &AdmissionAttributes<'_>,
    question: authz::AuthorizationAttributes,
    cluster: &dyn ClusterView,
) -> Result<(), String> {
    let authorized = cluster.authorize(attributes.user, &question).await;
    if authorized.decision == authz::Decision::Allow {
        return Ok(());
    }
    // Formats like Go, where a missing error prints as `<nil>`.
    let error = authorized.error.unwrap_or_else(|| "<nil>".to_owned());
    Err(format!("{}, {error}", authorized.reason))
}

/// An owner reference that newly blocks the deletion of its owner needs permission to set the owner's
/// finalizers.
async fn check_blocking(
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
    cluster: &dyn ClusterView,
) -> Result<(), Status> {
    let before = attributes.old_object.stored().into_iter().flat_map(meta::owner_references);
    let before: HashSet<Str> = before.filter(|old| old.block_owner_deletion).map(|old| old.uid).collect();
    let was_blocking = |owner: &meta::OwnerReference| before.contains(&owner.uid);
    let blocking: Vec<meta::OwnerReference> = meta::owner_references(new)
        .filter(|owner| owner.block_owner_deletion && !was_blocking(owner))
        .collect();
    if blocking.is_empty() {
        return Ok(());
    }
    let anything = authz::AuthorizationAttributes {
        subresource: "finalizers".into(),
        name: "*".into(),
        ..authz::AuthorizationAttributes::resource("update", "*", "*")
    };
    if authorize(attributes, anything, cluster).await.is_ok() {
        return Ok(());
    }
    for owner in blocking {
        let served = GroupVersion::parse(&owner.api_version)
            .map(|version| version.kind(owner.kind.clone()))
            .and_then(|kind| {
                cluster.rest_mapping(&kind).ok_or_else(|| {
                    format!("no matches for kind \"{}\" in version \"{}\"", owner.kind, owner.api_version)
                })
            });
        let served = served.map_err(|why| {
            let meta::OwnerReference { api_version, kind, .. } = &owner;
            attributes.refuse(
                Some(new),
                format!(
                    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: {why}"
                ),
            )
        })?;
        let question = authz::AuthorizationAttributes {
            version: served.kind.version.clone(),
            namespace: if served.namespaced { attributes.namespace.clone() } else { value::Str::default() },
            name: owner.name.clone(),
            subresource: "finalizers".into(),
            ..authz::AuthorizationAttributes::resource(
                "update",
                served.resource.group,
                served.resource.resource,
            )
        };
        if let Err(why) = authorize(attributes, question, cluster).await {
            let why = format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {why}"
            );
            return Err(attributes.refuse(Some(new), why));
        }
    }
    Ok(())
}

//! The parameters of a binding, as they are now.

use std::sync::Arc;

use api::GroupVersionKind;
use value::Value;

use super::Policy;
use super::binding::ParamRef;
use crate::matching::Asked;
use crate::{ParamError, Served};

/// What a policy is evaluated with, once for each.
pub(super) enum Params {
    /// Once, with `params` null.
    Unset,
    /// Once with each of these.
    Each(Vec<Arc<Value>>),
}

/// What it costs to bring an object into the shape that expressions see, in their units.
const SHOWN: u64 = 1000;

/// The objects that a binding names, as clients read them in the version of the policy's `paramKind`. The error is that of a binding that cannot be used.
pub(super) async fn collect(
    served: Option<&Served>,
    reference: Option<&ParamRef>,
    asked: &Asked<'_>,
) -> Result<Params, ParamError> {
    let (Some(served), Some(reference)) = (served, reference) else { return Ok(Params::Unset) };
    let namespace = if served.namespaced {
        match (reference.namespace.as_str(), asked.namespace()) {
            ("", "") => {
                return Err(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_owned()
                        .into(),
                );
            }
            ("", of_request) => of_request,
            (named, _) => named,
        }
    } else if reference.namespace.is_empty() {
        ""
    } else {
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            .to_owned()
            .into());
    };
    let cluster = asked.cluster;
    let found: Vec<Arc<Value>> = match (reference.name.as_str(), &reference.selector) {
        ("", Some(selector)) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            let mut found = Vec::new();
            for name in cluster.names_of(served, namespace) {
                // There may be thousands.
                asked.pace().add(SHOWN);
                if asked.pace().is_due() {
                    asked.pace().rest().await;
                }
                let shown = cluster.shown(served, namespace, &name).await?;
                found.extend(shown.filter(|object| selector.matches_object(object)));
            }
            found
        }
        ("", None) => return Err("one of name or selector must be provided".to_owned().into()),
        (_, Some(_)) => {
            return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned().into());
        }
        (name, None) => {
            asked.pace().add(SHOWN);
            cluster.shown(served, namespace, name).await?.into_iter().collect()
        }
    };
    if found.is_empty() && reference.must_exist {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction"
            .to_owned()
            .into());
    }
    Ok(Params::Each(found))
}

/// The resource of a policy's `paramKind`; an error if nothing serves it.
pub(super) fn served(policy: &Policy, asked: &Asked<'_>) -> Result<Option<Served>, ParamError> {
    let Some(kind) = &policy.params else { return Ok(None) };
    let served = asked.cluster.served_param(kind).map_err(ParamError::Unreadable)?;
    served.map(Some).ok_or_else(|| unknown(kind).into())
}

fn unknown(kind: &GroupVersionKind) -> String {
    format!("failed to find resource referenced by paramKind: '{kind}'")
}

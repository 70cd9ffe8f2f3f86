//! Looks up the parameter objects of a binding.

use std::sync::Arc;

use api::GroupVersionKind;
use value::Value;

use super::binding::ParamRef;
use super::{CompiledPolicy, PolicyBinding};
use crate::matching::RequestContext;
use crate::{ParamError, RestMapping};

pub(super) enum PolicyParams {
    /// Evaluate once with `params` null.
    Unset,
    /// Evaluate once with each object.
    Each(Vec<Arc<Value>>),
}

/// Cost of reading one parameter object, in units of expression cost.
const READ_COST: u64 = 1000;

/// The parameters of a binding; `None` if the binding does not select the request.
pub(super) async fn of_binding(
    binding: &PolicyBinding,
    mapping: Option<&RestMapping>,
    context: &RequestContext<'_>,
) -> Result<Option<PolicyParams>, ParamError> {
    match &binding.criteria {
        None => {}
        Some(Err(why)) => return Err(why.clone().into()),
        Some(Ok(criteria)) => {
            let matched = criteria.matches(context).map_err(|status| status.message().to_owned())?;
            if matched.is_none() {
                return Ok(None);
            }
        }
    }
    collect(mapping, binding.params.as_ref(), context).await.map(Some)
}

/// The objects that a binding's `paramRef` selects, in the version of the policy's `paramKind`.
async fn collect(
    mapping: Option<&RestMapping>,
    reference: Option<&ParamRef>,
    context: &RequestContext<'_>,
) -> Result<PolicyParams, ParamError> {
    let (Some(mapping), Some(reference)) = (mapping, reference) else { return Ok(PolicyParams::Unset) };
    let namespace = if mapping.namespaced {
        match (reference.namespace.as_str(), context.namespace()) {
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
    let cluster = context.cluster;
    let found: Vec<Arc<Value>> = match (reference.name.as_str(), &reference.selector) {
        ("", Some(selector)) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            let mut found = Vec::new();
            for name in cluster.names_of(mapping, namespace) {
                // A selector can match thousands of objects.
                context.pacer().add(READ_COST);
                if context.pacer().is_due() {
                    context.pacer().yield_now().await;
                }
                let read_as = cluster.read_as(mapping, namespace, &name).await?;
                found.extend(read_as.filter(|object| selector.matches_object(object)));
            }
            found
        }
        ("", None) => return Err("one of name or selector must be provided".to_owned().into()),
        (_, Some(_)) => {
            return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned().into());
        }
        (name, None) => {
            context.pacer().add(READ_COST);
            cluster.read_as(mapping, namespace, name).await?.into_iter().collect()
        }
    };
    if found.is_empty() && reference.must_exist {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction"
            .to_owned()
            .into());
    }
    Ok(PolicyParams::Each(found))
}

/// The resource of a policy's `paramKind`; `None` if the policy has no parameters.
pub(super) fn mapping(
    policy: &CompiledPolicy,
    context: &RequestContext<'_>,
) -> Result<Option<RestMapping>, ParamError> {
    let Some(kind) = &policy.params else { return Ok(None) };
    let mapping = context.cluster.param_rest_mapping(kind).map_err(ParamError::Unreadable)?;
    mapping.map(Some).ok_or_else(|| unknown_kind(kind).into())
}

fn unknown_kind(kind: &GroupVersionKind) -> String {
    format!("failed to find resource referenced by paramKind: '{kind}'")
}

//! Match criteria of webhooks and policies, except match conditions.

use std::borrow::Cow;

use api::selector::LabelSelector;
use api::{GroupResource, GroupVersionKind, Status};
use value::{Str, Value};

use super::{AdmissionRule, RequestContext, RuleTarget};
use crate::AdmissionAttributes;

/// Rules, selectors and match policy.
#[derive(Clone, Debug)]
pub struct MatchCriteria {
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    rules: Vec<AdmissionRule>,
    excluded: Vec<AdmissionRule>,
    equivalent: bool,
    /// Whether an empty list of rules matches everything.
    everything: bool,
}

/// The matched resource: the requested one, or the equivalent one that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchedResource {
    pub resource: GroupResource,
    pub version: Str,
    /// The kind, in the version to which objects are converted.
    pub kind: GroupVersionKind,
}

impl MatchCriteria {
    /// Reads a policy's `matchConstraints` or a binding's `matchResources`. Both selectors must be set,
    /// though they may be empty.
    pub fn of_policy(resources: &Value) -> Result<Self, String> {
        for (field, name) in [("namespaceSelector", "namespace"), ("objectSelector", "object")] {
            if resources.get(field).is_none_or(Value::is_null) {
                return Err(format!(
                    "a nil {name} selector was passed, please ensure selectors are initialized properly"
                ));
            }
        }
        Ok(Self::read(resources, "resourceRules", true))
    }

    pub fn of_webhook(webhook: &Value) -> Self {
        Self::read(webhook, "rules", false)
    }

    fn read(holder: &Value, rules: &str, everything: bool) -> Self {
        let read = |field: &str| holder.list_at(&[field]).iter().map(AdmissionRule::read).collect();
        MatchCriteria {
            namespaces: LabelSelector::from_label_selector(holder.get("namespaceSelector")),
            objects: LabelSelector::from_label_selector(holder.get("objectSelector")),
            rules: read(rules),
            excluded: read("excludeResourceRules"),
            equivalent: holder.str_at(&["matchPolicy"]) == Some("Equivalent"),
            everything,
        }
    }

    /// The rules for an index; `None` if everything matches.
    pub fn rules(&self) -> Option<&[AdmissionRule]> {
        if self.rules.is_empty() && self.everything { None } else { Some(&self.rules) }
    }

    /// Returns the matched resource; `None` if the request does not match. Errors (an invalid selector, a
    /// missing namespace) count only if everything else matches.
    pub fn matches<'m>(
        &self,
        context: &'m RequestContext<'_>,
    ) -> Result<Option<Cow<'m, MatchedResource>>, Status> {
        let namespace = self.matches_namespace(context);
        if matches!(namespace, Ok(false)) {
            return Ok(None);
        }
        let object = self.matches_object(context);
        if matches!(object, Ok(false)) {
            return Ok(None);
        }
        if !self.excluded.is_empty() && self.matches_rules(&self.excluded, context).is_some() {
            return Ok(None);
        }
        let matched = match self.rules() {
            None => Some(Cow::Borrowed(context.own_match())),
            Some(rules) => self.matches_rules(rules, context),
        };
        let Some(matched) = matched else { return Ok(None) };
        namespace?;
        object?;
        Ok(Some(matched))
    }

    /// Matches the namespace selector. Cluster-scoped objects other than namespaces always match.
    fn matches_namespace(&self, context: &RequestContext<'_>) -> Result<bool, Status> {
        if context.namespace().is_empty() && context.attributes.resource.resource != "namespaces" {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(Status::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        Ok(selector.matches_object(context.selected_namespace()?))
    }

    /// Matches the object selector with the new or the old object.
    fn matches_object(&self, context: &RequestContext<'_>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().map_err(Status::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let selects = |object: Option<&Value>| {
            object.is_some_and(|object| has_metadata(object) && selector.matches_object(object))
        };
        Ok(selects(context.object) || selects(context.attributes.old_object.stored()))
    }

    fn matches_rules<'m>(
        &self,
        rules: &[AdmissionRule],
        context: &'m RequestContext<'_>,
    ) -> Option<Cow<'m, MatchedResource>> {
        let attributes = context.attributes;
        let target = RuleTarget {
            group: &attributes.resource.group,
            version: &attributes.version,
            resource: &attributes.resource.resource,
            subresource: &attributes.subresource,
            operation: attributes.operation,
            namespace: context.namespace(),
            name: context.name(),
        };
        if rules.iter().any(|rule| rule.matches(&target) && rule.matches_name(target.name)) {
            return Some(Cow::Borrowed(context.own_match()));
        }
        if !self.equivalent {
            return None;
        }
        for rule in rules {
            for mapping in context.equivalents() {
                let (resource, version) = (&mapping.resource, &mapping.kind.version);
                if *resource == attributes.resource && *version == attributes.version {
                    continue;
                }
                let target =
                    RuleTarget { group: &resource.group, version, resource: &resource.resource, ..target };
                if rule.matches(&target) && rule.matches_name(target.name) {
                    return Some(Cow::Owned(MatchedResource {
                        resource: resource.clone(),
                        version: version.clone(),
                        kind: equivalent_kind(attributes, &mapping.kind),
                    }));
                }
            }
        }
        None
    }
}

/// The object's kind in a request for an equivalent resource. A subresource with a kind of its own, such as
/// `Scale`, keeps it.
fn equivalent_kind(attributes: &AdmissionAttributes<'_>, kind: &GroupVersionKind) -> GroupVersionKind {
    if attributes.subresource.is_empty() || attributes.kind.kind == kind.kind {
        kind.clone()
    } else {
        attributes.kind.clone()
    }
}

/// Whether an object can have labels. The options of a connect request cannot.
fn has_metadata(object: &Value) -> bool {
    object.get("metadata").is_some()
}

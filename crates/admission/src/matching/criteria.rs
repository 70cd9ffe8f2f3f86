//! All that says whether a webhook or policy is about a request, but for its match conditions.

use std::borrow::Cow;

use api::selector::LabelSelector;
use api::{GroupResource, GroupVersionKind, Status};
use value::{Str, Value};

use super::{Asked, Rule, Target};
use crate::Attributes;

/// Rules, selectors and the match policy.
#[derive(Clone, Debug)]
pub struct Criteria {
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    equivalent: bool,
    /// Whether no rules at all mean everything.
    everything: bool,
}

/// As what a request matched: itself, or the equivalent resource that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The resource.
    pub resource: GroupResource,
    /// Its version.
    pub version: Str,
    /// The kind in which the objects are shown.
    pub kind: GroupVersionKind,
}

impl Criteria {
    /// Reads a policy's `matchConstraints` or a binding's `matchResources`. Validation asks for both selectors, so one that is
    /// missing is told from an empty one.
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

    /// Reads a webhook.
    pub fn of_webhook(webhook: &Value) -> Self {
        Self::read(webhook, "rules", false)
    }

    fn read(holder: &Value, rules: &str, everything: bool) -> Self {
        let read = |field: &str| holder.list_at(&[field]).iter().map(Rule::read).collect();
        Criteria {
            namespaces: LabelSelector::from_label_selector(holder.get("namespaceSelector")),
            objects: LabelSelector::from_label_selector(holder.get("objectSelector")),
            rules: read(rules),
            excluded: read("excludeResourceRules"),
            equivalent: holder.str_at(&["matchPolicy"]) == Some("Equivalent"),
            everything,
        }
    }

    /// The rules, for an index; `None` if they match everything.
    pub fn rules(&self) -> Option<&[Rule]> {
        if self.rules.is_empty() && self.everything { None } else { Some(&self.rules) }
    }

    /// Whether a request matches, and as what. An error (a selector that cannot be read, a namespace that does not exist) counts
    /// only if everything else matches.
    pub fn matches<'m>(&self, asked: &'m Asked<'_>) -> Result<Option<Cow<'m, Match>>, Status> {
        let namespace = self.matches_namespace(asked);
        if matches!(namespace, Ok(false)) {
            return Ok(None);
        }
        let object = self.matches_object(asked);
        if matches!(object, Ok(false)) {
            return Ok(None);
        }
        if !self.excluded.is_empty() && self.matches_rules(&self.excluded, asked).is_some() {
            return Ok(None);
        }
        let matched = match self.rules() {
            None => Some(Cow::Borrowed(asked.itself())),
            Some(rules) => self.matches_rules(rules, asked),
        };
        let Some(matched) = matched else { return Ok(None) };
        namespace?;
        object?;
        Ok(Some(matched))
    }

    /// The namespace selector. What is in no namespace is never left out by it, unless it is one.
    fn matches_namespace(&self, asked: &Asked<'_>) -> Result<bool, Status> {
        if asked.namespace().is_empty() && asked.attributes.resource.resource != "namespaces" {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(Status::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        Ok(selector.matches_object(asked.selected_namespace()?))
    }

    /// The object selector, on the new object or the old one.
    fn matches_object(&self, asked: &Asked<'_>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().map_err(Status::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let selects = |object: Option<&Value>| {
            object.is_some_and(|object| has_metadata(object) && selector.matches_object(object))
        };
        Ok(selects(asked.object) || selects(asked.attributes.old_object.stored()))
    }

    fn matches_rules<'m>(&self, rules: &[Rule], asked: &'m Asked<'_>) -> Option<Cow<'m, Match>> {
        let attributes = asked.attributes;
        let target = Target {
            group: &attributes.resource.group,
            version: &attributes.version,
            resource: &attributes.resource.resource,
            subresource: &attributes.subresource,
            operation: attributes.operation,
            namespace: asked.namespace(),
            name: asked.name(),
        };
        if rules.iter().any(|rule| rule.matches(&target) && rule.matches_name(target.name)) {
            return Some(Cow::Borrowed(asked.itself()));
        }
        if !self.equivalent {
            return None;
        }
        for rule in rules {
            for served in asked.equivalents() {
                let (resource, version) = (&served.resource, &served.kind.version);
                if *resource == attributes.resource && *version == attributes.version {
                    continue;
                }
                let target =
                    Target { group: &resource.group, version, resource: &resource.resource, ..target };
                if rule.matches(&target) && rule.matches_name(target.name) {
                    return Some(Cow::Owned(Match {
                        resource: resource.clone(),
                        version: version.clone(),
                        kind: equivalent_kind(attributes, &served.kind),
                    }));
                }
            }
        }
        None
    }
}

/// The kind that a request for an equivalent resource would have. A subresource with a kind of its own (a `Scale`) has it in all
/// versions of its resource.
fn equivalent_kind(attributes: &Attributes<'_>, kind: &GroupVersionKind) -> GroupVersionKind {
    if attributes.subresource.is_empty() || attributes.kind.kind == kind.kind {
        kind.clone()
    } else {
        attributes.kind.clone()
    }
}

/// Whether an object is one that can have labels; the options of a connection are not.
fn has_metadata(object: &Value) -> bool {
    object.get("metadata").is_some()
}

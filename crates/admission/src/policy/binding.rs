//! A policy binding: the policy, its parameters, the requests it selects, and the validation actions.

use std::sync::Arc;

use api::selector::LabelSelector;
use value::{Str, Value};

use crate::inventory::{InventoryEntry, ZERO_COST};
use crate::matching::MatchCriteria;

/// `validationActions` of a binding: the effect of a failed validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationAction {
    Deny,
    Warn,
    /// Adds an annotation to the audit event.
    Audit,
}

impl ValidationAction {
    pub fn as_str(self) -> &'static str {
        match self {
            ValidationAction::Deny => "Deny",
            ValidationAction::Warn => "Warn",
            ValidationAction::Audit => "Audit",
        }
    }

    /// The value of the `enforcement_action` label.
    pub(super) fn label(self) -> &'static str {
        match self {
            ValidationAction::Deny => "deny",
            ValidationAction::Warn => "warn",
            ValidationAction::Audit => "audit",
        }
    }

    fn read(word: &str) -> Option<Self> {
        [ValidationAction::Deny, ValidationAction::Warn, ValidationAction::Audit]
            .into_iter()
            .find(|action| action.as_str() == word)
    }
}

#[derive(Clone, Debug)]
pub(super) struct ParamRef {
    pub(super) name: Str,
    pub(super) namespace: Str,
    pub(super) selector: Option<Result<LabelSelector, String>>,
    pub(super) must_exist: bool,
}

/// A binding of a validating or mutating policy.
#[derive(Clone, Debug)]
pub struct PolicyBinding {
    pub name: Str,
    /// The name of the bound policy.
    pub policy: Str,
    pub(super) criteria: Option<Result<MatchCriteria, String>>,
    pub(super) params: Option<ParamRef>,
    /// Empty for bindings of mutating policies.
    pub actions: Vec<ValidationAction>,
    pub inventory: Arc<InventoryEntry>,
}

impl PolicyBinding {
    pub fn read(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let text = |keys: &[&str]| Str::from(spec.str_at(keys).unwrap_or_default());
        let present = |field: &str| spec.get(field).filter(|value| !value.is_null());
        let params = present("paramRef").map(|reference| ParamRef {
            name: text(&["paramRef", "name"]),
            namespace: text(&["paramRef", "namespace"]),
            selector: reference
                .get("selector")
                .filter(|selector| !selector.is_null())
                .map(|selector| LabelSelector::from_label_selector(Some(selector))),
            must_exist: reference.str_at(&["parameterNotFoundAction"]) == Some("Deny"),
        });
        PolicyBinding {
            name: api::meta::name(object).into(),
            policy: text(&["policyName"]),
            criteria: present("matchResources").map(MatchCriteria::of_policy),
            params,
            inventory: Arc::new(InventoryEntry::new(object, spec, &["matchResources"], ZERO_COST)),
            actions: spec
                .list_at(&["validationActions"])
                .iter()
                .filter_map(Value::as_str)
                .filter_map(ValidationAction::read)
                .collect(),
        }
    }
}

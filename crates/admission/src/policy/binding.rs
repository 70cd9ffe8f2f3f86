//! A binding: which policy, with which parameters, for which requests, and what a failure leads to.

use std::sync::Arc;

use api::selector::LabelSelector;
use value::{Str, Value};

use crate::account::{Account, FREE};
use crate::matching::Criteria;

/// What a failed validation leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is refused.
    Deny,
    /// The client is warned.
    Warn,
    /// The audit event says so.
    Audit,
}

impl Action {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Deny => "Deny",
            Action::Warn => "Warn",
            Action::Audit => "Audit",
        }
    }

    /// The label of metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Action::Deny => "deny",
            Action::Warn => "warn",
            Action::Audit => "audit",
        }
    }

    fn read(word: &str) -> Option<Self> {
        [Action::Deny, Action::Warn, Action::Audit].into_iter().find(|action| action.as_str() == word)
    }
}

/// Which parameters a binding names.
#[derive(Clone, Debug)]
pub(super) struct ParamRef {
    pub(super) name: Str,
    pub(super) namespace: Str,
    pub(super) selector: Option<Result<LabelSelector, String>>,
    pub(super) must_exist: bool,
}

/// A binding of either kind.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Its name.
    pub name: Str,
    /// The policy it binds.
    pub policy: Str,
    pub(super) criteria: Option<Result<Criteria, String>>,
    pub(super) params: Option<ParamRef>,
    /// What a failure leads to; empty for mutating ones.
    pub actions: Vec<Action>,
    /// What operators may know of it.
    pub account: Arc<Account>,
}

impl Binding {
    /// Reads a binding.
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
        Binding {
            name: api::meta::name(object).into(),
            policy: text(&["policyName"]),
            criteria: present("matchResources").map(Criteria::of_policy),
            params,
            account: Arc::new(Account::new(object, spec, &["matchResources"], FREE)),
            actions: spec
                .list_at(&["validationActions"])
                .iter()
                .filter_map(Value::as_str)
                .filter_map(Action::read)
                .collect(),
        }
    }
}

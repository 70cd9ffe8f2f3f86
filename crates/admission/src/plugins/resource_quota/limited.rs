//! The plugin's configuration: resources that may be used only under a quota.

use std::collections::BTreeSet;

use api::{FieldError, GroupResource, Status};
use value::{Path, Str, Value};

use super::scopes;
use super::usage::{QuotaEvaluator, UsageContext};
use crate::configuration::document::ConfigDocument;
use crate::{AdmissionAttributes, ClusterView};

/// The location of Go's scheme for this kind, which is part of its error messages.
const SCHEME: &str = "k8s.io/apiserver/pkg/admission/plugin/resourcequota/config.go:31";

/// A resource that needs a quota.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitedResource {
    resource: GroupResource,
    /// `matchContains`: usage under a name that contains one of these needs a quota.
    contains: Vec<Str>,
    /// `matchScopes`: an object in one of these scopes needs a quota with that scope.
    scopes: Vec<Value>,
}

impl LimitedResource {
    /// Parses the plugin's configuration. The error is kube-apiserver's.
    pub fn parse(bytes: &[u8]) -> Result<Vec<Self>, String> {
        const OWNER: &str = "Configuration";
        const LIMITED: &str = "LimitedResource";
        const SCOPE: &str = "ScopedResourceSelectorRequirement";
        const OLD: &str = "resourcequota.admission.k8s.io";
        let document = ConfigDocument::read(bytes)?;
        if document.expect_kind(OLD, &["v1alpha1", "v1beta1"], OWNER, SCHEME).is_err() {
            document.expect_kind("apiserver.config.k8s.io", &["v1"], "ResourceQuotaConfiguration", SCHEME)?;
        }
        let (root, mut fields) = document.fields();
        let mut read = Vec::new();
        let list = fields.list(&root, OWNER, "limitedResources", "[]v1.LimitedResource");
        for (index, limited) in list.iter().enumerate() {
            let Value::Map(map) = limited else {
                fields.type_mismatch(limited, OWNER, "", "limitedResources", "v1.LimitedResource");
                continue;
            };
            let at = "limitedResources";
            let group = fields.text(map, LIMITED, at, "apiGroup");
            let resource = fields.text(map, LIMITED, at, "resource");
            let contains = fields.texts(map, LIMITED, at, "matchContains");
            let scopes = fields.list(map, LIMITED, "matchScopes", &format!("[]v1.{SCOPE}"));
            let object = format!("{at}.matchScopes");
            for (index, scope) in scopes.iter().enumerate() {
                let Value::Map(map) = scope else {
                    fields.type_mismatch(scope, LIMITED, at, "matchScopes", &format!("v1.{SCOPE}"));
                    continue;
                };
                fields.text(map, SCOPE, &object, "scopeName");
                fields.text(map, SCOPE, &object, "operator");
                fields.texts(map, SCOPE, &object, "values");
                let path = format!("{at}[{index}].matchScopes[{index}]");
                fields.reject_unknown(map, &path, &["operator", "scopeName", "values"]);
            }
            let known = ["apiGroup", "matchContains", "matchScopes", "resource"];
            fields.reject_unknown(map, &format!("{at}[{index}]"), &known);
            read.push(LimitedResource {
                resource: GroupResource::new(group, resource),
                contains,
                scopes: scopes.to_vec(),
            });
        }
        fields.reject_unknown(&root, "", &["apiVersion", "kind", "limitedResources"]);
        fields.finish()?;
        let missing = read.iter().enumerate().filter(|(_, limited)| limited.resource.resource.is_empty());
        let errors: Vec<FieldError> = missing
            .map(|(index, _)| {
                FieldError::required(
                    &Path::root().field("limitedResources").index(index).field("resource"),
                    "",
                )
            })
            .collect();
        if errors.is_empty() { Ok(read) } else { Err(api::field::aggregate(&errors)) }
    }
}

/// The quotas that an object still needs.
pub(super) struct RequiredQuotas<'a> {
    names: BTreeSet<Str>,
    scopes: Vec<&'a Value>,
}

impl<'a> RequiredQuotas<'a> {
    pub(super) fn of(
        limited: &'a [LimitedResource],
        attributes: &AdmissionAttributes<'_>,
        evaluator: &QuotaEvaluator,
        object: &Value,
        cluster: &dyn ClusterView,
    ) -> Self {
        let scopes = limited.iter().flat_map(|limited| &limited.scopes);
        let scopes = scopes.filter(|scope| scopes::is_in(scope, evaluator, object)).collect();
        let mut names = BTreeSet::new();
        let own: Vec<&LimitedResource> =
            limited.iter().filter(|limited| limited.resource == attributes.resource).collect();
        if !own.is_empty() {
            let context = UsageContext::new(cluster, &attributes.namespace, attributes.now);
            for (name, amount) in evaluator.usage(object, &context) {
                let contains = |part: &Str| name.contains(part.as_str());
                if amount.sign() > 0 && own.iter().any(|limited| limited.contains.iter().any(contains)) {
                    names.insert(name);
                }
            }
        }
        RequiredQuotas { names, scopes }
    }

    /// Removes the scopes that the quota has and the object is in.
    pub(super) fn remove_scopes(&mut self, quota: &Value, evaluator: &QuotaEvaluator, object: &Value) {
        if self.scopes.is_empty() {
            return;
        }
        let covered = scopes::QuotaScopes::of(quota).matching(evaluator, object);
        self.scopes
            .retain(|needed| !needed.str_at(&["scopeName"]).is_some_and(|scope| covered.contains(scope)));
    }

    /// Removes names that a quota covers to which the object is charged.
    pub(super) fn remove_names(&mut self, names: &BTreeSet<&str>) {
        self.names.retain(|name| !names.contains(name.as_str()));
    }

    pub(super) fn is_met(&self) -> bool {
        self.names.is_empty() && self.scopes.is_empty()
    }

    pub(super) fn check(&self, refuse: impl Fn(String) -> Status) -> Result<(), Status> {
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.iter().map(Str::as_str).collect();
            return Err(refuse(format!("insufficient quota to consume: {}", names.join(","))));
        }
        if self.scopes.is_empty() {
            return Ok(());
        }
        let shown = self.scopes.iter().map(|scope| {
            let text = |field: &str| scope.str_at(&[field]).unwrap_or_default();
            let values: Vec<&str> = scope.list_at(&["values"]).iter().filter_map(Value::as_str).collect();
            format!("{{{} {} [{}]}}", text("scopeName"), text("operator"), values.join(" "))
        });
        let shown: Vec<String> = shown.collect();
        // kube-apiserver returns this as a plain error, not as a 403.
        Err(Status::plain(format!("insufficient quota to match these scopes: [{}]", shown.join(" "))))
    }
}

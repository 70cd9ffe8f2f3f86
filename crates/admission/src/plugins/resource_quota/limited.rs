//! What may be used only where a quota says how much: the plugin's configuration.

use std::collections::BTreeSet;

use api::{FieldError, GroupResource, Status};
use value::{Path, Str, Value};

use super::scopes;
use super::usage::Evaluator;
use crate::configuration::document::Document;
use crate::{Attributes, Cluster};

/// Where Go's scheme of this kind is declared; part of its message.
const SCHEME: &str = "k8s.io/apiserver/pkg/admission/plugin/resourcequota/config.go:31";

/// A resource that nobody may use without a quota for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    resource: GroupResource,
    /// Parts of names: what is used under a name that has one of them needs a quota.
    contains: Vec<Str>,
    /// Scopes: an object in one of them needs a quota of that scope.
    scopes: Vec<Value>,
}

impl Limited {
    /// Reads the plugin's configuration. The error is the one that Kubernetes gives at the start.
    pub fn parse(bytes: &[u8]) -> Result<Vec<Self>, String> {
        const OWNER: &str = "Configuration";
        const LIMITED: &str = "LimitedResource";
        const SCOPE: &str = "ScopedResourceSelectorRequirement";
        const OLD: &str = "resourcequota.admission.k8s.io";
        let document = Document::read(bytes)?;
        if document.is(OLD, &["v1alpha1", "v1beta1"], OWNER, SCHEME).is_err() {
            document.is("apiserver.config.k8s.io", &["v1"], "ResourceQuotaConfiguration", SCHEME)?;
        }
        let (root, mut fields) = document.fields();
        let mut read = Vec::new();
        let list = fields.list(&root, OWNER, "limitedResources", "[]v1.LimitedResource");
        for (index, limited) in list.iter().enumerate() {
            let Value::Map(map) = limited else {
                fields.wrong(limited, OWNER, "", "limitedResources", "v1.LimitedResource");
                continue;
            };
            let at = "limitedResources";
            let group = fields.text(map, LIMITED, at, "apiGroup");
            let resource = fields.text(map, LIMITED, at, "resource");
            let contains = fields.texts(map, LIMITED, at, "matchContains");
            let scopes = fields.list(map, LIMITED, "matchScopes", &format!("[]v1.{SCOPE}"));
            let inside = format!("{at}.matchScopes");
            for (place, scope) in scopes.iter().enumerate() {
                let Value::Map(map) = scope else {
                    fields.wrong(scope, LIMITED, at, "matchScopes", &format!("v1.{SCOPE}"));
                    continue;
                };
                fields.text(map, SCOPE, &inside, "scopeName");
                fields.text(map, SCOPE, &inside, "operator");
                fields.texts(map, SCOPE, &inside, "values");
                let path = format!("{at}[{index}].matchScopes[{place}]");
                fields.only(map, &path, &["operator", "scopeName", "values"]);
            }
            let known = ["apiGroup", "matchContains", "matchScopes", "resource"];
            fields.only(map, &format!("{at}[{index}]"), &known);
            read.push(Limited {
                resource: GroupResource::new(group, resource),
                contains,
                scopes: scopes.to_vec(),
            });
        }
        fields.only(&root, "", &["apiVersion", "kind", "limitedResources"]);
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

/// What an object needs quotas for, and has none so far.
pub(super) struct Needed<'a> {
    names: BTreeSet<Str>,
    scopes: Vec<&'a Value>,
}

impl<'a> Needed<'a> {
    pub(super) fn of(
        limited: &'a [Limited],
        attributes: &Attributes<'_>,
        evaluator: &Evaluator,
        object: &Value,
        cluster: &dyn Cluster,
    ) -> Self {
        let scopes = limited.iter().flat_map(|limited| &limited.scopes);
        let scopes = scopes.filter(|scope| scopes::is_in(scope, evaluator, object)).collect();
        let mut names = BTreeSet::new();
        let own: Vec<&Limited> =
            limited.iter().filter(|limited| limited.resource == attributes.resource).collect();
        if !own.is_empty() {
            for (name, amount) in evaluator.usage(object, cluster, attributes.now) {
                let contains = |part: &Str| name.contains(part.as_str());
                if amount.sign() > 0 && own.iter().any(|limited| limited.contains.iter().any(contains)) {
                    names.insert(name);
                }
            }
        }
        Needed { names, scopes }
    }

    /// A quota covers the scopes of its own that the object is in, whatever else it is about.
    pub(super) fn scopes_of(&mut self, quota: &Value, evaluator: &Evaluator, object: &Value) {
        if self.scopes.is_empty() {
            return;
        }
        let covered = scopes::of_quota(quota);
        let covered: Vec<&Value> =
            covered.iter().filter(|scope| scopes::is_in(scope, evaluator, object)).collect();
        self.scopes.retain(|needed| {
            !covered.iter().any(|scope| scope.str_at(&["scopeName"]) == needed.str_at(&["scopeName"]))
        });
    }

    /// A quota that the object is charged to covers these names.
    pub(super) fn cover(&mut self, names: &BTreeSet<&str>) {
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
        // Kubernetes makes no status of this.
        Err(Status::plain(format!("insufficient quota to match these scopes: [{}]", shown.join(" "))))
    }
}

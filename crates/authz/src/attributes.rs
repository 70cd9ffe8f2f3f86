//! [`AuthorizationAttributes`]: the request attributes of authorization.

use std::sync::Arc;

use api::selector::{FieldSelector, LabelOperator, LabelSelector};
use value::Str;

/// The attributes of a request without its user. Strings that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AuthorizationAttributes {
    /// `get`, `list`, `create`, …; for non-resource paths the HTTP method in lower case.
    pub verb: Str,
    /// Empty for the core group.
    pub group: Str,
    pub version: Str,
    /// The plural name, for example `pods`.
    pub resource: Str,
    pub subresource: Str,
    /// Empty for cluster-scoped objects and for all namespaces.
    pub namespace: Str,
    /// Empty if the request is not for a single object.
    pub name: Str,
    /// The URL path without query parameters.
    pub path: Str,
    /// Whether the request is for a resource. Otherwise only `verb` and `path` count.
    pub is_resource: bool,
    /// The field selector of a list, watch or deletecollection.
    pub fields: SelectorAttributes,
    /// The label selector of a list, watch or deletecollection.
    pub labels: SelectorAttributes,
}

/// A selector as authorizers see it: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SelectorAttributes {
    /// An empty list selects everything.
    pub requirements: Vec<Requirement>,
    /// The error of an invalid selector. Authorizers treat it as absent, which only widens the request.
    pub error: Option<Str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// A label key or a field path.
    pub key: Str,
    pub operator: SelectorOperator,
    pub values: Arc<[Str]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectorOperator {
    In,
    /// The key is absent, or its value is not one of the listed ones.
    NotIn,
    Exists,
    DoesNotExist,
}

impl SelectorAttributes {
    /// Parses a `labelSelector` parameter.
    pub fn of_labels(text: &str) -> Self {
        Self::of_parsed_labels(&LabelSelector::parse(text))
    }

    /// The attributes of a parsed label selector, which share its values.
    pub fn of_parsed_labels(parsed: &Result<LabelSelector, String>) -> Self {
        let selector = match parsed {
            Ok(selector) => selector,
            Err(error) => return Self::invalid(error),
        };
        let requirements = selector.requirements().iter().filter_map(|requirement| {
            let operator = match requirement.operator() {
                LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => {
                    SelectorOperator::In
                }
                LabelOperator::NotIn | LabelOperator::NotEquals => SelectorOperator::NotIn,
                LabelOperator::Exists => SelectorOperator::Exists,
                LabelOperator::DoesNotExist => SelectorOperator::DoesNotExist,
                // Authorization has no numeric comparisons. Dropping them only widens the request.
                LabelOperator::GreaterThan | LabelOperator::LessThan => return None,
            };
            let values = Arc::clone(requirement.values());
            Some(Requirement { key: requirement.key().into(), operator, values })
        });
        SelectorAttributes { requirements: requirements.collect(), error: None }
    }

    /// Parses a `fieldSelector` parameter.
    pub fn of_fields(text: &str) -> Self {
        Self::of_parsed_fields(&FieldSelector::parse(text))
    }

    /// The attributes of a parsed field selector.
    pub fn of_parsed_fields(parsed: &Result<FieldSelector, String>) -> Self {
        let selector = match parsed {
            Ok(selector) => selector,
            Err(error) => return Self::invalid(error),
        };
        let requirements = selector.requirements().iter().map(|requirement| Requirement {
            key: requirement.field.clone(),
            operator: if requirement.equals { SelectorOperator::In } else { SelectorOperator::NotIn },
            values: Arc::new([requirement.value.clone()]),
        });
        SelectorAttributes { requirements: requirements.collect(), error: None }
    }

    fn invalid(error: &str) -> Self {
        SelectorAttributes { requirements: Vec::new(), error: Some(error.into()) }
    }
}

impl SelectorOperator {
    /// The name in reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            SelectorOperator::In => "In",
            SelectorOperator::NotIn => "NotIn",
            SelectorOperator::Exists => "Exists",
            SelectorOperator::DoesNotExist => "DoesNotExist",
        }
    }
}

impl AuthorizationAttributes {
    pub fn resource(verb: impl Into<Str>, group: impl Into<Str>, resource: impl Into<Str>) -> Self {
        AuthorizationAttributes {
            verb: verb.into(),
            group: group.into(),
            version: Str::new_static("*"),
            resource: resource.into(),
            is_resource: true,
            ..AuthorizationAttributes::default()
        }
    }

    /// Attributes of a request for a non-resource path.
    pub fn path(verb: impl Into<Str>, path: impl Into<Str>) -> Self {
        AuthorizationAttributes { verb: verb.into(), path: path.into(), ..AuthorizationAttributes::default() }
    }

    /// The total length in bytes of the parts that a client can choose freely.
    pub(crate) fn weight(&self) -> usize {
        let parts = [
            &self.namespace,
            &self.verb,
            &self.group,
            &self.version,
            &self.resource,
            &self.subresource,
            &self.name,
            &self.path,
        ];
        parts.iter().map(|part| part.len()).sum()
    }

    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Str>) -> Self {
        self.namespace = namespace.into();
        self
    }

    #[must_use]
    pub fn named(mut self, name: impl Into<Str>) -> Self {
        self.name = name.into();
        self
    }

    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<Str>) -> Self {
        self.subresource = subresource.into();
        self
    }
}

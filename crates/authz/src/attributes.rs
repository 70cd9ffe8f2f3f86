//! [`Attributes`]: what a request asks to do, to what.

use value::Str;

/// What is asked, without who asks. Of the strings, those that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// `get`, `list`, `create`, …, or an HTTP method in lower case for paths that are no resource.
    pub verb: Str,
    /// The API group; empty for the core group.
    pub group: Str,
    /// The API version.
    pub version: Str,
    /// The resource's plural name.
    pub resource: Str,
    /// The subresource.
    pub subresource: Str,
    /// The namespace; empty for cluster-scoped objects and for all namespaces.
    pub namespace: Str,
    /// The object's name; empty where the request is about none in particular.
    pub name: Str,
    /// The path of the URL.
    pub path: Str,
    /// Whether this is about a resource; otherwise only `verb` and `path` count.
    pub is_resource: bool,
    /// The field selector of a list, watch or deletecollection.
    pub fields: Selector,
    /// The label selector of a list, watch or deletecollection.
    pub labels: Selector,
}

/// A selector as authorizers see it: all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// The requirements; empty selects everything.
    pub requirements: Vec<Requirement>,
    /// Why the selector could not be read, if so: authorizers then treat it as absent, which only widens the request.
    pub error: Option<Str>,
}

/// One requirement of a selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    /// The label or field.
    pub key: Str,
    /// How its value relates to `values`.
    pub operator: Operator,
    /// The values.
    pub values: Vec<Str>,
}

/// How a value relates to the values of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// It is one of them.
    In,
    /// It is none of them, or absent.
    NotIn,
    /// It is there.
    Exists,
    /// It is absent.
    DoesNotExist,
}

impl Selector {
    /// Reads the text of a `labelSelector` parameter.
    pub fn of_labels(text: &str) -> Self {
        use api::selector::LabelOperator as Api;
        match api::selector::LabelSelector::parse(text) {
            Err(error) => Selector { requirements: Vec::new(), error: Some(error.into()) },
            Ok(selector) => {
                let requirements = selector.requirements().iter().filter_map(|requirement| {
                    let operator = match requirement.operator() {
                        Api::In | Api::Equals | Api::DoubleEquals => Operator::In,
                        Api::NotIn | Api::NotEquals => Operator::NotIn,
                        Api::Exists => Operator::Exists,
                        Api::DoesNotExist => Operator::DoesNotExist,
                        // Authorizers do not know comparisons of numbers; without one the question is only wider.
                        Api::GreaterThan | Api::LessThan => return None,
                    };
                    let values = requirement.values().to_vec();
                    Some(Requirement { key: requirement.key().into(), operator, values })
                });
                Selector { requirements: requirements.collect(), error: None }
            }
        }
    }

    /// Reads the text of a `fieldSelector` parameter.
    pub fn of_fields(text: &str) -> Self {
        match api::selector::FieldSelector::parse(text) {
            Err(error) => Selector { requirements: Vec::new(), error: Some(error.into()) },
            Ok(selector) => {
                let requirements = selector.requirements().iter().map(|requirement| Requirement {
                    key: requirement.field.clone(),
                    operator: if requirement.equals { Operator::In } else { Operator::NotIn },
                    values: vec![requirement.value.clone()],
                });
                Selector { requirements: requirements.collect(), error: None }
            }
        }
    }
}

impl Operator {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
        }
    }
}

impl Attributes {
    /// A request about a resource.
    pub fn resource(verb: impl Into<Str>, group: impl Into<Str>, resource: impl Into<Str>) -> Self {
        Attributes {
            verb: verb.into(),
            group: group.into(),
            version: Str::new_static("*"),
            resource: resource.into(),
            is_resource: true,
            ..Attributes::default()
        }
    }

    /// A request for a path that is no resource.
    pub fn path(verb: impl Into<Str>, path: impl Into<Str>) -> Self {
        Attributes { verb: verb.into(), path: path.into(), ..Attributes::default() }
    }

    /// How long the parts are that whoever asks may choose.
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

    /// In a namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<Str>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// About one object.
    #[must_use]
    pub fn named(mut self, name: impl Into<Str>) -> Self {
        self.name = name.into();
        self
    }

    /// About a subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<Str>) -> Self {
        self.subresource = subresource.into();
        self
    }
}

//! Nodes and node selectors.

use value::{Map, Value};

/// A node that claims may be allocated on.
#[derive(Clone, Copy, Debug)]
pub struct CandidateNode<'a> {
    name: &'a str,
    labels: Option<&'a Map>,
}

impl<'a> CandidateNode<'a> {
    /// Wraps a stored Node object.
    pub fn of(node: &'a Value) -> Self {
        CandidateNode {
            name: node.str_at(&["metadata", "name"]).unwrap_or_default(),
            labels: node.at(&["metadata", "labels"]).and_then(Value::as_map),
        }
    }

    /// Name of the Node object.
    pub fn name(&self) -> &'a str {
        self.name
    }

    fn label(&self, key: &str) -> Option<&'a str> {
        self.labels?.get(key)?.as_str()
    }

    /// True if pods on the node can use an allocation (a claim's `status.allocation`).
    pub fn reaches(&self, allocation: &Value) -> Result<bool, NodeSelectorError> {
        match allocation.get("nodeSelector").filter(|selector| !selector.is_null()) {
            None => Ok(true),
            Some(selector) => Ok(NodeSelector::read(selector)?.matches(self)),
        }
    }
}

/// An error in a node selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeSelectorError {
    /// The operator is unknown.
    #[error("\"{0}\" is not a valid node selector operator")]
    Operator(String),
    /// Nodes cannot be selected by this field.
    #[error("\"{0}\" is not a valid field label for nodes")]
    Field(String),
    /// The operator does not accept this number of values.
    #[error("wrong number of values for operator `{0}`")]
    Values(String),
}

/// A node selector: a node must meet all requirements of at least one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSelector {
    terms: Vec<Vec<NodeSelectorRequirement>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeSelectorRequirement {
    /// Label key; `None` for the field `metadata.name`.
    label: Option<String>,
    operator: NodeSelectorOperator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeSelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl NodeSelector {
    /// Parses a node selector. Terms without requirements match nothing and are left out.
    pub fn read(selector: &Value) -> Result<Self, NodeSelectorError> {
        let mut terms = Vec::new();
        for term in selector.list_at(&["nodeSelectorTerms"]) {
            let mut requirements = Vec::new();
            for expression in term.list_at(&["matchExpressions"]) {
                let key = expression.str_at(&["key"]).unwrap_or_default();
                requirements.push(NodeSelectorRequirement::read(expression, Some(key.to_owned()))?);
            }
            for field in term.list_at(&["matchFields"]) {
                let key = field.str_at(&["key"]).unwrap_or_default();
                if key != "metadata.name" {
                    return Err(NodeSelectorError::Field(key.to_owned()));
                }
                requirements.push(NodeSelectorRequirement::read(field, None)?);
            }
            if !requirements.is_empty() {
                terms.push(requirements);
            }
        }
        Ok(NodeSelector { terms })
    }

    /// True if the selector matches the node.
    pub fn matches(&self, node: &CandidateNode<'_>) -> bool {
        self.terms.iter().any(|term| term.iter().all(|requirement| requirement.is_met(node)))
    }
}

impl NodeSelectorRequirement {
    fn read(requirement: &Value, label: Option<String>) -> Result<Self, NodeSelectorError> {
        let name = requirement.str_at(&["operator"]).unwrap_or_default();
        let operator = match name {
            "In" => NodeSelectorOperator::In,
            "NotIn" => NodeSelectorOperator::NotIn,
            "Exists" => NodeSelectorOperator::Exists,
            "DoesNotExist" => NodeSelectorOperator::DoesNotExist,
            "Gt" => NodeSelectorOperator::Gt,
            "Lt" => NodeSelectorOperator::Lt,
            other => return Err(NodeSelectorError::Operator(other.to_owned())),
        };
        let values: Vec<String> = requirement
            .list_at(&["values"])
            .iter()
            .map(|value| value.as_str().unwrap_or_default().to_owned())
            .collect();
        let fits = match operator {
            NodeSelectorOperator::In | NodeSelectorOperator::NotIn => !values.is_empty(),
            NodeSelectorOperator::Exists | NodeSelectorOperator::DoesNotExist => values.is_empty(),
            NodeSelectorOperator::Gt | NodeSelectorOperator::Lt => {
                values.len() == 1 && values.iter().all(|value| value.parse::<i64>().is_ok())
            }
        };
        // A field has exactly one value, so only In and NotIn are supported.
        let fits = fits
            && (label.is_some()
                || matches!(operator, NodeSelectorOperator::In | NodeSelectorOperator::NotIn));
        if !fits {
            return Err(NodeSelectorError::Values(name.to_owned()));
        }
        Ok(NodeSelectorRequirement { label, operator, values })
    }

    fn is_met(&self, node: &CandidateNode<'_>) -> bool {
        let actual = match &self.label {
            Some(key) => node.label(key),
            None => Some(node.name),
        };
        let listed = || actual.is_some_and(|actual| self.values.iter().any(|value| value == actual));
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
        let bound = number(self.values.first().map(String::as_str));
        match self.operator {
            NodeSelectorOperator::In => listed(),
            NodeSelectorOperator::NotIn => !listed(),
            NodeSelectorOperator::Exists => actual.is_some(),
            NodeSelectorOperator::DoesNotExist => actual.is_none(),
            NodeSelectorOperator::Gt => {
                number(actual).zip(bound).is_some_and(|(actual, bound)| actual > bound)
            }
            NodeSelectorOperator::Lt => {
                number(actual).zip(bound).is_some_and(|(actual, bound)| actual < bound)
            }
        }
    }
}

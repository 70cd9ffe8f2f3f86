//! [`LabelSelector`]: requirements on labels, from a query (`a in (b,c),!d`) or from a `LabelSelector` object.

use std::fmt;
use std::sync::Arc;

use value::{Map, Path, Str, Value};

use crate::field::{FieldError, FieldErrors, aggregate, quote};
use crate::names::{is_qualified_name, is_valid_label_value};

/// Up to so many requirements of a selector each search the labels from the start; more need them sorted, or the work would be the product
/// of both numbers.
pub const FEW_REQUIREMENTS: usize = 8;

/// A source of labels to match selectors against.
pub trait Labels {
    /// The value of the label `key`, if it is set.
    fn label(&self, key: &str) -> Option<&str>;

    /// The labels in an order in which many of them are found fast; `None` if [`Labels::label`] is fast.
    fn sorted(&self) -> Option<SortedLabels<'_>> {
        None
    }
}

/// Labels sorted by key.
#[derive(Debug)]
pub struct SortedLabels<'a>(Vec<(&'a str, &'a str)>);

impl<'a> FromIterator<(&'a str, &'a str)> for SortedLabels<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        let mut labels: Vec<_> = labels.into_iter().collect();
        // Stable and linear if they are sorted already.
        labels.sort_by_key(|(key, _)| *key);
        SortedLabels(labels)
    }
}

impl Labels for SortedLabels<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by_key(&key, |(key, _)| key).ok()?;
        self.0.get(at).map(|(_, value)| *value)
    }
}

impl Labels for Map {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }
}

impl Labels for [(&str, &str)] {
    fn label(&self, key: &str) -> Option<&str> {
        self.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }
}

impl<L: Labels + ?Sized> Labels for Option<&L> {
    fn label(&self, key: &str) -> Option<&str> {
        (*self)?.label(key)
    }
}

/// The relation between a label and the values of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// `in`: the value is one of them.
    In,
    /// `notin`: the value is none of them, or the label is not set.
    NotIn,
    /// `=`: the value is equal.
    Equals,
    /// `==`: the value is equal.
    DoubleEquals,
    /// `!=`: the value is different, or the label is not set.
    NotEquals,
    /// `>`: compares the values as integers.
    GreaterThan,
    /// `<`: compares the values as integers.
    LessThan,
    /// The label is set, whatever its value.
    Exists,
    /// The label is not set.
    DoesNotExist,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: Str,
    operator: LabelOperator,
    /// Sorted, because every object is searched for in them.
    values: Arc<[Str]>,
}

impl LabelRequirement {
    fn unchecked(key: Str, operator: LabelOperator, mut values: Vec<Str>) -> Self {
        values.sort_unstable();
        LabelRequirement { key, operator, values: values.into() }
    }

    fn heap_bytes(&self) -> usize {
        let values = self.values.iter().map(|value| size_of::<Str>() + super::heap_bytes(value));
        2 * size_of::<usize>() + super::heap_bytes(&self.key) + values.sum::<usize>()
    }

    /// Validates the key and values. Errors have field paths relative to the requirement.
    pub fn new(key: impl Into<Str>, operator: LabelOperator, values: Vec<Str>) -> Result<Self, FieldErrors> {
        let key = key.into();
        let mut errors = FieldErrors::new();
        errors.extend(key_error(&key, &Path::root().field("key")));
        let path = Path::root().field("values");
        let listed = || if values.is_empty() { Value::Null } else { Value::list(values.iter().cloned()) };
        let wrong = match operator {
            LabelOperator::In | LabelOperator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::NotEquals
                if values.len() != 1 =>
            {
                Some("exact-match compatibility requires one single value")
            }
            LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            LabelOperator::GreaterThan | LabelOperator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        errors.extend(wrong.map(|words| FieldError::invalid(&path, listed(), words)));
        if matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan) {
            for (i, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                let words = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(&path.index(i), value.clone(), words));
            }
        }
        for (i, value) in values.iter().enumerate() {
            let wrong = is_valid_label_value(value);
            if !wrong.is_empty() {
                let path = path.index(i).key(key.clone());
                errors.push(FieldError::invalid(&path, value.clone(), wrong.join("; ")));
            }
        }
        if errors.is_empty() { Ok(LabelRequirement::unchecked(key, operator, values)) } else { Err(errors) }
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// The values in order.
    pub fn values(&self) -> &Arc<[Str]> {
        &self.values
    }

    /// True if the labels meet the requirement.
    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        let value = labels.label(&self.key);
        let listed = |value: &str| self.values.binary_search_by(|v| v.as_str().cmp(value)).is_ok();
        match self.operator {
            LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => {
                value.is_some_and(listed)
            }
            LabelOperator::NotIn | LabelOperator::NotEquals => !value.is_some_and(listed),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan | LabelOperator::LessThan => {
                let bound = self.values.first().and_then(|v| v.parse::<i64>().ok());
                match (value.and_then(|v| v.parse::<i64>().ok()), bound) {
                    (Some(value), Some(bound)) if self.operator == LabelOperator::GreaterThan => {
                        value > bound
                    }
                    (Some(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
        }
    }
}

pub(super) fn key_error(key: &str, path: &Path) -> Option<FieldError> {
    let wrong = is_qualified_name(key);
    (!wrong.is_empty()).then(|| FieldError::invalid(path, key, wrong.join("; ")))
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

/// A conjunction of requirements on labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
    nothing: bool,
}

impl LabelSelector {
    /// A selector that matches every object.
    pub const fn everything() -> Self {
        LabelSelector { requirements: Vec::new(), nothing: false }
    }

    /// A selector that matches no object.
    pub const fn nothing() -> Self {
        LabelSelector { requirements: Vec::new(), nothing: true }
    }

    /// A selector for objects that meet all requirements.
    pub fn new(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements, nothing: false }
    }

    /// Parses the query parameter `labelSelector`.
    pub fn parse(text: &str) -> Result<Self, String> {
        super::parse::requirements(text).map(LabelSelector::new)
    }

    /// A selector for objects that have all these labels. Keys and values are not validated.
    pub fn from_set(labels: &Map) -> Self {
        let equals = |(key, value): (&Str, &Value)| {
            let values = vec![Str::from(value.as_str().unwrap_or_default())];
            LabelRequirement::unchecked(key.clone(), LabelOperator::Equals, values)
        };
        LabelSelector::new(labels.iter().map(equals).collect())
    }

    /// Converts a `LabelSelector` object. An absent one matches nothing, an empty one everything.
    pub fn from_label_selector(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|s| !s.is_null()) else {
            return Ok(LabelSelector::nothing());
        };
        let mut requirements = Vec::new();
        for (key, value) in match_labels(selector) {
            let values = vec![Str::from(value)];
            requirements
                .push(LabelRequirement::new(key.clone(), LabelOperator::Equals, values).map_err(aggregate)?);
        }
        for expression in selector.list_at(&["matchExpressions"]) {
            let operator = expression.str_at(&["operator"]).unwrap_or_default();
            let operator = match operator {
                "In" => LabelOperator::In,
                "NotIn" => LabelOperator::NotIn,
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                _ => return Err(format!("{} is not a valid label selector operator", quote(operator))),
            };
            let key = expression.str_at(&["key"]).unwrap_or_default();
            let values = expression.list_at(&["values"]).iter().filter_map(Value::as_str).map(Str::from);
            requirements.push(LabelRequirement::new(key, operator, values.collect()).map_err(aggregate)?);
        }
        Ok(LabelSelector::new(requirements))
    }

    /// True if the selector matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// Bytes of memory that the selector holds, besides this value itself.
    pub fn heap_bytes(&self) -> usize {
        let requirements = self.requirements.iter().map(LabelRequirement::heap_bytes);
        self.requirements.capacity() * size_of::<LabelRequirement>() + requirements.sum::<usize>()
    }

    /// True if the selector certainly matches no object.
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// All requirements, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        if self.nothing {
            return false;
        }
        if self.requirements.len() > FEW_REQUIREMENTS
            && let Some(sorted) = labels.sorted()
        {
            return self.requirements.iter().all(|r| r.matches(&sorted));
        }
        self.requirements.iter().all(|r| r.matches(labels))
    }

    /// True if the selector matches the `metadata.labels` of `object`.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.matches(&object.at(&["metadata", "labels"]).and_then(Value::as_map))
    }

    /// The value that the selector requires the label `key` to have, if any.
    pub fn requires_exact_match(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|r| r.key == key)?;
        match (requirement.operator, &*requirement.values) {
            (LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

/// Prints as Kubernetes does: requirements sorted by key, the values of each sorted.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

fn match_labels(selector: &Value) -> impl Iterator<Item = (&Str, &str)> {
    let labels = selector.get("matchLabels").and_then(Value::as_map);
    labels.into_iter().flat_map(Map::iter).map(|(k, v)| (k, v.as_str().unwrap_or_default()))
}

/// Formats a `LabelSelector` object for tables: `<none>` if it is empty, `<error>` if it is invalid.
pub fn format_label_selector(selector: Option<&Value>) -> String {
    match LabelSelector::from_label_selector(selector) {
        Err(_) => "<error>".to_owned(),
        Ok(selector) => match selector.to_string() {
            text if text.is_empty() => "<none>".to_owned(),
            text => text,
        },
    }
}

/// Validates a `LabelSelector` object. `allow_invalid_values` accepts invalid label values, for updates of objects
/// that have some already.
pub fn validate_label_selector(selector: &Value, allow_invalid_values: bool, path: &Path) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = |key: &str, path: &Path, errors: &mut FieldErrors| {
        errors.extend(is_qualified_name(key).into_iter().map(|e| FieldError::invalid(path, key, e)));
    };
    let labels = path.field("matchLabels");
    for (key, value) in match_labels(selector) {
        name(key, &labels, &mut errors);
        let wrong = is_valid_label_value(value).into_iter();
        errors.extend(wrong.map(|e| FieldError::invalid(&labels, value, e)));
    }
    for (i, expression) in selector.list_at(&["matchExpressions"]).iter().enumerate() {
        let path = path.field("matchExpressions").index(i);
        let values = expression.list_at(&["values"]);
        let operator = expression.str_at(&["operator"]).unwrap_or_default();
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                &path.field("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
                &path.field("values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                &path.field("operator"),
                operator,
                "not a valid selector operator",
            )),
        }
        name(expression.str_at(&["key"]).unwrap_or_default(), &path.field("key"), &mut errors);
        if allow_invalid_values {
            continue;
        }
        for (j, value) in values.iter().enumerate() {
            let wrong = is_valid_label_value(value.as_str().unwrap_or_default()).into_iter();
            let path = path.field("values").index(j);
            errors.extend(wrong.map(|e| FieldError::invalid(&path, value.clone(), e)));
        }
    }
    errors
}

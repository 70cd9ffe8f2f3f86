//! Matching of label selectors against labels.

use api::names;
use value::Value;

use api::validation::fields::Read;

/// Error for a selector with an invalid requirement.
pub(super) struct NotASelector;

/// Returns true if `selector` selects `labels`. An absent selector selects nothing, an empty one everything.
pub(super) fn selects(selector: Option<&Value>, labels: Option<&Value>) -> Result<bool, NotASelector> {
    let Some(selector) = selector else { return Ok(false) };
    let mut all = true;
    for (key, value) in selector.text_entries("matchLabels") {
        check(key, [value])?;
        all &= labels.text_if_set(key) == Some(value);
    }
    for requirement in selector.items("matchExpressions") {
        let key = requirement.text("key");
        check(key, requirement.texts("values"))?;
        let has_values = !requirement.items("values").is_empty();
        let label = labels.text_if_set(key);
        let listed = label.is_some_and(|label| requirement.texts("values").any(|value| value == label));
        all &= match requirement.text("operator") {
            "In" if has_values => listed,
            "NotIn" if has_values => !listed,
            "Exists" if !has_values => label.is_some(),
            "DoesNotExist" if !has_values => label.is_none(),
            _ => return Err(NotASelector),
        };
    }
    Ok(all)
}

fn check<'a>(key: &str, values: impl IntoIterator<Item = &'a str>) -> Result<(), NotASelector> {
    let is_valid = names::is_qualified_name(key).is_empty()
        && values.into_iter().all(|value| names::is_valid_label_value(value).is_empty());
    if is_valid { Ok(()) } else { Err(NotASelector) }
}

pub(super) fn is_empty(selector: &Value) -> bool {
    selector.entries("matchLabels").next().is_none() && selector.items("matchExpressions").is_empty()
}

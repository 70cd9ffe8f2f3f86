//! Validation of the request policy of a device capacity that several requests share.
//!
//! Steps must be integers while the feature gate `DRAFractionalCapacityRange` is off. In 1.37 it is off unless
//! compatibility with the previous version is given up.

use api::FieldErrors;
use api::quantity::Quantity;
use value::Value;

use api::validation::fields::{At, NOT_NEGATIVE, Read, Report};
use api::validation::repeated::Repeated;

const MAX_VALUES: usize = 10;

pub(super) fn request_policy(capacity: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(policy) = capacity.part("requestPolicy") else { return };
    let most = quantity(capacity.part("value"));
    let values: Vec<Quantity> =
        policy.items("validValues").iter().map(|value| quantity(Some(value))).collect();
    let default = policy.part("default").map(|default| quantity(Some(default)));
    match (values.is_empty(), policy.part("validRange"), default) {
        (false, Some(_), _) => {
            let detail = r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#;
            errors.forbidden(at, detail);
        }
        (false, None, None) => {
            errors.required(&at.field("default"), "required when validValues is defined");
        }
        (false, None, Some(default)) => {
            valid_values(&values, &default, &most, &at.field("validValues"), errors);
        }
        (true, Some(_), None) => {
            errors.required(&at.field("default"), "required when validRange is defined");
        }
        (true, Some(range), Some(default)) => {
            valid_range(range, &default, &most, &at.field("validRange"), errors);
        }
        (true, None, _) => {}
    }
}

fn quantity(value: Option<&Value>) -> Quantity {
    let text = match value {
        Some(Value::String(text)) => text.to_string(),
        Some(Value::Int(number)) => number.to_string(),
        _ => "0".to_owned(),
    };
    // Decoding already rejected invalid quantities.
    Quantity::parse(&text).unwrap_or(Quantity::ZERO)
}

fn valid_values(
    values: &[Quantity],
    default: &Quantity,
    most: &Quantity,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    for (i, pair) in values.windows(2).enumerate() {
        if let [before, after] = pair
            && before > after
        {
            errors.invalid(&at.index(i + 1), after.to_string(), "values must be sorted in ascending order");
        }
    }
    let mut found = false;
    if values.len() > MAX_VALUES {
        errors.too_many(at, values.len(), MAX_VALUES);
    } else {
        for (i, value) in values.iter().enumerate() {
            if value > most {
                let detail = format!("option is larger than capacity value: {most}");
                errors.invalid(&at.index(i), value.to_string(), detail);
            }
            found |= value == default;
        }
        let repeated = Repeated::earlier(values.iter().map(value::quantity::Quantity::value));
        for (i, value) in values.iter().enumerate() {
            if repeated.at(i) {
                errors.duplicate(&at.index(i), value.value().to_string());
            }
        }
    }
    if !found {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(at, default.to_string(), detail);
    }
}

fn valid_range(
    range: &Value,
    default: &Quantity,
    capacity: &Quantity,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let bound = |field: &str| range.part(field).map(|bound| quantity(Some(bound)));
    let (most, step) = (bound("max"), bound("step"));
    let Some(least) = bound("min") else {
        errors.required(&at.field("min"), "required when validRange is defined");
        return;
    };
    if least > *capacity {
        let detail = format!("min is larger than capacity value: {capacity}");
        errors.invalid(&at.field("min"), least.to_string(), detail);
    }
    if *default < least {
        let detail = format!("default is less than min: {least}");
        errors.invalid(&at.field("default"), default.to_string(), detail);
    }
    if let Some(most) = &most {
        if least > *most {
            let detail = format!("min is larger than max: {most}");
            errors.invalid(&at.field("max"), least.to_string(), detail);
        }
        if most > capacity {
            let detail = format!("max is larger than capacity value: {capacity}");
            errors.invalid(&at.field("max"), most.to_string(), detail);
        }
        if default > most {
            let detail = format!("default is more than max: {most}");
            errors.invalid(&at.field("default"), default.to_string(), detail);
        }
    }
    let parts =
        [("default", Some(default)), ("min", Some(&least)), ("max", most.as_ref()), ("step", step.as_ref())];
    let parts: Vec<(&str, &Quantity)> =
        parts.into_iter().filter_map(|(name, part)| Some((name, part?))).collect();
    let Some(step) = &step else { return };
    if step.sign() <= 0 {
        errors.invalid(&at.field("step"), step.to_string(), "must be greater than zero");
        return;
    }
    let first = least.add(step);
    if first > *capacity {
        let detail = format!("one step {first} is larger than capacity value: {capacity}");
        errors.invalid(&at.field("step"), step.to_string(), detail);
    }
    if !whole(&parts, at, errors) {
        return;
    }
    for value in [Some(default), most.as_ref()].into_iter().flatten() {
        let rest = value.value().wrapping_sub(least.value()).checked_rem(step.value());
        if rest != Some(0) {
            let detail = format!("value is not a multiple of a given step ({step}) from ({least})");
            errors.invalid(&at.field("step"), value.to_string(), detail);
        }
    }
}

/// Returns true if all quantities are between 0 and the largest 64-bit integer; reports the others.
fn whole(parts: &[(&str, &Quantity)], at: &At<'_>, errors: &mut FieldErrors) -> bool {
    let before = errors.len();
    for (name, part) in parts {
        if part.sign() < 0 {
            errors.invalid(&at.field(name), part.to_string(), NOT_NEGATIVE);
        } else if part.cmp_i64(i64::MAX).is_gt() {
            errors.invalid(&at.field(name), part.to_string(), "must not be larger than 9223372036854775807");
        }
    }
    errors.len() == before
}

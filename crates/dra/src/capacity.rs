//! Consumable capacity: the amounts that requests may take from a device.

use value::Value;
use value::quantity::Quantity;

/// A capacity of a device, with its request policy.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    pub(crate) value: Quantity,
    policy: Option<CapacityRequestPolicy>,
}

/// `requestPolicy`: the amounts that may be requested.
#[derive(Clone, Debug)]
struct CapacityRequestPolicy {
    default: Option<Quantity>,
    values: Vec<Quantity>,
    range: Option<CapacityRequestRange>,
}

#[derive(Clone, Debug)]
struct CapacityRequestRange {
    least: Option<Quantity>,
    most: Option<Quantity>,
    step: Option<Quantity>,
}

/// The amount that a request takes, or its refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CapacityShare {
    Takes(Quantity),
    /// The policy of this device does not allow the amount.
    Refused,
}

/// Parses a quantity given as a string or an integer.
pub(crate) fn quantity(value: Option<&Value>) -> Result<Quantity, String> {
    match value {
        Some(Value::String(text)) => Quantity::parse(text).map_err(|why| why.to_string()),
        Some(Value::Int(number)) => Quantity::parse(&number.to_string()).map_err(|why| why.to_string()),
        _ => Err("not a quantity".to_owned()),
    }
}

impl Capacity {
    /// Reads a capacity of a device in a slice.
    pub(crate) fn read(capacity: &Value) -> Result<Capacity, String> {
        let optional = |value: Option<&Value>| match value {
            None | Some(Value::Null) => Ok(None),
            some => quantity(some).map(Some),
        };
        let value = quantity(capacity.get("value"))?;
        let Some(policy) = capacity.get("requestPolicy").filter(|policy| !policy.is_null()) else {
            return Ok(Capacity { value, policy: None });
        };
        let range = match policy.get("validRange").filter(|range| !range.is_null()) {
            None => None,
            Some(range) => Some(CapacityRequestRange {
                least: optional(range.get("min"))?,
                most: optional(range.get("max"))?,
                step: optional(range.get("step"))?,
            }),
        };
        let values = policy.list_at(&["validValues"]).iter().map(|value| quantity(Some(value)));
        let policy = CapacityRequestPolicy {
            default: optional(policy.get("default"))?,
            values: values.collect::<Result<_, _>>()?,
            range,
        };
        Ok(Capacity { value, policy: Some(policy) })
    }

    /// The amount that a request for `wanted` takes; without `wanted`, the policy's default.
    ///
    /// An error means that the request itself is invalid, whatever the device.
    pub(crate) fn share(&self, wanted: Option<&Quantity>) -> Result<CapacityShare, String> {
        let taken = self.round_up(wanted)?;
        if taken.sign() < 0 {
            return Err("capacity value is negative".to_owned());
        }
        Ok(if self.allows(&taken) { CapacityShare::Takes(taken) } else { CapacityShare::Refused })
    }

    fn round_up(&self, wanted: Option<&Quantity>) -> Result<Quantity, String> {
        let default = self.policy.as_ref().and_then(|policy| policy.default.as_ref());
        let Some(wanted) = wanted else { return Ok(default.unwrap_or(&self.value).clone()) };
        let Some(policy) = &self.policy else { return Ok(wanted.clone()) };
        if let Some(range) = &policy.range
            && let Some(least) = &range.least
        {
            return range.round_up(wanted, least);
        }
        Ok(policy.values.iter().find(|value| *value >= wanted).unwrap_or(wanted).clone())
    }

    fn allows(&self, taken: &Quantity) -> bool {
        let Some(policy) = &self.policy else { return true };
        if policy.default.as_ref() == Some(taken) {
            return true;
        }
        match &policy.range {
            Some(range) => range.allows(taken),
            None => policy.values.is_empty() || policy.values.contains(taken),
        }
    }
}

/// Rounds a quantity up to an integer; `None` beyond `i64`. Steps are whole numbers, because the gate
/// `DRAFractionalCapacityRange` is off unless the whole control plane runs 1.37.
fn whole(quantity: &Quantity) -> Option<i64> {
    quantity.cmp_i64(i64::MAX).is_le().then(|| quantity.value())
}

impl CapacityRequestRange {
    fn round_up(&self, wanted: &Quantity, least: &Quantity) -> Result<Quantity, String> {
        if wanted < least {
            return Ok(least.clone());
        }
        let Some(step) = &self.step else { return Ok(wanted.clone()) };
        let rounded = || {
            let (wanted, least, step) = (whole(wanted)?, whole(least)?, whole(step)?);
            let over = wanted.checked_sub(least)?;
            let steps = over.checked_div(step)? + i64::from(over.checked_rem(step)? != 0);
            least.checked_add(step.checked_mul(steps)?)
        };
        let Some(rounded) = rounded() else {
            let why = if whole(wanted).is_none() {
                format!("request {wanted} exceeds MaxInt64")
            } else {
                format!("rounding request {wanted} up to the next step passes MaxInt64")
            };
            return Err(format!(
                "capacity request cannot be represented in the device's range arithmetic: {why}"
            ));
        };
        Ok(Quantity::new(rounded, step.format()))
    }

    fn allows(&self, taken: &Quantity) -> bool {
        if self.most.as_ref().is_some_and(|most| taken > most) {
            return false;
        }
        let Some(step) = &self.step else { return true };
        let least = self.least.as_ref().map_or(Some(0), whole);
        let rest = || whole(taken)?.checked_sub(least?)?.checked_rem(whole(step)?);
        rest() == Some(0)
    }
}

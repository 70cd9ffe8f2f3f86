//! Capacity that several requests share: what a request takes of it, and whether it may.

use value::Value;
use value::quantity::Quantity;

/// A capacity of a device.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    pub(crate) value: Quantity,
    policy: Option<Policy>,
}

/// How much may be asked for.
#[derive(Clone, Debug)]
struct Policy {
    default: Option<Quantity>,
    values: Vec<Quantity>,
    range: Option<Range>,
}

#[derive(Clone, Debug)]
struct Range {
    least: Option<Quantity>,
    most: Option<Quantity>,
    step: Option<Quantity>,
}

/// What a request takes of a capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Takes(Quantity),
    /// The policy does not allow it; another device's may.
    Refused,
}

/// Reads a quantity.
pub(crate) fn quantity(value: Option<&Value>) -> Result<Quantity, String> {
    match value {
        Some(Value::String(text)) => Quantity::parse(text).map_err(|why| why.to_string()),
        Some(Value::Int(number)) => Quantity::parse(&number.to_string()).map_err(|why| why.to_string()),
        _ => Err("not a quantity".to_owned()),
    }
}

impl Capacity {
    /// Reads a capacity of a slice.
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
            Some(range) => Some(Range {
                least: optional(range.get("min"))?,
                most: optional(range.get("max"))?,
                step: optional(range.get("step"))?,
            }),
        };
        let values = policy.list_at(&["validValues"]).iter().map(|value| quantity(Some(value)));
        let policy = Policy {
            default: optional(policy.get("default"))?,
            values: values.collect::<Result<_, _>>()?,
            range,
        };
        Ok(Capacity { value, policy: Some(policy) })
    }

    /// What a request that wants `wanted` of this capacity (or says nothing about it) takes.
    ///
    /// Fails where the amount cannot be reckoned with: then no device is looked for, because the request is at fault.
    pub(crate) fn share(&self, wanted: Option<&Quantity>) -> Result<Share, String> {
        let taken = self.round_up(wanted)?;
        if taken.sign() < 0 {
            return Err("capacity value is negative".to_owned());
        }
        Ok(if self.allows(&taken) { Share::Takes(taken) } else { Share::Refused })
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

/// A quantity in thousandths, if it is a whole number of them.
fn milli(quantity: &Quantity) -> Option<i64> {
    let milli = quantity.milli_value();
    (Quantity::from_milli(milli, quantity.format()) == *quantity).then_some(milli)
}

impl Range {
    /// The bounds and steps are reckoned in thousandths where all of them are whole thousandths, and else as integers.
    fn unit(&self) -> fn(&Quantity) -> Option<i64> {
        let bounds = [&self.least, &self.most, &self.step];
        let fine = bounds.into_iter().flatten().all(|bound| milli(bound).is_some())
            && self.step.as_ref().is_none_or(|step| milli(step) >= Some(1));
        if fine { milli } else { |quantity| quantity.cmp_i64(i64::MAX).is_le().then(|| quantity.value()) }
    }

    fn round_up(&self, wanted: &Quantity, least: &Quantity) -> Result<Quantity, String> {
        if wanted < least {
            return Ok(least.clone());
        }
        let Some(step) = &self.step else { return Ok(wanted.clone()) };
        let unit = self.unit();
        let rounded = || {
            let (wanted, least, step) = (unit(wanted)?, unit(least)?, unit(step)?);
            let over = wanted.checked_sub(least)?;
            let steps = over.checked_div(step)? + i64::from(over.checked_rem(step)? != 0);
            least.checked_add(step.checked_mul(steps)?)
        };
        let Some(rounded) = rounded() else {
            return Err(format!(
                "capacity request cannot be represented in the device's range arithmetic: {wanted}"
            ));
        };
        let fine = unit(&Quantity::new(1, step.format())) == Some(1000);
        Ok(match (fine, rounded % 1000) {
            (true, 0) => Quantity::new(rounded / 1000, step.format()),
            (true, _) => Quantity::from_milli(rounded, step.format()),
            (false, _) => Quantity::new(rounded, step.format()),
        })
    }

    fn allows(&self, taken: &Quantity) -> bool {
        if self.most.as_ref().is_some_and(|most| taken > most) {
            return false;
        }
        let Some(step) = &self.step else { return true };
        let unit = self.unit();
        let least = self.least.as_ref().map_or(Some(0), unit);
        let rest = || unit(taken)?.checked_sub(least?)?.checked_rem(unit(step)?);
        rest() == Some(0)
    }
}

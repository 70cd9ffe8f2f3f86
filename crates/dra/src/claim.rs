//! Reads the device requests of a ResourceClaim.

use value::quantity::Quantity;
use value::{Str, Value};

use crate::capacity;
use crate::error::Error;

/// A ResourceClaim to allocate: read once, tried on many nodes.
#[derive(Clone, Debug)]
pub struct PendingClaim {
    /// Namespace and name, as `namespace/name`.
    pub(crate) id: Str,
    pub(crate) requests: Vec<DeviceRequest>,
    pub(crate) constraints: Vec<DeviceConstraint>,
    pub(crate) configs: Vec<DriverConfig>,
}

/// A request with its alternatives, in order of preference.
#[derive(Clone, Debug)]
pub(crate) struct DeviceRequest {
    pub(crate) name: Str,
    pub(crate) choices: Vec<Choice>,
    /// Equal to the previous request, so that their devices are interchangeable.
    pub(crate) same_as_previous: bool,
}

/// One way to serve a request: `exactly`, or an alternative of `firstAvailable`.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The name in results: `request` or `request/alternative`.
    pub(crate) name: Str,
    pub(crate) class: Str,
    pub(crate) selectors: Vec<Str>,
    pub(crate) amount: DeviceCount,
    pub(crate) admin: bool,
    /// `adminAccess` is set, even if it is false.
    pub(crate) mentions_admin: bool,
    pub(crate) tolerations: Vec<DeviceToleration>,
    /// The tolerations as stored, for the results.
    pub(crate) raw_tolerations: Option<Value>,
    pub(crate) capacity: Option<Vec<(Str, Quantity)>>,
}

/// The number of requested devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceCount {
    Exactly(usize),
    All,
}

#[derive(Clone, Debug)]
pub(crate) struct DeviceToleration {
    pub(crate) key: Str,
    pub(crate) value: Str,
    pub(crate) effect: Str,
    pub(crate) any_value: bool,
}

/// A `matchAttribute` constraint or, if `distinct`, a `distinctAttribute` constraint.
#[derive(Clone, Debug)]
pub(crate) struct DeviceConstraint {
    /// Names of the requests it applies to; empty for all.
    pub(crate) requests: Vec<Str>,
    pub(crate) attribute: Str,
    pub(crate) distinct: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct DriverConfig {
    /// Names of the requests it applies to; empty for all.
    pub(crate) requests: Vec<Str>,
    pub(crate) opaque: Option<Value>,
}

/// Kubernetes' limit of results in an allocation.
pub(crate) const MAX_RESULTS: usize = 32;

fn text(value: &Value, field: &str) -> Str {
    value.get(field).and_then(Value::as_str).unwrap_or_default().into()
}

fn texts(value: &Value, field: &str) -> Vec<Str> {
    value.list_at(&[field]).iter().filter_map(Value::as_str).map(Str::from).collect()
}

impl PendingClaim {
    /// Reads a claim. Unknown request or constraint types are errors, because ignoring them could allocate wrong
    /// devices.
    pub fn read(claim: &Value) -> Result<PendingClaim, Error> {
        let meta = |field: &str| claim.str_at(&["metadata", field]).unwrap_or_default();
        let id: Str = format!("{}/{}", meta("namespace"), meta("name")).into();
        let mut requests = Vec::new();
        for request in claim.list_at(&["spec", "devices", "requests"]) {
            requests.push(DeviceRequest::read(request, &id)?);
        }
        let mut constraints = Vec::new();
        for (i, constraint) in claim.list_at(&["spec", "devices", "constraints"]).iter().enumerate() {
            let (attribute, distinct) =
                match (text(constraint, "matchAttribute"), text(constraint, "distinctAttribute")) {
                    (attribute, _) if !attribute.is_empty() => (attribute, false),
                    (_, attribute) if !attribute.is_empty() => (attribute, true),
                    _ => {
                        let claim = format!("{id}, constraint #{i}").into();
                        let reason = "empty constraint (unsupported constraint type?)".to_owned();
                        return Err(Error::Claim { claim, reason });
                    }
                };
            constraints.push(DeviceConstraint {
                requests: texts(constraint, "requests"),
                attribute,
                distinct,
            });
        }
        let configs = claim
            .list_at(&["spec", "devices", "config"])
            .iter()
            .map(|config| DriverConfig {
                requests: texts(config, "requests"),
                opaque: config.get("opaque").cloned(),
            })
            .collect();
        for i in 1..requests.len() {
            let alike = match requests.get(i - 1..=i) {
                Some([before, this]) => before.asks_for_the_same(this, &constraints),
                _ => false,
            };
            if let Some(request) = requests.get_mut(i) {
                request.same_as_previous = alike;
            }
        }
        Ok(PendingClaim { id, requests, constraints, configs })
    }
}

impl DeviceRequest {
    fn read(request: &Value, claim: &Str) -> Result<DeviceRequest, Error> {
        let name = text(request, "name");
        let mut choices = Vec::new();
        if let Some(exactly) = request.get("exactly").filter(|exactly| !exactly.is_null()) {
            choices.push(Choice::read(exactly, name.clone(), claim)?);
        } else {
            for alternative in request.list_at(&["firstAvailable"]) {
                let full = format!("{name}/{}", text(alternative, "name"));
                choices.push(Choice::read(alternative, full.into(), claim)?);
            }
        }
        if choices.is_empty() {
            let reason =
                "neither `exactly` nor `firstAvailable` is set (unsupported request type?)".to_owned();
            return Err(Error::Request { claim: claim.clone(), request: name, reason });
        }
        Ok(DeviceRequest { name, choices, same_as_previous: false })
    }
}

impl DeviceRequest {
    fn asks_for_the_same(&self, other: &DeviceRequest, rules: &[DeviceConstraint]) -> bool {
        let ([mine], [others]) = (self.choices.as_slice(), other.choices.as_slice()) else { return false };
        let bound = |request: &DeviceRequest, rule: &DeviceConstraint| {
            rule.requests.is_empty() || rule.requests.contains(&request.name)
        };
        mine.name == self.name
            && others.name == other.name
            && mine.amount == others.amount
            && mine.amount != DeviceCount::All
            && mine.class == others.class
            && mine.selectors == others.selectors
            && mine.admin == others.admin
            && mine.raw_tolerations == others.raw_tolerations
            && mine.capacity == others.capacity
            && rules.iter().all(|rule| bound(self, rule) == bound(other, rule))
    }
}

fn own_name(name: &Str) -> Str {
    name.rsplit_once('/').map_or_else(|| name.clone(), |(_, own)| own.into())
}

impl Choice {
    /// Name of the alternative without the request's name, as error messages show it.
    pub(crate) fn own_name(&self) -> Str {
        own_name(&self.name)
    }

    fn read(choice: &Value, name: Str, claim: &Str) -> Result<Choice, Error> {
        let wrong =
            |reason: String| Error::Request { claim: claim.clone(), request: own_name(&name), reason };
        if !choice.list_at(&["derivedAttributes"]).is_empty() {
            let reason = "cannot handle request with derived attributes, the feature is disabled";
            return Err(wrong(reason.to_owned()));
        }
        let mut selectors = Vec::new();
        for (i, selector) in choice.list_at(&["selectors"]).iter().enumerate() {
            let Some(expression) = selector.str_at(&["cel", "expression"]) else {
                let request = format!("{}, selector #{i}", own_name(&name)).into();
                let reason = "CEL expression empty (unsupported selector type?)".to_owned();
                return Err(Error::Request { claim: claim.clone(), request, reason });
            };
            selectors.push(expression.into());
        }
        let class = text(choice, "deviceClassName");
        if class.is_empty() {
            return Err(wrong("missing device class name (unsupported request type?)".to_owned()));
        }
        let amount = match choice.str_at(&["allocationMode"]).unwrap_or("ExactCount") {
            "ExactCount" => {
                let count = choice.int_at(&["count"]).unwrap_or(1);
                let count =
                    usize::try_from(count).map_err(|_| wrong(format!("exact count {count} is negative")))?;
                DeviceCount::Exactly(count)
            }
            "All" => DeviceCount::All,
            other => return Err(wrong(format!("unsupported count mode {other}"))),
        };
        let admin = choice.get("adminAccess").and_then(Value::as_bool);
        let raw_tolerations =
            choice.get("tolerations").filter(|list| list.as_list().is_some_and(|l| !l.is_empty()));
        let tolerations = choice.list_at(&["tolerations"]).iter().map(DeviceToleration::read).collect();
        let capacity = match choice.at(&["capacity", "requests"]).and_then(Value::as_map) {
            None => None,
            Some(map) => {
                let mut wanted = Vec::with_capacity(map.len());
                for (key, amount) in map.iter() {
                    let amount = capacity::quantity(Some(amount))
                        .map_err(|why| wrong(format!("capacity \"{key}\": {why}")))?;
                    wanted.push((key.clone(), amount));
                }
                Some(wanted)
            }
        };
        Ok(Choice {
            class,
            selectors,
            amount,
            admin: admin == Some(true),
            mentions_admin: admin.is_some(),
            tolerations,
            raw_tolerations: raw_tolerations.cloned(),
            capacity,
            name,
        })
    }
}

impl DeviceToleration {
    fn read(toleration: &Value) -> DeviceToleration {
        DeviceToleration {
            key: text(toleration, "key"),
            value: text(toleration, "value"),
            effect: text(toleration, "effect"),
            any_value: toleration.str_at(&["operator"]) == Some("Exists"),
        }
    }
}

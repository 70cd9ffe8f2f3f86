//! Device selectors (resource.k8s.io): their environment, cost limits and evaluation.
//!
//! Validation and allocation share this module, so that an accepted selector compiles the same way when it runs. A
//! selector has one variable, `device`, with the driver and the attributes and capacities by domain and name. An
//! unknown domain is an empty map instead of an error, so that one selector can be evaluated for the devices of every
//! driver.

mod data;

use std::fmt;
use std::sync::{Arc, LazyLock};

use value::Str;

pub use data::SelectableDevice;

use crate::cost::estimate::{EstimateRange, SizeHints};
use crate::env::{Env, Program, TypeProvider, Version};
use crate::eval::Activation;
use crate::syntax::macros;
use crate::types::Type;
use crate::val::{MapVal, Val};

/// Limit for the cost of one evaluation, and for the estimated cost of a new selector.
pub const MAX_COST: u64 = 1_000_000;

const DEVICE: &str = "device";
const DEVICE_TYPE: &str = "kubernetes.DRADevice";
const MAX_DOMAIN: u64 = 63;
const MAX_NAME: u64 = 32;
const MAX_DRIVER: u64 = 63;
/// Upper bound of attributes and capacities of a device.
const MAX_ENTRIES: u64 = 32;
const MAX_ATTRIBUTE: u64 = 64;

/// Why an expression is not a valid selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceSelectorError {
    /// The expression does not compile or has the wrong type.
    Invalid(String),
    /// The estimated cost exceeds [`MAX_COST`].
    TooComplex,
    /// A failure that is not the author's fault.
    Internal(String),
}

impl std::error::Error for DeviceSelectorError {}

impl fmt::Display for DeviceSelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceSelectorError::Invalid(detail) | DeviceSelectorError::Internal(detail) => detail,
            DeviceSelectorError::TooComplex => "too complex, exceeds cost limit",
        })
    }
}

/// A compiled device selector. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DeviceSelector {
    program: Program,
    nodes: usize,
}

impl DeviceSelector {
    /// Validates a new expression: it may only use what the previous Kubernetes version has, and its estimated cost
    /// must be within the limit.
    pub fn check(expression: &str) -> Result<(), DeviceSelectorError> {
        let checked = NEW.compile(expression).map_err(|issues| invalid(&issues))?;
        let output = checked.output_type();
        if !matches!(output, Type::Bool | Type::Any) {
            return Err(wrong_type(output));
        }
        checked.program().map_err(|error| internal(&error))?;
        if checked.estimate(&DeviceSizes).max > MAX_COST {
            return Err(DeviceSelectorError::TooComplex);
        }
        Ok(())
    }

    /// Compiles a stored expression, which may use the current version's libraries.
    pub fn compile(expression: &str) -> Result<DeviceSelector, DeviceSelectorError> {
        let checked = STORED.compile(expression).map_err(|issues| invalid(&issues))?;
        let output = checked.output_type();
        if !matches!(output, Type::Bool | Type::Dyn) {
            return Err(wrong_type(output));
        }
        let program = checked.program().map_err(|error| internal(&error))?;
        Ok(DeviceSelector { program, nodes: checked.ast().nodes() })
    }

    /// Number of nodes with macros expanded, to which the time to compile the selector and its memory are proportional.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Evaluates the selector for a device. The error is the evaluation's message.
    pub fn matches(&self, device: &SelectableDevice) -> Result<bool, String> {
        self.matches_within(device, MAX_COST).0
    }

    /// Like [`DeviceSelector::matches`] with a lower cost limit. Also returns the cost, including the work of regular
    /// expressions and work that costs nothing.
    pub fn matches_within(&self, device: &SelectableDevice, max_cost: u64) -> (Result<bool, String>, u64) {
        let activation = Activation::new(&STORED).with(DEVICE, Val::Map(MapVal::Lazy(device)));
        let evaluation = self.program.run(&activation, max_cost.min(MAX_COST));
        let cost =
            evaluation.cost.saturating_add(evaluation.pattern_work).saturating_add(evaluation.uncharged_work);
        let outcome = evaluation.outcome.map_err(|error| error.to_string()).and_then(|val| {
            val.as_bool().ok_or_else(|| {
                format!(
                    "CEL result of type {name} could not be converted to bool: type conversion error from '{name}' to 'bool'",
                    name = val.type_name()
                )
            })
        });
        (outcome, cost)
    }
}

fn invalid(issues: &crate::Issues) -> DeviceSelectorError {
    DeviceSelectorError::Invalid(format!("compilation failed: {issues}"))
}

fn wrong_type(output: &Type) -> DeviceSelectorError {
    DeviceSelectorError::Invalid(format!("must evaluate to bool or the unknown type, not {output}"))
}

fn internal(error: &crate::Error) -> DeviceSelectorError {
    DeviceSelectorError::Internal(format!("program instantiation failed: {error}"))
}

fn environment(version: Version, attribute: Type) -> Env {
    Env::kubernetes(version)
        .extended(|b| b.macros(&macros::BIND))
        .with_types(Arc::new(DeviceTypes { attribute }))
        .with_variables([(DEVICE, Type::Struct(DEVICE_TYPE.into()))])
}

/// Environment of new expressions. Attributes are `any`, because list attributes are not enabled yet.
static NEW: LazyLock<Env> = LazyLock::new(|| {
    environment(Version { minor: Version::CURRENT.minor - 1, ..Version::CURRENT }, Type::Any)
});
/// Environment of stored expressions, with everything of the current version.
static STORED: LazyLock<Env> = LazyLock::new(|| environment(Version::CURRENT, Type::Dyn));

/// Type provider of the `device` variable.
#[derive(Debug)]
struct DeviceTypes {
    attribute: Type,
}

impl TypeProvider for DeviceTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        (name == DEVICE_TYPE).then(|| Type::Struct(DEVICE_TYPE.into()))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        if type_name != DEVICE_TYPE {
            return None;
        }
        let by_domain = |leaf: Type| Type::map(Type::String, Type::map(Type::String, leaf));
        Some(match field {
            "driver" => Type::String,
            "allowMultipleAllocations" => Type::Bool,
            "attributes" => by_domain(self.attribute.clone()),
            "capacity" => by_domain(Type::Struct("kubernetes.Quantity".into())),
            _ => return None,
        })
    }
}

/// Size hints for the parts of a device.
struct DeviceSizes;

/// A part of the `device` variable, for size hints.
#[derive(Clone, Copy)]
enum DevicePart {
    Root,
    Driver,
    Flag,
    ValuesByDomain { attributes: bool },
    Names { attributes: bool },
    Attribute,
    Quantity,
    Domain,
    Name,
}

impl DevicePart {
    fn step(self, step: &str) -> Option<DevicePart> {
        Some(match (self, step) {
            (DevicePart::Root, "driver") => DevicePart::Driver,
            (DevicePart::Root, "allowMultipleAllocations") => DevicePart::Flag,
            (DevicePart::Root, "attributes" | "capacity") => {
                DevicePart::ValuesByDomain { attributes: step == "attributes" }
            }
            (DevicePart::ValuesByDomain { attributes }, "@items" | "@values") => {
                DevicePart::Names { attributes }
            }
            (DevicePart::ValuesByDomain { .. }, "@keys") => DevicePart::Domain,
            (DevicePart::Names { .. }, "@keys") => DevicePart::Name,
            // All attributes have the same upper bound, whatever their names.
            (DevicePart::Names { attributes: true }, _) => DevicePart::Attribute,
            (DevicePart::Names { attributes: false }, "@items" | "@values") => DevicePart::Quantity,
            _ => return None,
        })
    }

    fn max(self) -> u64 {
        match self {
            DevicePart::Root | DevicePart::Quantity => 0,
            DevicePart::Driver => MAX_DRIVER,
            DevicePart::Flag => 1,
            DevicePart::ValuesByDomain { .. } | DevicePart::Names { .. } => MAX_ENTRIES,
            DevicePart::Attribute => MAX_ATTRIBUTE,
            DevicePart::Domain => MAX_DOMAIN,
            DevicePart::Name => MAX_NAME,
        }
    }
}

impl SizeHints for DeviceSizes {
    fn size(&self, path: &[Str], _: &Type) -> Option<EstimateRange> {
        let (variable, steps) = path.split_first()?;
        if variable != DEVICE {
            return None;
        }
        let part = steps.iter().try_fold(DevicePart::Root, |part, step| part.step(step))?;
        Some(EstimateRange { min: 0, max: part.max() })
    }
}

#[cfg(test)]
mod tests;

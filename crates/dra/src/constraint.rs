//! Evaluates `matchAttribute` and `distinctAttribute` constraints of a claim.

use value::Str;

use crate::claim::{Choice, DeviceConstraint, DeviceRequest};
use crate::inventory::{DeviceAttribute, PublishedDevice};

/// The constraints of one claim, with the attribute values of the devices chosen so far.
#[derive(Debug)]
pub(crate) struct Constraints<'c> {
    rules: Vec<TrackedConstraint<'c>>,
}

#[derive(Debug)]
struct TrackedConstraint<'c> {
    rule: &'c DeviceConstraint,
    values: Vec<DeviceAttribute>,
}

impl<'c> Constraints<'c> {
    /// Constraints before any device is chosen.
    pub(crate) fn new(rules: &'c [DeviceConstraint]) -> Self {
        Constraints {
            rules: rules.iter().map(|rule| TrackedConstraint { rule, values: Vec::new() }).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if a device satisfies the constraints together with those chosen so far.
    ///
    /// INVARIANT: a device that is refused stays refused when more devices are chosen, so that the search can prune
    /// here.
    pub(crate) fn allow(
        &self,
        request: &DeviceRequest,
        choice: &Choice,
        device: &PublishedDevice,
        driver: &str,
    ) -> bool {
        self.rules.iter().filter(|tracked| applies(tracked.rule, request, choice)).all(|tracked| match device
            .attribute(&tracked.rule.attribute, driver)
        {
            None | Some(DeviceAttribute::Other) => false,
            Some(value) if tracked.rule.distinct => !tracked.values.contains(value),
            Some(value) => tracked.values.first().is_none_or(|first| first == value),
        })
    }

    /// Records a chosen device.
    pub(crate) fn add(
        &mut self,
        request: &DeviceRequest,
        choice: &Choice,
        device: &PublishedDevice,
        driver: &str,
    ) {
        for tracked in &mut self.rules {
            if applies(tracked.rule, request, choice)
                && let Some(value) = device.attribute(&tracked.rule.attribute, driver)
            {
                tracked.values.push(value.clone());
            }
        }
    }

    /// Removes the device that was added last.
    pub(crate) fn remove(&mut self, request: &DeviceRequest, choice: &Choice) {
        for tracked in &mut self.rules {
            if applies(tracked.rule, request, choice) {
                tracked.values.pop();
            }
        }
    }
}

fn applies(rule: &DeviceConstraint, request: &DeviceRequest, choice: &Choice) -> bool {
    let named = |name: &Str| *name == request.name || *name == choice.name;
    rule.requests.is_empty() || rule.requests.iter().any(named)
}

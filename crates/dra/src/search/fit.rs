//! Tests whether a device meets a request, regardless of its usage.

use std::sync::Arc;

use value::Str;
use value::quantity::Quantity;

use crate::allocator::DeviceClass;
use crate::capacity;
use crate::claim::{Choice, PendingClaim};
use crate::error::Error;
use crate::inventory::{DeviceIndex, Inventory, PublishedDevice};
use crate::selectors::{SelectorEvaluator, SelectorFailure};

/// How to serve a choice on this node: selectors, number of devices and cached results.
pub(super) struct ChoicePlan<'s> {
    pub(super) class: &'s DeviceClass,
    pub(super) class_selectors: Vec<usize>,
    pub(super) selectors: Vec<usize>,
    /// Candidate indices of a request for all devices.
    pub(super) all: Option<Vec<usize>>,
    pub(super) count: usize,
    /// Results by candidate index, as far as tested. Most choices are never tried.
    pub(super) fits: Vec<Fit>,
    /// Candidate index of the first device found.
    pub(super) first: usize,
}

/// Amounts that a request takes from a device, one per capacity.
pub(crate) type TakenShares = Arc<[TakenShare]>;

/// The amount that a request takes from one capacity.
#[derive(Clone, Debug)]
pub(crate) struct TakenShare {
    pub(crate) capacity: Str,
    pub(crate) amount: Quantity,
    /// Total amount of the capacity, in billionths.
    pub(super) total: i128,
}

#[derive(Clone, Debug)]
pub(super) enum Fit {
    Unknown,
    No,
    /// The device fits; holds the amounts to take.
    Yes(TakenShares),
    Failed(Box<Error>),
}

/// The parts of a search that do not change.
#[derive(Clone, Copy)]
pub(super) struct SearchContext<'s> {
    pub(super) candidates: &'s [DeviceIndex],
    pub(super) inventory: &'s Inventory,
}

impl<'s> SearchContext<'s> {
    pub(super) fn candidate(&self, at: usize) -> Option<(DeviceIndex, &'s PublishedDevice)> {
        let position = *self.candidates.get(at)?;
        Some((position, self.inventory.devices.get(position)?))
    }
}

impl ChoicePlan<'_> {
    /// Tests whether a candidate meets a choice, regardless of its usage. Returns the amounts it would take, or
    /// `None`.
    pub(super) fn fit(
        &mut self,
        context: &SearchContext<'_>,
        evaluator: &mut SelectorEvaluator<'_>,
        claim: &PendingClaim,
        choice: &Choice,
        at: usize,
    ) -> Result<Option<TakenShares>, Error> {
        if matches!(self.fits.get(at), None | Some(Fit::Unknown)) {
            let fit = self.evaluate(context, evaluator, claim, choice, at);
            if self.fits.len() <= at {
                self.fits.resize(at + 1, Fit::Unknown);
            }
            if let Some(slot) = self.fits.get_mut(at) {
                *slot = fit;
            }
        }
        match self.fits.get(at) {
            Some(Fit::Yes(shares)) => Ok(Some(Arc::clone(shares))),
            Some(Fit::Failed(error)) => Err((**error).clone()),
            None | Some(Fit::Unknown | Fit::No) => Ok(None),
        }
    }

    fn evaluate(
        &self,
        context: &SearchContext<'_>,
        evaluator: &mut SelectorEvaluator<'_>,
        claim: &PendingClaim,
        choice: &Choice,
        at: usize,
    ) -> Fit {
        let Some((position, device)) = context.candidate(at) else { return Fit::No };
        let name = || context.inventory.full_name(device);
        let failed = |error: Error| Fit::Failed(Box::new(error));
        // `None` means that the budget is exhausted, which is no error of the selector.
        let said = |i: usize, failure: SelectorFailure| match failure {
            SelectorFailure::Compile(why) => Some(format!("selector #{i}: CEL compile error: {why}")),
            SelectorFailure::Run(why) => {
                Some(format!("selector #{i} on device {}: CEL runtime error: {why}", name()))
            }
            SelectorFailure::TooCostly => None,
        };
        for (i, selector) in self.class_selectors.iter().enumerate() {
            match evaluator.selects(*selector, device, position) {
                Ok(true) => {}
                Ok(false) => return Fit::No,
                Err(failure) => {
                    let class = |reason| Error::Class { class: self.class.name.clone(), reason };
                    return failed(said(i, failure).map_or(Error::TooCostly, class));
                }
            }
        }
        for (i, selector) in self.selectors.iter().enumerate() {
            match evaluator.selects(*selector, device, position) {
                Ok(true) => {}
                Ok(false) => return Fit::No,
                Err(failure) => {
                    let own = |reason| Error::Claim { claim: claim.id.clone(), reason };
                    return failed(said(i, failure).map_or(Error::TooCostly, own));
                }
            }
        }
        match shares(choice, device) {
            Ok(Some(shares)) => Fit::Yes(shares.into()),
            Ok(None) => Fit::No,
            Err(why) => {
                let reason = format!("checking capacity for device {}: {why}", name());
                failed(Error::Request { claim: claim.id.clone(), request: choice.own_name(), reason })
            }
        }
    }
}

/// Amounts that a choice takes from each capacity of a device; `None` if the device cannot provide them.
fn shares(choice: &Choice, device: &PublishedDevice) -> Result<Option<Vec<TakenShare>>, String> {
    let capacities = device.capacity.as_ref().map_err(Clone::clone)?;
    let wanted = choice.capacity.as_deref().unwrap_or_default();
    if !wanted.iter().all(|(name, _)| capacities.iter().any(|(known, _)| known == name)) {
        return Ok(None);
    }
    let mut shares = Vec::with_capacity(capacities.len());
    let mut fits = true;
    for (name, capacity) in capacities {
        let amount = wanted.iter().find(|(wanted, _)| wanted == name).map(|(_, amount)| amount);
        match capacity.share(amount).map_err(|why| format!("capacity \"{name}\": {why}"))? {
            capacity::CapacityShare::Takes(amount) => {
                fits &= amount <= capacity.value;
                shares.push(TakenShare { capacity: name.clone(), amount, total: capacity.value.nanos() });
            }
            capacity::CapacityShare::Refused => fits = false,
        }
    }
    Ok(fits.then_some(shares))
}

//! Whether a device has what a request asks for, whoever uses it.

use std::sync::Arc;

use value::Str;
use value::quantity::Quantity;

use crate::allocator::DeviceClass;
use crate::capacity;
use crate::claim::{Choice, PendingClaim};
use crate::error::Error;
use crate::inventory::{DeviceIndex, Inventory, PublishedDevice};
use crate::selectors::{SelectorEvaluator, SelectorFailure};

/// How a choice is served: what was found out about it on this node.
pub(super) struct ChoicePlan<'s> {
    pub(super) class: &'s DeviceClass,
    pub(super) class_selectors: Vec<usize>,
    pub(super) selectors: Vec<usize>,
    /// The candidates of a request for all devices, by position.
    pub(super) all: Option<Vec<usize>>,
    pub(super) count: usize,
    /// What is known of each candidate, apart from who uses it. As long as was looked: most choices are never tried.
    pub(super) fits: Vec<Fit>,
    /// Where the first device was found.
    pub(super) first: usize,
}

/// What is taken of the capacities of a device: something of each.
pub(crate) type TakenShares = Arc<[TakenShare]>;

/// What is taken of one capacity.
#[derive(Clone, Debug)]
pub(crate) struct TakenShare {
    pub(crate) capacity: Str,
    pub(crate) amount: Quantity,
    /// How much there is, whoever takes it.
    pub(super) total: i128,
}

#[derive(Clone, Debug)]
pub(super) enum Fit {
    Unknown,
    No,
    /// With what is taken of each capacity.
    Yes(TakenShares),
    Failed(Box<Error>),
}

/// What does not change while a search runs.
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
    /// Whether a candidate has what a choice asks for, whoever uses it; with what would be taken of its capacities.
    pub(super) fn fit(
        &mut self,
        world: &SearchContext<'_>,
        evaluator: &mut SelectorEvaluator<'_>,
        claim: &PendingClaim,
        choice: &Choice,
        at: usize,
    ) -> Result<Option<TakenShares>, Error> {
        if matches!(self.fits.get(at), None | Some(Fit::Unknown)) {
            let fit = self.judge(world, evaluator, claim, choice, at);
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

    fn judge(
        &self,
        world: &SearchContext<'_>,
        evaluator: &mut SelectorEvaluator<'_>,
        claim: &PendingClaim,
        choice: &Choice,
        at: usize,
    ) -> Fit {
        let Some((position, device)) = world.candidate(at) else { return Fit::No };
        let name = || world.inventory.full_name(device);
        let failed = |error: Error| Fit::Failed(Box::new(error));
        // `None` if it is not the selector that is wrong.
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

/// What a choice takes of each capacity of a device; `None` if the device cannot give it.
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

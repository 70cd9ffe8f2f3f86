//! A backtracking search for devices: serves every request in turn with the first suitable device.
//!
//! Devices are tried in inventory order and alternatives in claim order, so that the first solution is the preferred
//! one. The devices of one request, and of consecutive equal requests, are only taken in ascending order, because
//! permutations are the same solution.

mod fit;

use std::collections::HashMap;

use value::Str;

pub(crate) use self::fit::TakenShares;
use self::fit::{ChoicePlan, SearchContext};
use crate::allocator::{DeviceClass, DraGates};
use crate::budget::NODE_STEPS;
use crate::claim::{Choice, DeviceCount, DeviceRequest, MAX_RESULTS, PendingClaim};
use crate::constraint::Constraints;
use crate::error::Error;
use crate::inventory::{DeviceIndex, Inventory, PublishedDevice, Reachable, UnusablePool};
use crate::selectors::SelectorEvaluator;
use crate::usage::{DeviceHolding, Usage};

/// The classes and devices of the cluster, and the features that claims may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceCatalog<'s> {
    pub(crate) classes: &'s HashMap<Str, DeviceClass>,
    pub(crate) inventory: &'s Inventory,
    pub(crate) gates: DraGates,
}

pub(crate) struct DeviceSearch<'s> {
    claims: &'s [PendingClaim],
    candidates: &'s [DeviceIndex],
    inventory: &'s Inventory,
    usage: &'s mut Usage,
    evaluator: SelectorEvaluator<'s>,
    plans: Vec<Vec<Vec<ChoicePlan<'s>>>>,
    constraints: Vec<Constraints<'s>>,
    chosen: Vec<Vec<ChosenDevice>>,
    frames: Vec<SearchFrame>,
    steps: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct ChosenDevice {
    pub(crate) device: DeviceIndex,
    pub(crate) request: usize,
    pub(crate) choice: usize,
    /// Amounts taken from a device that allows multiple allocations.
    pub(crate) share: Option<TakenShares>,
    holding: Option<DeviceHolding>,
}

/// A decision that backtracking can undo.
#[derive(Clone, Copy, Debug)]
enum SearchFrame {
    Choice(ChoiceIndex),
    Device { index: ChoiceIndex, nth: usize, at: usize },
}

/// Indices of a claim, a request and an alternative.
#[derive(Clone, Copy, Debug)]
struct ChoiceIndex {
    claim: usize,
    request: usize,
    choice: usize,
}

/// The next decision to make.
#[derive(Clone, Copy, Debug)]
enum SearchGoal {
    Choose(ChoiceIndex),
    /// Find the `nth` device of a choice, starting at candidate `from`.
    Find {
        index: ChoiceIndex,
        nth: usize,
        from: usize,
    },
}

enum SearchOutcome {
    Done,
    Next(SearchGoal),
    Stuck,
}

impl<'s> DeviceSearch<'s> {
    /// Plans the search. Fails if a request is invalid.
    pub(crate) fn new(
        claims: &'s [PendingClaim],
        reachable: &'s Reachable,
        catalog: DeviceCatalog<'s>,
        usage: &'s mut Usage,
        evaluator: SelectorEvaluator<'s>,
    ) -> Result<Self, Error> {
        let mut search = DeviceSearch {
            claims,
            candidates: &reachable.devices,
            inventory: catalog.inventory,
            usage,
            evaluator,
            plans: Vec::with_capacity(claims.len()),
            constraints: claims.iter().map(|claim| Constraints::new(&claim.constraints)).collect(),
            chosen: vec![Vec::new(); claims.len()],
            frames: Vec::new(),
            steps: 0,
        };
        for claim in claims {
            let mut plans = Vec::with_capacity(claim.requests.len());
            let mut least = 0;
            for request in &claim.requests {
                let mut choices = Vec::with_capacity(request.choices.len());
                for choice in &request.choices {
                    choices.push(search.plan(claim, choice, reachable, catalog)?);
                }
                least += choices.iter().map(|plan| plan.count).min().unwrap_or(0);
                plans.push(choices);
            }
            if least > MAX_RESULTS {
                let reason =
                    format!("number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}");
                return Err(Error::Claim { claim: claim.id.clone(), reason });
            }
            search.plans.push(plans);
        }
        Ok(search)
    }

    fn plan(
        &mut self,
        claim: &PendingClaim,
        choice: &Choice,
        reachable: &Reachable,
        catalog: DeviceCatalog<'s>,
    ) -> Result<ChoicePlan<'s>, Error> {
        let wrong =
            |reason: String| Error::Request { claim: claim.id.clone(), request: choice.own_name(), reason };
        if choice.mentions_admin && !catalog.gates.admin_access {
            return Err(wrong("admin access is requested, but the feature is disabled".to_owned()));
        }
        if choice.capacity.is_some() && !catalog.gates.consumable_capacity {
            let reason = "has capacity requests, but the DRAConsumableCapacity feature is disabled";
            return Err(wrong(reason.to_owned()));
        }
        let Some(class) = catalog.classes.get(&choice.class) else {
            let name = &choice.class;
            return Err(wrong(format!(
                "could not retrieve device class {name}: deviceclass.resource.k8s.io \"{name}\" not found"
            )));
        };
        let mut class_selectors = Vec::with_capacity(class.selectors.len());
        for (i, selector) in class.selectors.iter().enumerate() {
            let Some(expression) = selector else {
                let reason = format!("selector #{i}: CEL expression empty (unsupported selector type?)");
                return Err(Error::Class { class: class.name.clone(), reason });
            };
            class_selectors.push(self.evaluator.position(expression)?);
        }
        let selectors = choice.selectors.iter().map(|selector| self.evaluator.position(selector));
        let selectors = selectors.collect::<Result<Vec<_>, _>>()?;
        let mut plan =
            ChoicePlan { class, class_selectors, selectors, all: None, count: 0, fits: Vec::new(), first: 0 };
        match choice.amount {
            DeviceCount::Exactly(count) => plan.count = count,
            DeviceCount::All => {
                for (at, state) in &reachable.unusable {
                    let Some(pool) = self.inventory.pools.get(*at) else { continue };
                    let state = match state {
                        UnusablePool::Invalid(_) => "invalid",
                        UnusablePool::Incomplete => "being updated",
                    };
                    return Err(wrong(format!(
                        "asks for all devices, but resource pool {}/{} is currently {state}",
                        pool.driver, pool.name
                    )));
                }
                let mut all = Vec::new();
                let context = SearchContext { candidates: self.candidates, inventory: self.inventory };
                for at in 0..self.candidates.len() {
                    self.count_step()?;
                    if plan.fit(&context, &mut self.evaluator, claim, choice, at)?.is_some() {
                        all.push(at);
                    }
                }
                plan.count = all.len();
                plan.all = Some(all);
            }
        }
        Ok(plan)
    }

    fn candidate(&self, at: usize) -> Option<(DeviceIndex, &'s PublishedDevice)> {
        SearchContext { candidates: self.candidates, inventory: self.inventory }.candidate(at)
    }

    /// Runs the search. The chosen devices count as used until [`DeviceSearch::finish`].
    pub(crate) fn run(&mut self) -> Result<bool, Error> {
        let mut goal = SearchGoal::Choose(ChoiceIndex { claim: 0, request: 0, choice: 0 });
        loop {
            goal = match self.advance(goal)? {
                SearchOutcome::Done => return Ok(true),
                SearchOutcome::Next(goal) => goal,
                SearchOutcome::Stuck => match self.step_back() {
                    Some(goal) => goal,
                    None => return Ok(false),
                },
            };
        }
    }

    /// The chosen devices of each claim. Releases their usage.
    pub(crate) fn finish(mut self) -> Vec<Vec<ChosenDevice>> {
        let chosen = self.chosen.clone();
        while self.step_back_once().is_some() {}
        chosen
    }

    fn advance(&mut self, goal: SearchGoal) -> Result<SearchOutcome, Error> {
        match goal {
            SearchGoal::Choose(index) => Ok(self.choose(index)),
            SearchGoal::Find { index, nth, from } => self.find(index, nth, from),
        }
    }

    fn choose(&mut self, index: ChoiceIndex) -> SearchOutcome {
        let Some(claim) = self.claims.get(index.claim) else { return SearchOutcome::Done };
        if index.request >= claim.requests.len() {
            return SearchOutcome::Next(SearchGoal::Choose(ChoiceIndex {
                claim: index.claim + 1,
                request: 0,
                choice: 0,
            }));
        }
        let Some(plan) = self.plan_at(index) else { return SearchOutcome::Stuck };
        let (count, is_all) = (plan.count, plan.all.is_some());
        let so_far = self.chosen.get(index.claim).map_or(0, Vec::len);
        if (is_all && count == 0) || so_far + count > MAX_RESULTS {
            return SearchOutcome::Next(SearchGoal::Choose(ChoiceIndex {
                choice: index.choice + 1,
                ..index
            }));
        }
        let from = self.start(claim, index);
        self.frames.push(SearchFrame::Choice(index));
        SearchOutcome::Next(SearchGoal::Find { index, nth: 0, from })
    }

    /// First candidate to try: a request equal to the previous one starts where that found its first device.
    fn start(&self, claim: &PendingClaim, index: ChoiceIndex) -> usize {
        let same = claim.requests.get(index.request).is_some_and(|request| request.same_as_previous);
        let before = index.request.checked_sub(1).filter(|_| same);
        before
            .and_then(|request| self.plan_at(ChoiceIndex { request, choice: 0, ..index }))
            .map_or(0, |plan| plan.first)
    }

    fn plan_at(&self, index: ChoiceIndex) -> Option<&ChoicePlan<'s>> {
        self.plans.get(index.claim)?.get(index.request)?.get(index.choice)
    }

    fn parts(&self, index: ChoiceIndex) -> Option<(&'s PendingClaim, &'s DeviceRequest, &'s Choice)> {
        let claim = self.claims.get(index.claim)?;
        let request = claim.requests.get(index.request)?;
        Some((claim, request, request.choices.get(index.choice)?))
    }

    fn find(&mut self, index: ChoiceIndex, nth: usize, from: usize) -> Result<SearchOutcome, Error> {
        let Some(plan) = self.plan_at(index) else { return Ok(SearchOutcome::Stuck) };
        let count = plan.count;
        if nth >= count {
            return Ok(SearchOutcome::Next(SearchGoal::Choose(ChoiceIndex {
                request: index.request + 1,
                choice: 0,
                ..index
            })));
        }
        if let Some(all) = &plan.all {
            let Some(at) = all.get(nth).copied() else { return Ok(SearchOutcome::Stuck) };
            return self.find_one_of_all(index, nth, at);
        }
        let missing = count - nth;
        if missing > 1 && !self.has_enough(index, from, missing)? {
            return Ok(SearchOutcome::Stuck);
        }
        for at in from..self.candidates.len() {
            self.count_step()?;
            if let Some(chosen) = self.usable(index, at)? {
                self.take(index, nth, at, chosen);
                return Ok(SearchOutcome::Next(SearchGoal::Find { index, nth: nth + 1, from: at + 1 }));
            }
        }
        Ok(SearchOutcome::Stuck)
    }

    fn find_one_of_all(&mut self, index: ChoiceIndex, nth: usize, at: usize) -> Result<SearchOutcome, Error> {
        self.count_step()?;
        match self.usable(index, at)? {
            Some(chosen) => {
                self.take(index, nth, at, chosen);
                Ok(SearchOutcome::Next(SearchGoal::Find { index, nth: nth + 1, from: 0 }))
            }
            None => Ok(SearchOutcome::Stuck),
        }
    }

    fn count_step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > NODE_STEPS {
            return Err(Error::TooComplex(NODE_STEPS));
        }
        self.evaluator.budget.spend_step()
    }

    /// True if enough usable candidates are left. The error of a candidate is only returned if the others are too
    /// few, because then the candidate is needed.
    fn has_enough(&mut self, index: ChoiceIndex, from: usize, missing: usize) -> Result<bool, Error> {
        let (mut found, mut failure) = (0, None);
        for at in from..self.candidates.len() {
            self.count_step()?;
            match self.usable(index, at) {
                Ok(None) => continue,
                Ok(Some(_)) => {}
                Err(Error::TooCostly) => return Err(Error::TooCostly),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
            found += 1;
            if found == missing {
                return Ok(true);
            }
        }
        failure.map_or(Ok(false), Err)
    }

    /// The device at a candidate index, if the choice can use it now.
    fn usable(&mut self, index: ChoiceIndex, at: usize) -> Result<Option<ChosenDevice>, Error> {
        let Some((claim, request, choice)) = self.parts(index) else { return Ok(None) };
        let Some((position, device)) = self.candidate(at) else { return Ok(None) };
        let in_claim = || {
            let chosen = self.chosen.get(index.claim).map(Vec::as_slice).unwrap_or_default();
            let name = |at: DeviceIndex| self.inventory.devices.get(at).map(|device| device.namesake);
            chosen.iter().any(|chosen| name(chosen.device) == Some(device.namesake))
        };
        if (!choice.admin && self.usage.is_owned(device)) || (!device.allows_multiple && in_claim()) {
            return Ok(None);
        }
        let Some(shares) = self.fit_at(index, claim, choice, at)? else { return Ok(None) };
        if !choice.admin {
            let has_room = shares.iter().all(|share| {
                self.usage.consumed_capacity(device, &share.capacity).saturating_add(share.amount.nanos())
                    <= share.total
            });
            if device.allows_multiple && !has_room {
                return Ok(None);
            }
            if !device.allows_multiple && self.usage.is_shared(device) {
                return Ok(None);
            }
            if !self.usage.has_counters(device, self.inventory) {
                return Ok(None);
            }
        }
        if device
            .taints
            .iter()
            .chain(&device.rule_taints)
            .any(|taint| !taint.is_tolerated(&choice.tolerations))
        {
            return Ok(None);
        }
        let driver = self.inventory.driver(device);
        let allowed = self.constraints.get(index.claim).is_none_or(|constraints| {
            constraints.is_empty() || constraints.allow(request, choice, device, driver)
        });
        if !allowed {
            if self.plan_at(index).is_some_and(|plan| plan.all.is_some()) {
                let reason = format!(
                    "cannot add device {} because a claim constraint would not be satisfied",
                    self.inventory.full_name(device)
                );
                return Err(Error::Request { claim: claim.id.clone(), request: choice.own_name(), reason });
            }
            return Ok(None);
        }
        let share = device.allows_multiple.then_some(shares);
        let holding = (!choice.admin).then(|| DeviceHolding {
            device: device.namesake,
            share: share.as_ref().map(|shares| {
                shares.iter().map(|share| (share.capacity.clone(), share.amount.nanos())).collect()
            }),
        });
        Ok(Some(ChosenDevice {
            device: position,
            request: index.request,
            choice: index.choice,
            share,
            holding,
        }))
    }

    fn fit_at(
        &mut self,
        index: ChoiceIndex,
        claim: &PendingClaim,
        choice: &Choice,
        at: usize,
    ) -> Result<Option<TakenShares>, Error> {
        let Some(plan) = plan_mut(&mut self.plans, index) else { return Ok(None) };
        let context = SearchContext { candidates: self.candidates, inventory: self.inventory };
        plan.fit(&context, &mut self.evaluator, claim, choice, at)
    }

    fn take(&mut self, index: ChoiceIndex, nth: usize, at: usize, chosen: ChosenDevice) {
        if let (Some((_, request, choice)), Some((_, device))) = (self.parts(index), self.candidate(at)) {
            let driver = self.inventory.driver(device);
            if let Some(constraints) = self.constraints.get_mut(index.claim) {
                constraints.add(request, choice, device, driver);
            }
        }
        if let Some(holding) = &chosen.holding {
            self.usage.take(holding, self.inventory);
        }
        if let Some(list) = self.chosen.get_mut(index.claim) {
            list.push(chosen);
        }
        if nth == 0
            && let Some(plan) = plan_mut(&mut self.plans, index)
        {
            plan.first = at;
        }
        self.frames.push(SearchFrame::Device { index, nth, at });
    }

    /// Undoes decisions until another alternative is left.
    fn step_back(&mut self) -> Option<SearchGoal> {
        loop {
            match self.step_back_once()? {
                SearchFrame::Choice(index) => {
                    return Some(SearchGoal::Choose(ChoiceIndex { choice: index.choice + 1, ..index }));
                }
                SearchFrame::Device { index, nth, at } => {
                    // A request for all devices has no other solution.
                    if self.plan_at(index).is_some_and(|plan| plan.all.is_none()) {
                        return Some(SearchGoal::Find { index, nth, from: at + 1 });
                    }
                }
            }
        }
    }

    fn step_back_once(&mut self) -> Option<SearchFrame> {
        let frame = self.frames.pop()?;
        if let SearchFrame::Device { index, .. } = frame {
            let chosen = self.chosen.get_mut(index.claim).and_then(Vec::pop);
            if let Some(holding) = chosen.and_then(|chosen| chosen.holding) {
                self.usage.give_back(&holding, self.inventory);
            }
            if let Some((_, request, choice)) = self.parts(index)
                && let Some(constraints) = self.constraints.get_mut(index.claim)
            {
                constraints.remove(request, choice);
            }
        }
        Some(frame)
    }
}

fn plan_mut<'p, 's>(
    plans: &'p mut [Vec<Vec<ChoicePlan<'s>>>],
    index: ChoiceIndex,
) -> Option<&'p mut ChoicePlan<'s>> {
    plans.get_mut(index.claim)?.get_mut(index.request)?.get_mut(index.choice)
}

//! The search for devices: every request in turn, for each the first device that will do, and back where that leads nowhere.
//!
//! Devices are tried in the order of the inventory and alternatives in the order of the claim, so that the first solution is
//! the one that names and priorities ask for. The devices of one request are taken in ascending order only, and so are those of
//! requests that ask for the same: other orders are the same solution again.

mod fit;

use std::collections::HashMap;

use value::Str;

pub(crate) use self::fit::Shares;
use self::fit::{Plan, World};
use crate::allocator::{Class, Gates};
use crate::budget::NODE_STEPS;
use crate::claim::{Amount, Choice, Claim, MAX_RESULTS, Request};
use crate::constraint::Constraints;
use crate::error::Error;
use crate::inventory::{Device, DeviceAt, Inventory, Reachable, Unusable};
use crate::selectors::Evaluator;
use crate::usage::{Holding, Usage};

/// What a search works with.
pub(crate) struct Search<'s> {
    claims: &'s [Claim],
    candidates: &'s [DeviceAt],
    inventory: &'s Inventory,
    usage: &'s mut Usage,
    evaluator: Evaluator<'s>,
    plans: Vec<Vec<Vec<Plan<'s>>>>,
    constraints: Vec<Constraints<'s>>,
    chosen: Vec<Vec<Chosen>>,
    frames: Vec<Frame>,
    steps: u64,
}

/// A device that was chosen for a request.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) device: DeviceAt,
    pub(crate) request: usize,
    pub(crate) choice: usize,
    /// What is taken of a device that others may use too.
    pub(crate) share: Option<Shares>,
    holding: Option<Holding>,
}

/// What was decided, and can be undone.
#[derive(Clone, Copy, Debug)]
enum Frame {
    Choice(Spot),
    Device { spot: Spot, nth: usize, at: usize },
}

/// A way to serve a request.
#[derive(Clone, Copy, Debug)]
struct Spot {
    claim: usize,
    request: usize,
    choice: usize,
}

/// What is to be decided next.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Choose(Spot),
    /// The `nth` device, from candidate `from` on.
    Find {
        spot: Spot,
        nth: usize,
        from: usize,
    },
}

enum Outcome {
    Done,
    Next(Goal),
    Stuck,
}

impl<'s> Search<'s> {
    /// Looks at what the claims ask for.
    pub(crate) fn new(
        claims: &'s [Claim],
        reachable: &'s Reachable,
        classes: &'s HashMap<Str, Class>,
        inventory: &'s Inventory,
        usage: &'s mut Usage,
        evaluator: Evaluator<'s>,
        gates: Gates,
    ) -> Result<Self, Error> {
        let mut search = Search {
            claims,
            candidates: &reachable.devices,
            inventory,
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
                    choices.push(search.plan(claim, choice, reachable, classes, gates)?);
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
        claim: &Claim,
        choice: &Choice,
        reachable: &Reachable,
        classes: &'s HashMap<Str, Class>,
        gates: Gates,
    ) -> Result<Plan<'s>, Error> {
        let wrong =
            |reason: String| Error::Request { claim: claim.id.clone(), request: choice.own_name(), reason };
        if choice.mentions_admin && !gates.admin_access {
            return Err(wrong("admin access is requested, but the feature is disabled".to_owned()));
        }
        if choice.capacity.is_some() && !gates.consumable_capacity {
            let reason = "has capacity requests, but the DRAConsumableCapacity feature is disabled";
            return Err(wrong(reason.to_owned()));
        }
        let Some(class) = classes.get(&choice.class) else {
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
            Plan { class, class_selectors, selectors, all: None, count: 0, fits: Vec::new(), first: 0 };
        match choice.amount {
            Amount::Exactly(count) => plan.count = count,
            Amount::All => {
                for (at, state) in &reachable.unusable {
                    let Some(pool) = self.inventory.pools.get(*at) else { continue };
                    let state = match state {
                        Unusable::Invalid(_) => "invalid",
                        Unusable::Incomplete => "being updated",
                    };
                    return Err(wrong(format!(
                        "asks for all devices, but resource pool {}/{} is currently {state}",
                        pool.driver, pool.name
                    )));
                }
                let mut all = Vec::new();
                let world = World { candidates: self.candidates, inventory: self.inventory };
                for at in 0..self.candidates.len() {
                    self.count_step()?;
                    if plan.fit(&world, &mut self.evaluator, claim, choice, at)?.is_some() {
                        all.push(at);
                    }
                }
                plan.count = all.len();
                plan.all = Some(all);
            }
        }
        Ok(plan)
    }

    fn candidate(&self, at: usize) -> Option<(DeviceAt, &'s Device)> {
        World { candidates: self.candidates, inventory: self.inventory }.candidate(at)
    }

    /// Searches. What was chosen stays taken until [`Search::finish`].
    pub(crate) fn run(&mut self) -> Result<bool, Error> {
        let mut goal = Goal::Choose(Spot { claim: 0, request: 0, choice: 0 });
        loop {
            goal = match self.advance(goal)? {
                Outcome::Done => return Ok(true),
                Outcome::Next(goal) => goal,
                Outcome::Stuck => match self.step_back() {
                    Some(goal) => goal,
                    None => return Ok(false),
                },
            };
        }
    }

    /// What was chosen for each claim. Nothing of it is taken any more.
    pub(crate) fn finish(mut self) -> Vec<Vec<Chosen>> {
        let chosen = self.chosen.clone();
        while self.step_back_once().is_some() {}
        chosen
    }

    fn advance(&mut self, goal: Goal) -> Result<Outcome, Error> {
        match goal {
            Goal::Choose(spot) => Ok(self.choose(spot)),
            Goal::Find { spot, nth, from } => self.find(spot, nth, from),
        }
    }

    fn choose(&mut self, spot: Spot) -> Outcome {
        let Some(claim) = self.claims.get(spot.claim) else { return Outcome::Done };
        if spot.request >= claim.requests.len() {
            return Outcome::Next(Goal::Choose(Spot { claim: spot.claim + 1, request: 0, choice: 0 }));
        }
        let Some(plan) = self.plan_at(spot) else { return Outcome::Stuck };
        let (count, is_all) = (plan.count, plan.all.is_some());
        let so_far = self.chosen.get(spot.claim).map_or(0, Vec::len);
        if (is_all && count == 0) || so_far + count > MAX_RESULTS {
            return Outcome::Next(Goal::Choose(Spot { choice: spot.choice + 1, ..spot }));
        }
        let from = self.start(claim, spot);
        self.frames.push(Frame::Choice(spot));
        Outcome::Next(Goal::Find { spot, nth: 0, from })
    }

    /// Where to begin: requests that ask for the same as the one before need not look at what that passed over.
    fn start(&self, claim: &Claim, spot: Spot) -> usize {
        let same = claim.requests.get(spot.request).is_some_and(|request| request.like_the_one_before);
        let before = spot.request.checked_sub(1).filter(|_| same);
        before
            .and_then(|request| self.plan_at(Spot { request, choice: 0, ..spot }))
            .map_or(0, |plan| plan.first)
    }

    fn plan_at(&self, spot: Spot) -> Option<&Plan<'s>> {
        self.plans.get(spot.claim)?.get(spot.request)?.get(spot.choice)
    }

    fn parts(&self, spot: Spot) -> Option<(&'s Claim, &'s Request, &'s Choice)> {
        let claim = self.claims.get(spot.claim)?;
        let request = claim.requests.get(spot.request)?;
        Some((claim, request, request.choices.get(spot.choice)?))
    }

    fn find(&mut self, spot: Spot, nth: usize, from: usize) -> Result<Outcome, Error> {
        let Some(plan) = self.plan_at(spot) else { return Ok(Outcome::Stuck) };
        let count = plan.count;
        if nth >= count {
            return Ok(Outcome::Next(Goal::Choose(Spot { request: spot.request + 1, choice: 0, ..spot })));
        }
        if let Some(all) = &plan.all {
            let Some(at) = all.get(nth).copied() else { return Ok(Outcome::Stuck) };
            return self.find_one_of_all(spot, nth, at);
        }
        let missing = count - nth;
        if missing > 1 && !self.has_enough(spot, from, missing)? {
            return Ok(Outcome::Stuck);
        }
        for at in from..self.candidates.len() {
            self.count_step()?;
            if let Some(chosen) = self.usable(spot, at)? {
                self.take(spot, nth, at, chosen);
                return Ok(Outcome::Next(Goal::Find { spot, nth: nth + 1, from: at + 1 }));
            }
        }
        Ok(Outcome::Stuck)
    }

    fn find_one_of_all(&mut self, spot: Spot, nth: usize, at: usize) -> Result<Outcome, Error> {
        self.count_step()?;
        match self.usable(spot, at)? {
            Some(chosen) => {
                self.take(spot, nth, at, chosen);
                Ok(Outcome::Next(Goal::Find { spot, nth: nth + 1, from: 0 }))
            }
            None => Ok(Outcome::Stuck),
        }
    }

    fn count_step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > NODE_STEPS {
            return Err(Error::TooComplex(NODE_STEPS));
        }
        self.evaluator.budget.spend_step()
    }

    /// Whether enough candidates are left for a request. What is wrong with one that may never be needed is not said yet, unless
    /// there are too few anyway: then it would be needed.
    fn has_enough(&mut self, spot: Spot, from: usize, missing: usize) -> Result<bool, Error> {
        let (mut found, mut failure) = (0, None);
        for at in from..self.candidates.len() {
            self.count_step()?;
            match self.usable(spot, at) {
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

    /// Whether a candidate can be used for a choice now.
    fn usable(&mut self, spot: Spot, at: usize) -> Result<Option<Chosen>, Error> {
        let Some((claim, request, choice)) = self.parts(spot) else { return Ok(None) };
        let Some((position, device)) = self.candidate(at) else { return Ok(None) };
        let in_claim = || {
            let chosen = self.chosen.get(spot.claim).map(Vec::as_slice).unwrap_or_default();
            let name = |at: DeviceAt| self.inventory.devices.get(at).map(|device| device.namesake);
            chosen.iter().any(|chosen| name(chosen.device) == Some(device.namesake))
        };
        if (!choice.admin && self.usage.is_owned(device)) || (!device.multiple && in_claim()) {
            return Ok(None);
        }
        let Some(shares) = self.fit_at(spot, claim, choice, at)? else { return Ok(None) };
        if !choice.admin {
            let has_room = shares.iter().all(|share| {
                self.usage.taken(device, &share.capacity).saturating_add(share.amount.nanos()) <= share.of
            });
            if device.multiple && !has_room {
                return Ok(None);
            }
            if !device.multiple && self.usage.is_shared(device) {
                return Ok(None);
            }
            if !self.usage.has_counters(device, self.inventory) {
                return Ok(None);
            }
        }
        if device.taints.iter().chain(&device.ruled).any(|taint| !taint.is_tolerated(&choice.tolerations)) {
            return Ok(None);
        }
        let driver = self.inventory.driver(device);
        let allowed = self.constraints.get(spot.claim).is_none_or(|constraints| {
            constraints.is_empty() || constraints.allow(request, choice, device, driver)
        });
        if !allowed {
            if self.plan_at(spot).is_some_and(|plan| plan.all.is_some()) {
                let reason = format!(
                    "cannot add device {} because a claim constraint would not be satisfied",
                    self.inventory.full_name(device)
                );
                return Err(Error::Request { claim: claim.id.clone(), request: choice.own_name(), reason });
            }
            return Ok(None);
        }
        let share = device.multiple.then_some(shares);
        let holding = (!choice.admin).then(|| Holding {
            device: device.namesake,
            share: share.as_ref().map(|shares| {
                shares.iter().map(|share| (share.capacity.clone(), share.amount.nanos())).collect()
            }),
        });
        Ok(Some(Chosen { device: position, request: spot.request, choice: spot.choice, share, holding }))
    }

    fn fit_at(
        &mut self,
        spot: Spot,
        claim: &Claim,
        choice: &Choice,
        at: usize,
    ) -> Result<Option<Shares>, Error> {
        let Some(plan) = plan_mut(&mut self.plans, spot) else { return Ok(None) };
        let world = World { candidates: self.candidates, inventory: self.inventory };
        plan.fit(&world, &mut self.evaluator, claim, choice, at)
    }

    fn take(&mut self, spot: Spot, nth: usize, at: usize, chosen: Chosen) {
        if let (Some((_, request, choice)), Some((_, device))) = (self.parts(spot), self.candidate(at)) {
            let driver = self.inventory.driver(device);
            if let Some(constraints) = self.constraints.get_mut(spot.claim) {
                constraints.add(request, choice, device, driver);
            }
        }
        if let Some(holding) = &chosen.holding {
            self.usage.take(holding, self.inventory);
        }
        if let Some(list) = self.chosen.get_mut(spot.claim) {
            list.push(chosen);
        }
        if nth == 0
            && let Some(plan) = plan_mut(&mut self.plans, spot)
        {
            plan.first = at;
        }
        self.frames.push(Frame::Device { spot, nth, at });
    }

    /// Undoes decisions until there is another way.
    fn step_back(&mut self) -> Option<Goal> {
        loop {
            match self.step_back_once()? {
                Frame::Choice(spot) => {
                    return Some(Goal::Choose(Spot { choice: spot.choice + 1, ..spot }));
                }
                Frame::Device { spot, nth, at } => {
                    // All devices are wanted, in whatever order: there is no other way.
                    if self.plan_at(spot).is_some_and(|plan| plan.all.is_none()) {
                        return Some(Goal::Find { spot, nth, from: at + 1 });
                    }
                }
            }
        }
    }

    fn step_back_once(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        if let Frame::Device { spot, .. } = frame {
            let chosen = self.chosen.get_mut(spot.claim).and_then(Vec::pop);
            if let Some(holding) = chosen.and_then(|chosen| chosen.holding) {
                self.usage.give_back(&holding, self.inventory);
            }
            if let Some((_, request, choice)) = self.parts(spot)
                && let Some(constraints) = self.constraints.get_mut(spot.claim)
            {
                constraints.remove(request, choice);
            }
        }
        Some(frame)
    }
}

fn plan_mut<'p, 's>(plans: &'p mut [Vec<Vec<Plan<'s>>>], spot: Spot) -> Option<&'p mut Plan<'s>> {
    plans.get_mut(spot.claim)?.get_mut(spot.request)?.get_mut(spot.choice)
}

//! Validation of the responders of an eviction.
//!
//! Several clients write the status, so every update must be one that the eviction controller or a responder makes: responders become
//! active one after another, by priority, and never go back; only the active one reports on its progress.

use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};

use api::FieldErrors;
use api::time::Timestamp;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::repeated::first_by;
use value::Value;

use super::declared::MAX_RESPONDERS;
use crate::validation::declared::has_repeated;
use crate::validation::internal_json;

const TARGETS: At<'static> = At::new("status.targetResponders");
const REPORTS: At<'static> = At::new("status.responders");

/// Seconds without a report after which a responder is passed over.
const HEARTBEAT_DEADLINE: i64 = 20 * 60;
/// Seconds by which the clocks of clients may differ from the server's.
const CLOCK_SKEW: i64 = 30;
/// Seconds from now within which an eviction is expected to end: ten years.
const MAX_EXPECTED: i64 = 10 * 365 * 24 * 3600;
/// Kubernetes' own responder, and its priority.
const IMPERATIVE: (&str, i64) = ("imperative-eviction.k8s.io/evictor", 100);
/// Lower priorities are reserved for Kubernetes' own responders.
const FIRST_UNRESERVED: i64 = 1000;

const INACTIVE: &str = "Inactive";
const ACTIVE: &str = "Active";
const ENDED: &[&str] = &["Canceled", "Completed", "Interrupted"];

/// How an eviction ended, if it did.
#[derive(Clone, Copy)]
pub(super) struct EvictionOutcome {
    pub(super) evicted: bool,
    pub(super) failed: bool,
}

impl EvictionOutcome {
    fn is_final(self) -> bool {
        self.evicted || self.failed
    }
}

/// Validates the states of the responders.
pub(super) fn target_responders(
    status: Option<&Value>,
    former: Option<&Value>,
    outcome: EvictionOutcome,
    now: i64,
    errors: &mut FieldErrors,
) {
    const FIELD: &str = "targetResponders";
    let (targets, before) = (status.items(FIELD), former.items(FIELD));
    let differ = |detail: &str, errors: &mut FieldErrors| {
        let shown = internal_json::compact("[]lifecycle.TargetResponder", status.part(FIELD));
        errors.invalid_json(&TARGETS, &shown, detail);
    };
    if !before.is_empty() {
        if targets.len() != before.len() {
            return differ("must preserve the same length and the same keys", errors);
        }
        if !has_names(targets, before) {
            return differ("must preserve the same keys", errors);
        }
    }
    // Declared rules report too many and repeated responders.
    if targets.len() > MAX_RESPONDERS || has_repeated(targets, "name") {
        return;
    }
    let reports = first_by(status.items("responders"), "name");
    let sorted_targets = sorted(targets);
    let expected = ExpectedStates::new(sorted(before), &sorted_targets, outcome);
    for (rank, (i, target)) in sorted_targets.into_iter().enumerate() {
        let report = reports.get(target.text("name")).copied();
        let (states, reason) = expected.of(rank);
        let expected = ExpectedTarget { states: &states, reason, outcome, now };
        target_responder(target, report, &expected, &TARGETS.index(i), errors);
    }
}

/// Reports whether the names of `before` all occur in `list`.
fn has_names(list: &[Value], before: &[Value]) -> bool {
    let names: HashSet<&str> = list.iter().map(|item| item.text("name")).collect();
    before.iter().all(|item| names.contains(item.text("name")))
}

/// The responders with their indexes, in the order in which they become active.
fn sorted(responders: &[Value]) -> Vec<(usize, &Value)> {
    let mut sorted: Vec<(usize, &Value)> = responders.iter().enumerate().collect();
    sorted.sort_by(|(_, a), (_, b)| by_priority(a, b));
    sorted
}

/// The highest priority comes first; of equal ones, the first by domain, compared from the top level down, then by key.
fn by_priority(a: &Value, b: &Value) -> Ordering {
    fn key(responder: &Value) -> (Reverse<Option<i64>>, Vec<&str>, &str) {
        let name = responder.text("name");
        let (domain, key) = name.split_once('/').unwrap_or((name, ""));
        (Reverse(responder.number_if_set("priority")), domain.rsplit('.').collect(), key)
    }
    key(a).cmp(&key(b))
}

/// The states that responders may have, by their rank.
struct ExpectedStates<'a> {
    before: Vec<&'a str>,
    /// The rank of the first responder that was active.
    active: Option<usize>,
    /// That responder is not active any more.
    has_changed: bool,
    is_final: bool,
    /// Nothing remains to be done: the eviction or its last responder has ended.
    is_done: bool,
}

impl<'a> ExpectedStates<'a> {
    fn new(
        before: Vec<(usize, &'a Value)>,
        targets: &[(usize, &'a Value)],
        outcome: EvictionOutcome,
    ) -> Self {
        let states: Vec<&str> = before.into_iter().map(|(_, target)| target.text("state")).collect();
        let active = states.iter().position(|state| *state == ACTIVE);
        let now = active.and_then(|rank| targets.get(rank));
        let last_ended = states.last().is_some_and(|state| ENDED.contains(state));
        ExpectedStates {
            has_changed: now.is_some_and(|(_, target)| target.text("state") != ACTIVE),
            active,
            is_final: outcome.is_final(),
            is_done: outcome.is_final() || last_ended,
            before: states,
        }
    }

    /// The states for a rank, sorted, and the reason.
    fn of(&self, rank: usize) -> (Vec<&'a str>, &'static str) {
        const FINISHED: &str = "the eviction request has finished processing";
        let has_ended = match self.active {
            Some(active) => rank < active,
            None => !self.before.is_empty() && self.is_done,
        };
        let is_next = match self.active {
            Some(active) => self.has_changed && rank == active + 1,
            None => rank == 0 && self.before.is_empty(),
        };
        if has_ended {
            return (self.before.get(rank).copied().into_iter().collect(), "final state is immutable");
        }
        if self.active == Some(rank) {
            return match (self.has_changed, self.is_final) {
                (true, _) => (ENDED.to_vec(), "this responder must reach a final state"),
                (false, true) => (ENDED.to_vec(), FINISHED),
                (false, false) => (vec![ACTIVE], "the eviction request stays active"),
            };
        }
        match (is_next, self.is_final) {
            (true, false) => (vec![ACTIVE], "this responder is next in line"),
            (true, true) => (vec![INACTIVE], FINISHED),
            (false, _) => (vec![INACTIVE], "the previously active has not finished processing"),
        }
    }
}

/// The states that a target responder may have, and the eviction that they follow from.
struct ExpectedTarget<'a> {
    states: &'a [&'a str],
    reason: &'a str,
    outcome: EvictionOutcome,
    /// The current time in seconds since 1970.
    now: i64,
}

fn target_responder(
    target: &Value,
    report: Option<&Value>,
    expected: &ExpectedTarget<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let ExpectedTarget { states: expected, reason, outcome, now } = *expected;
    let name = target.text("name");
    let Some(report) = report else {
        let shown = internal_json::compact("lifecycle.TargetResponder", Some(target));
        let quoted = api::field::quote(name);
        return errors.invalid_json(at, &shown, &format!("{quoted} has to be tracked in {REPORTS} first"));
    };
    priority(target, name, &at.field("priority"), errors);

    let state = target.text("state");
    let at = at.field("state");
    if !expected.contains(&state) {
        let states = expected.join(", ");
        return errors.invalid(&at, state, format!("must be one of: {states}, because {reason}"));
    }
    let completed = report.part("completionTime").is_some();
    let last = time(report, "heartbeatTime").or_else(|| time(report, "startTime"));
    if state != ACTIVE
        && !completed
        && !outcome.is_final()
        && report.part("startTime").is_some()
        && last.is_some_and(|last| now < last.saturating_add(HEARTBEAT_DEADLINE - CLOCK_SKEW))
    {
        errors.forbidden(&at, format!("must stay Active because the responder is in progress and it should report {REPORTS}.heartbeatTime or {REPORTS}.completionTime"));
    }
    if state == "Completed" && !completed {
        let detail =
            format!("cannot become Completed because the responder didn't report {REPORTS}.completionTime");
        errors.invalid(&at, state, detail);
    }
}

fn priority(target: &Value, name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(priority) = target.number_if_set("priority").filter(|priority| *priority >= 0) else { return };
    if name == IMPERATIVE.0 {
        if priority != IMPERATIVE.1 {
            let expected = IMPERATIVE.1;
            let detail = format!("core k8s responder is expected to have priority: {expected}");
            errors.invalid(at, priority, detail);
        }
    } else if priority < FIRST_UNRESERVED {
        let detail = "priorities 0-999 are reserved for responders with *.k8s.io suffix";
        errors.invalid(at, priority, detail);
    }
}

/// A time in seconds since 1970.
fn time(holder: &Value, field: &str) -> Option<i64> {
    Some(Timestamp::parse(holder.text_if_set(field)?).ok()?.seconds)
}

/// Validates what the responders report.
pub(super) fn status_responders(
    status: Option<&Value>,
    former: Option<&Value>,
    now: i64,
    errors: &mut FieldErrors,
) {
    const FIELD: &str = "responders";
    let (targets, reports) = (status.items("targetResponders"), status.items(FIELD));
    let differ = |detail: &str, errors: &mut FieldErrors| {
        let shown = internal_json::compact("[]lifecycle.ResponderStatus", status.part(FIELD));
        errors.invalid_json(&REPORTS, &shown, detail);
    };
    if targets.len() != reports.len() {
        return differ(
            "must be the same length as status.targetResponders and contain the same keys",
            errors,
        );
    }
    if !has_names(reports, targets) {
        return differ("must contain the same keys as status.targetResponders", errors);
    }
    // Declared rules report too many and repeated responders.
    if reports.len() > MAX_RESPONDERS || has_repeated(reports, "name") {
        return;
    }
    let states: HashMap<&str, &str> =
        targets.iter().map(|target| (target.text("name"), target.text("state"))).collect();
    let before = first_by(former.items(FIELD), "name");
    for (i, report) in reports.iter().enumerate() {
        let name = report.text("name");
        let is_active = states.get(name) == Some(&ACTIVE);
        status_responder(report, before.get(name).copied(), is_active, now, &REPORTS.index(i), errors);
    }
}

fn status_responder(
    report: &Value,
    before: Option<&Value>,
    is_active: bool,
    now: i64,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if !is_active && before.is_some_and(|before| !same(Some(report), Some(before))) {
        let shown = internal_json::compact("lifecycle.ResponderStatus", Some(report));
        return errors.invalid_json(at, &shown, IMMUTABLE);
    }
    let times = ResponderTimes { report, before, now, start: time(report, "startTime"), at };
    times.start(is_active, errors);
    times.heartbeat(errors);
    times.expected_completion(errors);
    times.completion(errors);
}

/// The times that a responder reports.
struct ResponderTimes<'a> {
    report: &'a Value,
    before: Option<&'a Value>,
    now: i64,
    start: Option<i64>,
    at: &'a At<'a>,
}

const NOT_PRESENT: &str = "must be set to the present time";

impl ResponderTimes<'_> {
    /// The former and the new time of a field.
    fn change(&self, field: &str) -> (Option<i64>, Option<i64>) {
        (self.before.and_then(|before| time(before, field)), time(self.report, field))
    }

    fn invalid(&self, field: &str, detail: impl Into<String>, errors: &mut FieldErrors) {
        errors.invalid(&self.at.field(field), self.report.text(field), detail);
    }

    fn is_present(&self, time: i64) -> bool {
        time > self.now.saturating_sub(CLOCK_SKEW) && time < self.now.saturating_add(CLOCK_SKEW)
    }

    fn start(&self, is_active: bool, errors: &mut FieldErrors) {
        const FIELD: &str = "startTime";
        match self.change(FIELD) {
            (None, None) if is_active => {
                errors.required(&self.at.field(FIELD), "is required for an active responder");
            }
            (None, Some(start)) if !self.is_present(start) => self.invalid(FIELD, NOT_PRESENT, errors),
            // Declared rules report a change.
            _ => {}
        }
    }

    fn heartbeat(&self, errors: &mut FieldErrors) {
        const FIELD: &str = "heartbeatTime";
        let (before, beat) = self.change(FIELD);
        if before.is_some() && beat.is_none() {
            errors.required(&self.at.field(FIELD), "is required once set");
        }
        let Some(beat) = beat.filter(|_| before != beat) else { return };
        if self.is_before_start(FIELD, beat, before, errors) {
            return;
        }
        if !self.is_present(beat) {
            self.invalid(FIELD, NOT_PRESENT, errors);
        }
    }

    /// Reports a time before the start or, for heartbeats, before the last one.
    fn is_before_start(&self, field: &str, time: i64, least: Option<i64>, errors: &mut FieldErrors) -> bool {
        let start = format!("{}.startTime", self.at);
        let detail = match self.start {
            None => format!("cannot be set before {start} is set"),
            Some(_) if least.is_some_and(|least| time < least) => "cannot be decreased".to_owned(),
            Some(begun) if time < begun => format!("must occur after {start}"),
            Some(_) => return false,
        };
        self.invalid(field, detail, errors);
        true
    }

    fn expected_completion(&self, errors: &mut FieldErrors) {
        const FIELD: &str = "expectedCompletionTime";
        let (before, expected) = self.change(FIELD);
        let Some(expected) = expected.filter(|_| before != expected) else { return };
        if self.is_before_start(FIELD, expected, None, errors) {
            return;
        }
        if expected < self.now.saturating_sub(CLOCK_SKEW) {
            self.invalid(FIELD, "cannot be set to the past time", errors);
        } else if expected > self.now.saturating_add(MAX_EXPECTED) {
            self.invalid(FIELD, "must complete within 10 years", errors);
        }
    }

    fn completion(&self, errors: &mut FieldErrors) {
        const FIELD: &str = "completionTime";
        let (before, completion) = self.change(FIELD);
        let Some(completion) = completion else { return };
        if before.is_some_and(|before| before != completion) {
            // Declared rules report the change.
            return;
        }
        if self.is_before_start(FIELD, completion, None, errors) {
            return;
        }
        if before.is_none() && !self.is_present(completion) {
            self.invalid(FIELD, NOT_PRESENT, errors);
        }
    }
}

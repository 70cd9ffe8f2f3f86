//! Validation of Job status updates: counts, indexes and terminal conditions.

use std::collections::HashSet;

use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use api::{FieldErrors, field::FieldErrorKind};
use value::Value;

use super::{ValidationContext, internal_json};

const STATUS: At<'static> = At::new("status");

/// Returns true if the condition exists and is `True`.
pub(super) fn is_true(status: Option<&Value>, condition: &str) -> bool {
    has(status, condition, "True")
}

fn has(status: Option<&Value>, condition: &str, value: &str) -> bool {
    status
        .items("conditions")
        .iter()
        .any(|other| other.text("type") == condition && other.text("status") == value)
}

/// New and old status of a job.
struct JobStatusChange<'a> {
    spec: Option<&'a Value>,
    new: Option<&'a Value>,
    old: Option<&'a Value>,
}

impl JobStatusChange<'_> {
    fn of(&self, field: &str) -> bool {
        !same(self.new.part(field), self.old.part(field))
    }

    fn of_condition(&self, condition: &str) -> bool {
        is_true(self.new, condition) != is_true(self.old, condition)
    }

    fn finished(&self) -> bool {
        is_true(self.new, "Complete") || is_true(self.new, "Failed")
    }

    fn of_finished(&self) -> bool {
        self.finished() != (is_true(self.old, "Complete") || is_true(self.old, "Failed"))
    }
}

/// Validates an update through the `status` subresource. Rules check only changed fields, so that a job that already
/// violates one can still be updated.
pub(super) fn update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let change = JobStatusChange { spec: new.part("spec"), new: new.part("status"), old: old.part("status") };
    counts(&change, &mut errors);
    ending(&change, &mut errors);
    index_lists(&change, &mut errors);
    pods_left(&change, &mut errors);
    criteria(&change, &mut errors);
    transitions(&change, &mut errors);
    errors
}

fn wrong_conditions(detail: impl Into<String>, errors: &mut FieldErrors) {
    errors.report(FieldErrorKind::Invalid, &STATUS.field("conditions"), None, detail.into());
}

fn counts(change: &JobStatusChange<'_>, errors: &mut FieldErrors) {
    let status = change.new;
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.not_negative(&STATUS.field(field), status.number(field));
    }
    let pods = status.part("uncountedTerminatedPods");
    let mut seen: HashSet<&str> = HashSet::new();
    for field in ["succeeded", "failed"] {
        let list = STATUS.field("uncountedTerminatedPods");
        let list = list.field(field);
        for (i, uid) in pods.texts(field).enumerate() {
            if uid.is_empty() {
                errors.invalid(&list.index(i), uid, "must not be empty");
            } else if !seen.insert(uid) {
                errors.duplicate(&list.index(i), uid);
            }
        }
    }
}

fn ending(change: &JobStatusChange<'_>, errors: &mut FieldErrors) {
    let status = change.new;
    let (complete, failed) = (is_true(status, "Complete"), is_true(status, "Failed"));
    let (start, end) = (status.text_if_set("startTime"), status.text_if_set("completionTime"));
    let end_at = STATUS.field("completionTime");
    let complete_changed = change.of_condition("Complete");
    let end_changed = change.of("completionTime");
    if (complete_changed || change.of_condition("Failed")) && complete && failed {
        wrong_conditions("cannot set Complete=True and Failed=true conditions", errors);
    }
    if (complete_changed || change.of_condition("FailureTarget"))
        && complete
        && is_true(status, "FailureTarget")
    {
        wrong_conditions("cannot set Complete=True and FailureTarget=true conditions", errors);
    }
    if complete_changed || end_changed {
        match end {
            Some(end) if !complete => {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&end_at, end, detail);
            }
            None if complete => errors.required(&end_at, "completionTime is required for Complete jobs"),
            _ => {}
        }
    }
    // Both are RFC 3339 in UTC with whole seconds, so string order is time order.
    if let (Some(start), Some(end)) = (start, end)
        && (change.of("startTime") || end_changed)
        && end < start
    {
        errors.invalid(&end_at, end, "must be equal to or after `startTime`");
    }
    if (change.of_condition("Failed") || change.of("failedIndexes"))
        && failed
        && !is_true(status, "FailureTarget")
    {
        wrong_conditions("cannot set Failed=True condition without the FailureTarget=true condition", errors);
    }
    if (complete_changed || change.of_condition("SuccessCriteriaMet"))
        && complete
        && !is_true(status, "SuccessCriteriaMet")
    {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        wrong_conditions(detail, errors);
    }
    let active = status.number("active");
    if (change.of_finished() || change.of("active")) && active > 0 && change.finished() {
        errors.invalid(&STATUS.field("active"), active, "active>0 is invalid for finished job");
    }
    let never_ran = change.spec.flag("suspend") && change.spec.number_if_set("completions") == Some(0);
    if (change.of_finished() || change.of("startTime")) && !never_ran && start.is_none() && change.finished()
    {
        errors.required(&STATUS.field("startTime"), "startTime is required for finished job");
    }
    let pods = status.part("uncountedTerminatedPods");
    if (change.of_finished() || change.of("uncountedTerminatedPods"))
        && change.finished()
        && ["failed", "succeeded"].iter().any(|list| !pods.items(list).is_empty())
    {
        let json = internal_json::compact("UncountedTerminatedPods", pods);
        let at = STATUS.field("uncountedTerminatedPods");
        errors.invalid_json(&at, &json, "must be empty for finished job");
    }
}

fn index_lists(change: &JobStatusChange<'_>, errors: &mut FieldErrors) {
    let (completed_changed, failed_changed) = (change.of("completedIndexes"), change.of("failedIndexes"));
    let completed = change.new.text("completedIndexes");
    let failed = change.new.text_if_set("failedIndexes");
    let (completed_at, failed_at) = (STATUS.field("completedIndexes"), STATUS.field("failedIndexes"));
    let completions = change.spec.number_if_set("completions");
    let per_index = change.spec.part("backoffLimitPerIndex").is_some();
    if let Some(completions) = completions {
        if completed_changed && let Err(why) = indexes(completed, completions) {
            errors.invalid(&completed_at, completed, format!("error parsing completedIndexes: {why}"));
        }
        if failed_changed
            && per_index
            && let Some(failed) = failed
            && let Err(why) = indexes(failed, completions)
        {
            errors.invalid(&failed_at, failed, format!("error parsing failedIndexes: {why}"));
        }
    }
    if completed_changed && !completed.is_empty() && change.spec.text("completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&completed_at, completed, detail);
    }
    if let Some(failed) = failed {
        if failed_changed && !per_index {
            let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.invalid(&failed_at, failed, detail);
        }
        if let Some(completions) = completions
            && (failed_changed || completed_changed)
            && let Some(index) = overlap(completed, failed, completions)
        {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.invalid(&failed_at, failed, detail);
        }
    }
}

fn pods_left(change: &JobStatusChange<'_>, errors: &mut FieldErrors) {
    let terminating = change.new.number("terminating");
    if (change.of_finished() || change.of("terminating")) && terminating > 0 && change.finished() {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(&STATUS.field("terminating"), terminating, detail);
    }
    let ready = change.new.number("ready");
    if (change.of("ready") || change.of("active")) && ready > change.new.number("active") {
        errors.invalid(&STATUS.field("ready"), ready, "cannot set more ready pods than active");
    }
}

fn criteria(change: &JobStatusChange<'_>, errors: &mut FieldErrors) {
    let status = change.new;
    let met = is_true(status, "SuccessCriteriaMet");
    if met && is_true(status, "Failed") {
        wrong_conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions", errors);
    }
    if met && is_true(status, "FailureTarget") {
        wrong_conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions", errors);
    }
    if change.spec.part("successPolicy").is_some() && !met && is_true(status, "Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        wrong_conditions(detail, errors);
    }
}

fn transitions(change: &JobStatusChange<'_>, errors: &mut FieldErrors) {
    let (new, old) = (change.new, change.old);
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, condition) && !is_true(new, condition) {
            wrong_conditions(format!("cannot disable the terminal {condition}=True condition"), errors);
        }
    }
    let scales = change.spec.text("completionMode") == "Indexed"
        && change.spec.number_if_set("completions") == change.spec.number_if_set("parallelism");
    for (field, may_shrink) in [("failed", false), ("succeeded", scales)] {
        if new.number(field) < old.number(field) && !may_shrink {
            let detail = format!("cannot decrease the {field} counter");
            errors.invalid(&STATUS.field(field), new.number(field), detail);
        }
    }
    if let (Some(end), Some(before)) = (new.text_if_set("completionTime"), old.text_if_set("completionTime"))
        && end != before
    {
        errors.invalid(&STATUS.field("completionTime"), end, IMMUTABLE);
    }
    let resumes = has(old, "Suspended", "True") && has(new, "Suspended", "False");
    if old.part("startTime").is_some() && change.of("startTime") && !resumes && !change.spec.flag("suspend") {
        let start = new.part("startTime").cloned().unwrap_or_default();
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&STATUS.field("startTime"), start, detail);
    }
    let (met, was_met) = (is_true(new, "SuccessCriteriaMet"), is_true(old, "SuccessCriteriaMet"));
    if was_met && !met {
        wrong_conditions("cannot disable the SuccessCriteriaMet=True condition", errors);
    }
    if is_true(old, "Complete") && !was_met && met {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        wrong_conditions(detail, errors);
    }
}

/// Number of indexes in a list such as `1,3-5`. They must be ascending and below `completions`.
pub(super) fn indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut last: Option<i64> = None;
    let mut total = 0;
    for interval in text.split(',') {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let mut parts = interval.split('-');
    let (first, second, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if more.is_some() {
        return Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            api::field::quote(interval)
        ));
    }
    let index = |text: &str| -> Result<i64, String> {
        let quoted = api::field::quote(text);
        let index: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if index >= completions { Err(format!("too large index: {quoted}")) } else { Ok(index) }
    };
    let first = index(first)?;
    let Some(second) = second else { return Ok((first, first)) };
    let second = index(second)?;
    if first >= second {
        return Err(format!("non-increasing order, previous: {first}, current: {second}"));
    }
    Ok((first, second))
}

/// First index that is in both lists. Skips invalid intervals, which are reported elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| parse_interval(interval, completions).ok()).collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let (mut completed, mut failed) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some((c_first, c_last)), Some((f_first, f_last))) = (completed.peek(), failed.peek()) {
        if c_first <= f_last && f_first <= c_last {
            return Some(*c_first.max(f_first));
        }
        if c_first <= f_first {
            completed.next();
        } else {
            failed.next();
        }
    }
    None
}

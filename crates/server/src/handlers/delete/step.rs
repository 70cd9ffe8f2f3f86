//! Decides the next step in the deletion of an object from its grace period, its finalizers and the options of the request.

use api::finalizers;
use api::meta;
use api::time::Timestamp;
use catalog::{ServedResource, Working};
use crd::names;
use kinds::strategy::{self, Propagation};
use requests::options::DeleteOptions;
use value::Value;

/// Longest grace period in seconds: a century. Clients must be able to parse the deletion timestamp.
const MAX_GRACE: i64 = 100 * 365 * 24 * 3600;

/// The next step in the deletion of an object.
pub(super) enum DeletionStep {
    /// Delete the object at once.
    Remove,
    /// Mark the object with a grace period of zero, so that watches see it, and then delete it.
    MarkAndRemove(Working),
    /// Mark the object; it is deleted when its grace period and finalizers are done.
    Mark(Working),
}

/// `None` if there is nothing to do, because the object is being deleted already.
pub(super) fn next_step(
    kind: &ServedResource,
    old: &Working,
    options: &DeleteOptions,
    now: i64,
) -> Option<DeletionStep> {
    if kind.is_built_in("", "Namespace") {
        return namespace_step(old, options, now);
    }
    if kind.is_built_in("apiextensions.k8s.io", "CustomResourceDefinition") && !meta::is_deleting(old) {
        return Some(crd_step(old, now));
    }
    let requested = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s.min(MAX_GRACE) });
    let deleting = meta::is_deleting(old);
    let current_grace = old.int_at(&["metadata", "deletionGracePeriodSeconds"]);
    let mut marked = old.clone();
    let mut graceful = false;
    let mut timed = false;
    let grace = strategy::check_graceful_delete(kind.strategy(), old, requested);
    if let Some(grace) = grace.map(|g| g.clamp(0, MAX_GRACE)) {
        if deleting {
            let current = current_grace.unwrap_or(0);
            if current != 0 {
                // A grace period can be shortened but not extended.
                match requested {
                    Some(wanted) if wanted < current => {
                        let begun = seconds(old).unwrap_or(now);
                        let mut at = begun.saturating_sub(current).saturating_add(wanted);
                        let mut period = wanted;
                        if at < now {
                            at = now;
                            period = i64::from(wanted != 0);
                        }
                        meta::set(&mut marked, "deletionTimestamp", stamp(at));
                        meta::set(&mut marked, "deletionGracePeriodSeconds", period);
                        graceful = period > 0;
                        timed = true;
                    }
                    _ => return None,
                }
            }
        } else {
            meta::set(&mut marked, "deletionTimestamp", stamp(now + grace));
            meta::set(&mut marked, "deletionGracePeriodSeconds", grace);
            bump_generation(&mut marked);
            graceful = grace > 0;
            timed = true;
        }
    }
    set_propagation_finalizers(kind, &mut marked, options);
    let pending_finalizers = meta::finalizers(&marked).next().is_some();
    if graceful {
        return Some(DeletionStep::Mark(marked));
    }
    if !pending_finalizers {
        return Some(if timed { DeletionStep::MarkAndRemove(marked) } else { DeletionStep::Remove });
    }
    if !meta::is_deleting(&marked) {
        bump_generation(&mut marked);
    }
    let later = seconds(&marked).is_none_or(|at| at > now);
    if later {
        meta::set(&mut marked, "deletionTimestamp", stamp(now));
    }
    meta::set(&mut marked, "deletionGracePeriodSeconds", 0);
    (marked != *old).then_some(DeletionStep::Mark(marked))
}

/// Sets the phase `Terminating`; the namespace controller then deletes the content and removes the finalizers.
fn namespace_step(old: &Working, options: &DeleteOptions, now: i64) -> Option<DeletionStep> {
    if !meta::is_deleting(old) {
        let mut marked = old.clone();
        meta::set(&mut marked, "deletionTimestamp", stamp(now));
        marked.set_at(&["status", "phase"], "Terminating");
        let policy = options.propagation_policy.as_deref();
        let has = |f: &str| meta::finalizers(old).any(|o| o == f);
        let orphan = match (options.orphan_dependents, policy) {
            (Some(orphan), _) => orphan,
            (None, Some(policy)) => policy == "Orphan",
            (None, None) => has(finalizers::ORPHAN),
        };
        let foreground = match (options.orphan_dependents, policy) {
            (Some(_), _) => false,
            (None, Some(policy)) => policy == "Foreground",
            (None, None) => has(finalizers::FOREGROUND),
        };
        replace_finalizers(&mut marked, orphan, foreground);
        return Some(DeletionStep::Mark(marked));
    }
    if !old.list_at(&["spec", "finalizers"]).is_empty() || meta::finalizers(old).next().is_some() {
        return None;
    }
    Some(DeletionStep::Remove)
}

/// Adds the cleanup finalizer: a CRD stays until its objects are deleted, see [`crate::crd_controller`].
fn crd_step(old: &Working, now: i64) -> DeletionStep {
    let mut marked = old.clone();
    meta::set(&mut marked, "deletionTimestamp", stamp(now));
    let mut finalizers: Vec<Value> = meta::finalizers(old).map(Value::from).collect();
    if !meta::finalizers(old).any(|finalizer| finalizer == names::CLEANUP) {
        finalizers.push(names::CLEANUP.into());
    }
    meta::set(&mut marked, "finalizers", Value::List(finalizers));
    let mut status = marked.get("status").cloned().unwrap_or_default();
    let pending = (
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    );
    names::set(&mut status, "Terminating", pending, &stamp(now));
    marked.set_at(&["status"], status);
    DeletionStep::Mark(marked)
}

/// The deletion timestamp in seconds since the Unix epoch.
fn seconds(object: &Value) -> Option<i64> {
    Timestamp::parse(meta::text(object, "deletionTimestamp")).ok().map(|t| t.seconds)
}

fn stamp(seconds: i64) -> String {
    Timestamp::from_seconds(seconds).time()
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = object.int_at(&["metadata", "generation"]).filter(|g| *g > 0) {
        meta::set(object, "generation", generation.saturating_add(1));
    }
}

/// Sets the garbage collector's finalizers from the options, or else the object's finalizers, or else the kind's default.
fn set_propagation_finalizers(kind: &ServedResource, object: &mut Value, options: &DeleteOptions) {
    let default = strategy::default_propagation(kind.strategy());
    let has = |f: &str| meta::finalizers(object).any(|o| o == f);
    let policy = options.propagation_policy.as_deref();
    let (orphan, foreground) = match (default, options.orphan_dependents, policy) {
        (Propagation::Unsupported, ..) => (false, false),
        (_, Some(orphan), _) => (orphan, false),
        (_, None, Some(policy)) => (policy == "Orphan", policy == "Foreground"),
        (default, None, None) => {
            let first =
                meta::finalizers(object).find(|f| matches!(*f, finalizers::ORPHAN | finalizers::FOREGROUND));
            match first {
                Some(finalizers::ORPHAN) => (true, false),
                Some(_) => (false, true),
                None => (default == Propagation::Orphan, false),
            }
        }
    };
    if has(finalizers::ORPHAN) != orphan || has(finalizers::FOREGROUND) != foreground {
        replace_finalizers(object, orphan, foreground);
    }
}

fn replace_finalizers(object: &mut Value, orphan: bool, foreground: bool) {
    let mut finalizers: Vec<Value> = meta::finalizers(object)
        .filter(|f| !matches!(*f, finalizers::ORPHAN | finalizers::FOREGROUND))
        .map(Value::from)
        .collect();
    if orphan {
        finalizers.push(finalizers::ORPHAN.into());
    }
    if foreground {
        finalizers.push(finalizers::FOREGROUND.into());
    }
    if finalizers.is_empty() {
        object.remove_at(&["metadata", "finalizers"]);
    } else {
        meta::set(object, "finalizers", Value::List(finalizers));
    }
}

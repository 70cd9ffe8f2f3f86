//! Rules of watches: order, uniqueness, completeness, content and bookmarks.

use super::reads::differs;
use super::{Context, Rule, RuleViolation};
use crate::history::{SeenObject, WatchBegin, WatchMessage, WatchStream};

pub(super) fn check(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    for stream in &context.history.streams {
        StreamCheck { context, stream, violations: &mut *violations, delivered: Vec::new() }.run();
    }
}

struct StreamCheck<'c, 'h> {
    context: &'c Context<'h>,
    stream: &'c WatchStream,
    violations: &'c mut Vec<RuleViolation>,
    /// The revisions of the events so far.
    delivered: Vec<u64>,
}

impl StreamCheck<'_, '_> {
    fn run(&mut self) {
        let stream = self.stream;
        let mut messages = stream.messages.as_slice();
        let mut last = match stream.from {
            WatchBegin::After { revision, .. } => revision,
            WatchBegin::InitialEvents => {
                let is_end = |message: &WatchMessage| {
                    matches!(message, WatchMessage::Bookmark { is_initial_end: true, .. })
                };
                // A stream that ended before is not a complete state.
                let Some(end) = messages.iter().position(is_end) else { return };
                let (initial, rest) = messages.split_at(end);
                messages = rest;
                let Some(revision) = self.check_initial(initial, messages.first()) else { return };
                revision
            }
        };
        for message in messages {
            last = match message {
                WatchMessage::Event { kind, key, seen, .. } => self.check_event(last, kind, key, seen),
                WatchMessage::Bookmark { revision, .. } => self.check_bookmark(last, *revision),
            };
        }
    }

    /// The initial events are the state at the bookmark that ends them, which is not older than what was seen before.
    fn check_initial(&mut self, initial: &[WatchMessage], end: Option<&WatchMessage>) -> Option<u64> {
        let Some(WatchMessage::Bookmark { revision, .. }) = end else { return None };
        let mut items = Vec::new();
        for message in initial {
            if let WatchMessage::Event { kind, key, seen, .. } = message {
                if kind != "ADDED" {
                    self.violated(Rule::WatchContent, &format!("an initial event is {kind}"), seen.revision);
                }
                items.push((key.clone(), seen.clone()));
            }
        }
        if let Some(message) = differs(self.context, &self.stream.prefix, *revision, &items) {
            self.violated(Rule::WatchReliable, &format!("the initial state {message}"), *revision);
        }
        let low = self.context.bounds.lowest(self.stream.start);
        if *revision < low {
            let message = format!("the initial state is at revision {revision}, but {low} was seen before");
            self.violated(Rule::ConsistentRead, &message, *revision);
        }
        Some(*revision)
    }

    fn check_event(&mut self, last: u64, kind: &str, key: &str, seen: &SeenObject) -> u64 {
        let revision = seen.revision;
        if revision <= last {
            let rule = if self.delivered.contains(&revision) { Rule::WatchUnique } else { Rule::WatchOrder };
            self.violated(
                rule,
                &format!("an event at revision {revision} follows revision {last}"),
                revision,
            );
            return last;
        }
        self.delivered.push(revision);
        match self.context.timeline.next_below(&self.stream.prefix, last) {
            Some(next) if next.revision < revision => {
                let resumes = matches!(self.stream.from, WatchBegin::After { is_resumed: true, .. });
                let rule = if resumes && self.delivered.len() == 1 {
                    Rule::WatchResumable
                } else {
                    Rule::WatchReliable
                };
                let message = format!(
                    "the event of {} at revision {} is missing between {last} and {revision}",
                    next.key, next.revision
                );
                self.violated(rule, &message, next.revision);
            }
            _ => {}
        }
        if let Err(message) = self.content(kind, key, seen) {
            self.violated(Rule::WatchContent, &message, revision);
        }
        revision
    }

    fn content(&self, kind: &str, key: &str, seen: &SeenObject) -> Result<(), String> {
        let timeline = &self.context.timeline;
        let revision = seen.revision;
        let Some(change) = timeline.change_at(key, revision) else {
            return Err(format!("an event of {key} at revision {revision} is no change in etcd"));
        };
        let before = timeline.state(key, revision - 1).object;
        let (expected, content) = match (before, &change.object) {
            (None, Some(now)) => ("ADDED", Some(now)),
            (Some(_), Some(now)) => ("MODIFIED", Some(now)),
            (before, None) => ("DELETED", before),
        };
        if kind != expected {
            return Err(format!("an event of {key} at revision {revision} is {kind}, not {expected}"));
        }
        if content != Some(&seen.object) {
            return Err(format!("an event of {key} at revision {revision} has other content than etcd"));
        }
        Ok(())
    }

    fn check_bookmark(&mut self, last: u64, revision: u64) -> u64 {
        if revision < last {
            self.violated(Rule::WatchBookmark, &format!("bookmark {revision} follows {last}"), revision);
            return last;
        }
        if let Some(next) = self.context.timeline.next_below(&self.stream.prefix, last)
            && next.revision <= revision
        {
            let message = format!(
                "bookmark {revision} precedes the event of {} at revision {}",
                next.key, next.revision
            );
            self.violated(Rule::WatchBookmark, &message, next.revision);
        }
        revision
    }

    fn violated(&mut self, rule: Rule, message: &str, revision: u64) {
        let WatchStream { client, server, start, end, prefix, from, .. } = self.stream;
        let message = format!(
            "client {client} at server {server}, {start}..{end} µs: watch of {prefix} from {from:?}: {message}"
        );
        self.violations.push(RuleViolation { rule, message, at: Some(*start), revision: Some(revision) });
    }
}

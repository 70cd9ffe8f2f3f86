//! Clients that watch, and resume where they were, also at other servers.

use std::time::Duration;

use conformance::Events;
use conformance::random::Dice;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{NAMESPACE, RecordingClient};
use crate::history::{Outcome, ReadAt, SeenObject, WatchBegin, WatchMessage, WatchStream};
use crate::keys;

const PAUSE: Duration = Duration::from_millis(50);
/// How much longer than its `timeoutSeconds` a watch may take before the client gives it up.
const LATE: Duration = Duration::from_secs(4);

/// The state of a client that watches.
struct WatchClient {
    client: RecordingClient,
    resource: &'static str,
    /// The last revision that an event or bookmark had.
    position: Option<u64>,
}

/// Watches until the session names the revision to stop at, and that revision is reached.
pub(super) async fn run(client: RecordingClient, mut dice: Dice, resource: &'static str) {
    let mut watch = WatchClient { client, resource, position: None };
    while !watch.is_done() {
        if dice.roll(4) == 0 {
            let servers = watch.client.session.urls.len();
            watch.client.switch(dice.index(servers));
        }
        let seconds = 2 + dice.roll(6);
        match watch.position {
            None if dice.roll(2) == 0 => {
                let listed = watch.client.list(resource, NAMESPACE, ReadAt::Latest, 0).await;
                if let Outcome::Listed { revision, .. } = listed {
                    let from = WatchBegin::After { revision, is_resumed: false };
                    watch.follow(from, seconds).await;
                }
            }
            None => watch.follow(WatchBegin::InitialEvents, seconds).await,
            Some(revision) => {
                watch.follow(WatchBegin::After { revision, is_resumed: true }, seconds).await;
                // From time to time begin anew.
                if dice.roll(10) == 0 {
                    watch.position = None;
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl WatchClient {
    fn is_done(&self) -> bool {
        let until = *self.client.session.watch_until.borrow();
        until.is_some_and(|until| self.position.is_some_and(|position| position >= until))
    }

    /// Watches once, and records what arrived.
    async fn follow(&mut self, from: WatchBegin, seconds: u64) {
        let clock = self.client.session.clock;
        let start = clock.now();
        let options = match from {
            WatchBegin::After { revision, .. } => format!("resourceVersion={revision}"),
            WatchBegin::InitialEvents => {
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=".to_owned()
            }
        };
        let options = format!("{options}&timeoutSeconds={seconds}");
        let mut messages = Vec::new();
        let ending = match self.client.watch(self.resource, NAMESPACE, &options).await {
            Ok(events) => {
                let until = Instant::now() + Duration::from_secs(seconds) + LATE;
                self.receive(events, until, from, &mut messages).await
            }
            Err(why) => why,
        };
        self.client.session.record_stream(WatchStream {
            client: self.client.index,
            server: self.client.server,
            start,
            end: clock.now(),
            prefix: keys::prefix(self.resource, NAMESPACE),
            from,
            messages,
            ending,
        });
    }

    /// Receives messages until the stream ends; returns why it did.
    async fn receive(
        &mut self,
        mut events: Events,
        until: Instant,
        from: WatchBegin,
        messages: &mut Vec<WatchMessage>,
    ) -> String {
        let mut is_complete = from != WatchBegin::InitialEvents;
        loop {
            let line = match timeout_at(until, events.next()).await {
                Err(_) => return "the stream did not end in time".to_owned(),
                Ok(Err(problem)) => return problem.to_string(),
                Ok(Ok(None)) => return "ended".to_owned(),
                Ok(Ok(Some(line))) => line,
            };
            let Some(message) = self.message(&line) else {
                if line.pointer("/object/code").and_then(Value::as_u64) == Some(410) {
                    self.position = None;
                }
                return line.to_string();
            };
            let revision = match &message {
                WatchMessage::Event { seen, .. } => seen.revision,
                WatchMessage::Bookmark { revision, is_initial_end } => {
                    is_complete |= *is_initial_end;
                    *revision
                }
            };
            messages.push(message);
            if is_complete {
                self.position = self.position.max(Some(revision));
            }
            if self.is_done() {
                return "reached the last revision".to_owned();
            }
        }
    }

    /// `None` for an error event.
    fn message(&self, line: &Value) -> Option<WatchMessage> {
        let kind = line.get("type")?.as_str()?;
        let object = line.get("object")?;
        let seen = SeenObject::parse(object)?;
        match kind {
            "BOOKMARK" => {
                let end = object.pointer("/metadata/annotations/k8s.io~1initial-events-end");
                Some(WatchMessage::Bookmark { revision: seen.revision, is_initial_end: end.is_some() })
            }
            "ADDED" | "MODIFIED" | "DELETED" => {
                let name = object.pointer("/metadata/name")?.as_str()?;
                Some(WatchMessage::Event {
                    at: self.client.session.clock.now(),
                    kind: kind.to_owned(),
                    key: keys::of(self.resource, NAMESPACE, name),
                    seen,
                })
            }
            _ => None,
        }
    }
}

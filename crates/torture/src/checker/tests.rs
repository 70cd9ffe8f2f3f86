//! For every rule a history that is accepted and one that is rejected.

mod limits;
mod planted;
mod reads;
mod watches;
mod writes;

use serde_json::{Value, json};

use super::{Rule, check};
use crate::history::{
    ClientOperation, ClientRequest, EtcdChange, Outcome, RunHistory, SeenObject, WRITE_ANNOTATION,
    WatchBegin, WatchMessage, WatchStream,
};

/// No rule is broken.
const NONE: [Rule; 0] = [];

const PREFIX: &str = "/registry/configmaps/torture/";

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// A ConfigMap as stored by a write; its UID is that of the write that created it.
fn config_map(write: u64, created_by: u64, value: &str) -> Value {
    json!({
        "metadata": {"uid": format!("u{created_by}"), "annotations": {WRITE_ANNOTATION: write.to_string()}},
        "data": {"value": value},
    })
}

fn seen(revision: u64, object: &Value) -> SeenObject {
    SeenObject { revision, object: object.clone() }
}

/// A history that is written step by step. Operations follow each other unless their times are given.
#[derive(Default)]
struct Story {
    history: RunHistory,
    now: u64,
}

impl Story {
    /// etcd stores an object.
    fn put(&mut self, revision: u64, name: &str, object: &Value) -> &mut Self {
        self.change(revision, &key(name), Some(object.clone()), 0)
    }

    fn remove(&mut self, revision: u64, name: &str) -> &mut Self {
        self.change(revision, &key(name), None, 0)
    }

    fn change(&mut self, revision: u64, key: &str, object: Option<Value>, lease: i64) -> &mut Self {
        self.now += 1;
        let change = EtcdChange { revision, key: key.to_owned(), object, lease, at: self.now };
        self.history.changes.push(change);
        self
    }

    /// A request that begins after everything before it and ends before everything after it.
    fn operation(&mut self, request: ClientRequest, outcome: Outcome) -> &mut Self {
        self.now += 2;
        let (start, end) = (self.now - 1, self.now);
        self.timed((start, end), request, outcome)
    }

    fn timed(&mut self, (start, end): (u64, u64), request: ClientRequest, outcome: Outcome) -> &mut Self {
        self.now = self.now.max(end);
        self.history.operations.push(ClientOperation { client: 1, server: 0, start, end, request, outcome });
        self
    }

    /// A create that is acknowledged and stored.
    fn created(&mut self, revision: u64, name: &str, write: u64) -> Value {
        let object = config_map(write, write, "first");
        let request = create(name, write);
        self.now += 1;
        let start = self.now;
        self.put(revision, name, &object);
        self.now += 1;
        let end = self.now;
        self.timed((start, end), request, Outcome::Stored(seen(revision, &object)));
        object
    }

    /// An update that is acknowledged and stored.
    fn updated(&mut self, revision: u64, name: &str, (write, base): (u64, u64)) -> Value {
        let object = config_map(write, 1, "next");
        self.now += 1;
        let start = self.now;
        self.put(revision, name, &object);
        self.now += 1;
        let end = self.now;
        self.timed((start, end), update(name, write, base), Outcome::Stored(seen(revision, &object)));
        object
    }

    fn watch(&mut self, from: WatchBegin, messages: Vec<WatchMessage>) -> &mut Self {
        self.now += 2;
        self.history.streams.push(WatchStream {
            client: 9,
            server: 0,
            start: self.now - 1,
            end: self.now,
            prefix: PREFIX.to_owned(),
            from,
            messages,
            ending: String::new(),
        });
        self
    }

    /// The broken rules, without repetitions.
    fn broken(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = check(&self.history).into_iter().map(|violation| violation.rule).collect();
        rules.sort();
        rules.dedup();
        rules
    }
}

fn create(name: &str, write: u64) -> ClientRequest {
    let object = json!({"data": {"value": "first"}});
    ClientRequest::Create { key: key(name), write, object }
}

fn update(name: &str, write: u64, base: u64) -> ClientRequest {
    let object = json!({"data": {"value": "next"}});
    ClientRequest::Update { key: key(name), write, base, object }
}

fn delete(name: &str, base: Option<u64>) -> ClientRequest {
    ClientRequest::Delete { key: key(name), base }
}

fn refused(code: u16, reason: &str) -> Outcome {
    Outcome::Refused { code, reason: reason.to_owned(), message: String::new() }
}

fn unknown() -> Outcome {
    Outcome::Unknown("timeout".to_owned())
}

//! Proof under faults: several servers on three etcd members, and a checker of everything that their clients saw.
//!
//! - [`Cluster`](cluster::Cluster) starts the processes, with a TCP proxy ([`link`]) on every link between them.
//! - [`faults`] are injected while the clients of [`workload`] write, read and watch.
//! - [`recorder`] watches etcd directly, past the proxies; [`RunHistory`](history::RunHistory) is what it and the clients recorded.
//! - [`checker::check`] compares both by revision. It needs no processes; its tests show for every rule a history that it accepts and one
//!   that it rejects.
//!
//! `cargo xtask torture etcd` runs many rounds, and `tests/etcd_faults.rs` a few.
//!
//! ```
//! use torture::checker::check;
//! use torture::history::{EtcdChange, RunHistory, ClientOperation, Outcome, ReadAt, ClientRequest};
//!
//! // A read that returned "not found" although the object existed all the time.
//! let object = serde_json::json!({"metadata": {"name": "t-a"}});
//! let key = "/registry/configmaps/torture/t-a".to_owned();
//! let change = EtcdChange { revision: 2, key: key.clone(), object: Some(object), lease: 0, at: 1 };
//! let listed = ClientOperation {
//!     client: 1, server: 0, start: 1, end: 2,
//!     request: ClientRequest::List { prefix: "/registry/pods/".to_owned(), at: ReadAt::Latest, limit: 0 },
//!     outcome: Outcome::Listed { revision: 2, items: Vec::new() },
//! };
//! let get = ClientOperation {
//!     client: 1, server: 1, start: 3, end: 4,
//!     request: ClientRequest::Get { key, at: ReadAt::Latest },
//!     outcome: Outcome::Object(None),
//! };
//! let history = RunHistory { changes: vec![change], operations: vec![listed, get], ..RunHistory::default() };
//! assert_eq!(check(&history).len(), 1);
//! ```

pub mod checker;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod etcd_process;
pub mod faults;
pub mod history;
pub mod keys;
pub mod link;
pub mod planted;
pub mod process;
pub mod recorder;
pub mod report;
pub mod run;
pub mod server_process;
pub mod timeline;
pub mod workload;

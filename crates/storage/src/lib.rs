//! The revisioned key space.
//!
//! A key has a body of bytes; every write gets the next revision of one global sequence. The crate knows keys, bytes
//! and revisions, and nothing of users, policies or HTTP.
//!
//! A [`Backend`] makes writes durable and decides compare-and-swap: [`Memory`] for tests and in-process servers,
//! [`Embedded`] for one machine, etcd when one machine is no longer enough. Everything else lives once, above it, in
//! [`Store`]: the working set that answers reads, the event history, and the watches.
//!
//! Revisions are numbered as etcd numbers them: an empty store is at revision 1 and the first write gets revision 2.

pub mod backend;
pub mod embedded;
mod error;
mod history;
mod key;
mod memory;
mod quota;
mod record;
mod store;
mod table;
mod watch;
mod working_set;

pub use backend::Backend;
pub use embedded::{Embedded, is_store};
pub use error::{CommitError, OpenError, ReadError, WatchError};
pub use key::ShardEnd;
pub use memory::Memory;
pub use quota::Space;
pub use record::{Change, Entry, Event, Expect, Kind, Record, Write, WritePriority};
pub use store::{Clock, Committed, List, ListAt, ListPage, Options, Store, WatchFrom};
pub use table::{Entries, EntriesIter};
pub use watch::Watch;

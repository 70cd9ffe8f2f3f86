//! The revisioned key-value store below the API server.
//!
//! A key has a body of bytes; every write gets the next revision of one global sequence. The crate deals with keys, bytes
//! and revisions only, not with users, policies or HTTP.
//!
//! A [`Backend`] makes writes durable and decides compare-and-swap: [`Memory`] for tests and in-process servers,
//! [`Embedded`] for one machine, etcd for several. Everything else exists once, above the backend, in [`Store`]: the
//! working set that answers reads, the event history, and the watches.
//!
//! Revisions are numbered like etcd's: an empty store is at revision 1 and the first write gets revision 2.

pub mod backend;
mod clock;
mod clusters;
mod consistency;
pub mod embedded;
mod error;
mod expiry;
mod history;
mod key;
mod memory;
mod migration_marker;
mod quota;
mod record;
pub mod shared_memory;
pub mod snapshot;
mod store;
mod table;
mod watch;
mod working_set;

pub use backend::Backend;
pub use clock::Clock;
pub use consistency::{ConsistencyCheck, Inconsistency};
pub use embedded::{Embedded, is_store};
pub use error::{CommitError, OpenError, ReadError, WatchError};
pub use key::ShardEnd;
pub use memory::Memory;
pub use migration_marker::MigrationMarker;
pub use quota::Space;
pub use record::{Change, ChangeKind, Expect, Record, StoreEvent, StoredEntry, Write, WritePriority};
pub use store::{Committed, ListAt, ListPage, ListRequest, Store, StoreOptions, WatchFrom};
pub use table::{StoredEntries, StoredEntriesIter};
pub use watch::Watch;

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
//!
//! ```
//! use storage::{Change, Expect, Memory, Record, Store, StoreOptions, WatchFrom, Write, WritePriority};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
//! let mut watch = store.watch("/pods/", WatchFrom::Now).unwrap();
//!
//! // The store inserts the revision at byte 20.
//! let record = Record { body: r#"{"resourceVersion":""}"#.into(), revision_at: 20, facts: "".into() };
//! let create = Write {
//!     key: "/pods/web".into(),
//!     expect: Expect::Absent,
//!     change: Change::Put(record),
//!     priority: WritePriority::Ordinary,
//!     ttl: None,
//! };
//! let committed = store.commit(create.clone()).await.unwrap();
//! assert_eq!(committed.revision, 2);
//! assert_eq!(store.get("/pods/web").unwrap().body, r#"{"resourceVersion":"2"}"#);
//! assert_eq!(watch.next().await.unwrap().revision, 2);
//! assert!(store.commit(create).await.is_err(), "the key is no longer absent");
//! # });
//! ```

pub mod backend;
mod clock;
mod clusters;
mod consistency;
pub mod embedded;
mod error;
mod expiry;
mod history;
mod key;
mod list_watch;
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
pub use list_watch::{ListWatch, ListWatchUpdate};
pub use memory::Memory;
pub use migration_marker::MigrationMarker;
pub use quota::Space;
pub use record::{
    Change, ChangeKind, EntryIdentity, Expect, Fence, Record, StoreEvent, StoredEntry, Write, WritePriority,
};
pub use store::{Committed, ListAt, ListPage, ListRequest, Store, StoreOptions, WatchFrom};
pub use table::{ScopeTotals, StoredEntries, StoredEntriesIter};
pub use watch::Watch;

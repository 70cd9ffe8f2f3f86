//! etcd as a backend of the store, in kube-apiserver's layout: its keys, its transactions, its compaction protocol. Only writes with
//! [fences](storage::Fence) have transactions that kube-apiserver does not send: they compare more keys than their own.
//!
//! - [`EtcdBackend`] implements [`storage::Backend`]. etcd decides every write; one watch on the whole prefix feeds the working set; a
//!   commit is answered when that watch has reached its revision.
//! - [`ValueCodec`] converts between records and the values that kube-apiserver stores.
//! - [`EtcdKeys`] reads and fills the prefix of a store that no server uses, for migrations.
//! - [`EtcdClient`] makes the calls, on [`grpc`].
//!
//! Consistent reads work as in kube-apiserver: the current revision is read from etcd with a quorum, then the watch is asked for its
//! progress until it has reached that revision.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use etcd::{EtcdBackend, EtcdConfig, ValueCodec};
//! use grpc::{ChannelConfig, GrpcEndpoint};
//! use storage::{Store, StoreOptions};
//!
//! # async fn example(codec: Arc<dyn ValueCodec>) -> Result<(), Box<dyn std::error::Error>> {
//! let backend = EtcdBackend::new(EtcdConfig {
//!     channel: ChannelConfig::new(vec![GrpcEndpoint::parse("http://127.0.0.1:2379", None)?]),
//!     prefix: "/registry".to_owned(),
//!     store_root: "/registry".to_owned(),
//!     codec,
//!     compaction_interval: Duration::from_mins(5),
//!     call_timeout: Duration::from_secs(10),
//!     lease_reuse: Duration::from_mins(1),
//!     observer: Arc::new(()),
//! });
//! let store = Store::open(backend, StoreOptions::default()).await?;
//! println!("etcd is at revision {}", store.fresh().await?);
//! # Ok(())
//! # }
//! ```

mod backend;
pub mod client;
mod compaction;
mod freshness;
mod key_space;
mod leases;
mod lineage;
mod load;
pub mod messages;
mod migration;
mod observer;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod start;
mod version;
mod watch;

pub use backend::{EtcdBackend, EtcdConfig, ValueCodec};
pub use client::EtcdClient;
pub use key_space::KeyFilter;
pub use migration::{EtcdKeys, EtcdReader, EtcdValue, MigrationError, PutOutcome};
pub use observer::EtcdObserver;

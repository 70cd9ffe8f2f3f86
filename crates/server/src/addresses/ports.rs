//! The node ports of all servers on a store: one object, changed by compare-and-swap.
//!
//! Kubernetes keeps the allocated ports in a RangeAllocation at [`keys::NODE_PORTS`], which is not part of the API. Bits have no owner, so
//! a port must never be released after the repair loop may have given it to another Service: see [`RELEASE_WITHIN`].

use std::sync::Arc;

use api::Status;
use catalog::encode;
use catalog::keys::{self, ServerKey};
use kinds::strategy::service::PortError;
use runtime::LogLimit;
use service_addresses::{NodePortRange, PortBitmap};
use storage::{CommitError, Expect, Store};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;
use value::go::base64;
use value::{Map, Value};

use super::limits::RELEASE_WITHIN;
use crate::consistent_reads;
use crate::metrics::AddressMetrics;
use crate::write;

/// The node ports that are allocated in the store.
pub(crate) struct NodePorts {
    store: Store,
    range: NodePortRange,
    metrics: Arc<AddressMetrics>,
    /// Held from reading the object until it is written, so that requests to this server do not conflict with each other.
    turn: Mutex<()>,
}

/// The allocated ports as this server knows them, and the exclusive right of this process to change them.
pub(crate) struct PortsInTurn<'a> {
    ports: &'a NodePorts,
    stored: StoredPorts,
    _turn: MutexGuard<'a, ()>,
}

pub(crate) struct StoredPorts {
    /// 0 if the object does not exist.
    pub(crate) revision: u64,
    /// `None` if the object does not exist. The range is that of the server that wrote it.
    pub(crate) bitmap: Option<PortBitmap>,
}

/// Reason why changed ports were not written.
#[derive(Debug)]
pub(crate) enum PortsNotWritten {
    /// Another server changed them first. They have been read again.
    Conflict,
    Failed(CommitError),
}

impl NodePorts {
    pub(crate) fn new(store: Store, range: NodePortRange, metrics: Arc<AddressMetrics>) -> Self {
        NodePorts { store, range, metrics, turn: Mutex::new(()) }
    }

    pub(crate) fn range(&self) -> NodePortRange {
        self.range
    }

    /// Like [`NodePorts::in_turn`], after all writes that any server has acknowledged. The turn is not held during the wait for them.
    pub(crate) async fn in_turn_with_newest(&self) -> Result<PortsInTurn<'_>, Status> {
        consistent_reads::require_current(&self.store).await?;
        self.in_turn().await.map_err(Status::internal)
    }

    /// Waits for the right to change the ports, and reads them.
    pub(crate) async fn in_turn(&self) -> Result<PortsInTurn<'_>, String> {
        let turn = self.turn.lock().await;
        Ok(PortsInTurn { ports: self, stored: self.read()?, _turn: turn })
    }

    /// The allocated ports as this server knows them, without waiting; `None` if there are none or they cannot be read.
    pub(crate) fn ports_in_memory(&self) -> Option<PortBitmap> {
        self.read().ok()?.bitmap
    }

    fn read(&self) -> Result<StoredPorts, String> {
        let Some(entry) = self.store.get(keys::NODE_PORTS) else {
            return Ok(StoredPorts { revision: 0, bitmap: None });
        };
        let object = encode::tree(&entry).map_err(|status| status.message().to_owned())?;
        let range = NodePortRange::parse(object.str_at(&["range"]).unwrap_or_default())?;
        let data = object.str_at(&["data"]).unwrap_or_default();
        let data = base64::STD.decode(data).map_err(|error| error.to_string())?;
        Ok(StoredPorts { revision: entry.revision, bitmap: Some(PortBitmap::from_data(range, &data)) })
    }

    /// Frees ports, unless that takes longer than [`RELEASE_WITHIN`].
    pub(crate) async fn release(&self, ports: &[i64]) {
        heavy_lane::without_turn(self.release_in_turn(ports)).await;
    }

    async fn release_in_turn(&self, ports: &[i64]) {
        let began = Instant::now();
        let mut turn = match self.in_turn().await {
            Ok(turn) => turn,
            Err(error) => return warn_leaked(ports, &error),
        };
        loop {
            if began.elapsed() > RELEASE_WITHIN {
                return warn_leaked(ports, "it took too long");
            }
            let Ok(mut bitmap) = turn.ports_of_range() else {
                return warn_leaked(ports, "the range has changed");
            };
            let changed = ports.iter().filter(|port| bitmap.set(**port, false)).count();
            if changed == 0 {
                return;
            }
            match turn.write(&bitmap).await {
                Ok(()) => return,
                Err(PortsNotWritten::Conflict) => {}
                Err(PortsNotWritten::Failed(error)) => return warn_leaked(ports, &error.to_string()),
            }
        }
    }
}

fn warn_leaked(ports: &[i64], error: &str) {
    static LOG: LogLimit = LogLimit::with_burst(20);
    let Some(unlogged) = LOG.due() else { return };
    tracing::warn!(?ports, error, unlogged, "cannot release node ports; the repair loop frees them later");
}

impl PortsInTurn<'_> {
    pub(crate) fn stored(&self) -> &StoredPorts {
        &self.stored
    }

    /// The allocated ports, if they belong to this server's range. The errors are kube-apiserver's.
    pub(crate) fn ports_of_range(&self) -> Result<PortBitmap, PortError> {
        match &self.stored.bitmap {
            Some(bitmap) if bitmap.range() == self.ports.range => Ok(bitmap.clone()),
            Some(_) => {
                Err(PortError::Other("the provided range does not match the current range".to_owned()))
            }
            None => Err(PortError::Other(
                "cannot allocate resources of type servicenodeportallocations at this time".to_owned(),
            )),
        }
    }

    /// Replaces the ports that were read.
    pub(crate) async fn write(&mut self, bitmap: &PortBitmap) -> Result<(), PortsNotWritten> {
        #[cfg(feature = "planted-bugs")]
        if self.stored.revision > 0 && etcd::planted::is_planted(etcd::planted::LOST_PORTS) {
            return Ok(());
        }
        let expect = match self.stored.revision {
            0 => Expect::Absent,
            revision => Expect::Revision(revision),
        };
        let object = Value::map([
            ("metadata", Value::Map(Map::new())),
            ("range", Value::from(bitmap.range().to_string())),
            ("data", Value::from(base64::STD.encode(bitmap.to_data()))),
        ]);
        let record = encode::record(&encode::head("v1", "RangeAllocation"), &object, Vec::new());
        let key = ServerKey::node_ports();
        match write::put_server_data(&self.ports.store, &key, expect, record, None).await {
            Ok(entry) => {
                self.stored = StoredPorts { revision: entry.revision, bitmap: Some(bitmap.clone()) };
                self.ports.metrics.set_ports(bitmap.count(), bitmap.range().size());
                Ok(())
            }
            Err(CommitError::Conflict { .. }) => {
                let read =
                    self.ports.read().map_err(CommitError::Invalid).map_err(PortsNotWritten::Failed)?;
                self.stored = read;
                Err(PortsNotWritten::Conflict)
            }
            Err(error) => Err(PortsNotWritten::Failed(error)),
        }
    }
}

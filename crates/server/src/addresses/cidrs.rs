//! The ranges that cluster IPs are allocated from: those of the stored ServiceCIDRs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::meta;
use catalog::keys;
use catalog::unreadable::Unreadable;
use service_addresses::KnownRanges;
use storage::Store;
use tokio::sync::watch;

use crate::informer::{InformerProgress, UnreadableConcern, start_informer};

/// The ranges of the stored ServiceCIDRs, kept up to date by an informer.
#[derive(Clone)]
pub(crate) struct ServiceCidrs {
    known: watch::Receiver<Arc<KnownRanges>>,
    progress: InformerProgress,
}

impl ServiceCidrs {
    pub(crate) fn start(store: &Store, unreadable: &Arc<Unreadable>) -> Self {
        let (update, known) = watch::channel(Arc::new(KnownRanges::default()));
        let objects = Mutex::new(BTreeMap::new());
        let progress = start_informer(
            store,
            keys::SERVICE_CIDRS,
            UnreadableConcern::without_concern(unreadable),
            move |old, new| {
                let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(old) = old {
                    objects.remove(meta::name(old));
                }
                if let Some(new) = new {
                    objects.insert(meta::name(new).to_owned(), new.clone());
                }
                let _ = update.send(Arc::new(KnownRanges::of(objects.values())));
            },
        );
        ServiceCidrs { known, progress }
    }

    pub(crate) fn now(&self) -> Arc<KnownRanges> {
        Arc::clone(&self.known.borrow())
    }

    /// Waits until the ServiceCIDR `kubernetes` exists.
    pub(crate) async fn has_default(&self) {
        let _ = self.known.clone().wait_for(|known| known.has_default).await;
    }

    /// Waits until the writes of ServiceCIDRs up to `revision` are in force.
    pub(crate) async fn reached(&self, revision: u64) {
        self.progress.reached(revision).await;
    }
}

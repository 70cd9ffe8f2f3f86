//! The bytes of answers that wait for their clients, and whom they are charged to.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;

use crate::byte_budget::{Account, ByteBudget, ByteCharge};

/// Answers of fewer bytes are not charged: a stream of HTTP/2 or a connection takes as much by itself.
const CHARGED_FROM: usize = 4 * 1024;

/// How long a stream waits before it asks again for room.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Whom the answers to a request are charged to.
#[derive(Clone, Debug)]
pub struct Payer {
    budget: Arc<ByteBudget>,
    account: Account,
}

impl Payer {
    /// An account of a budget.
    pub fn new(budget: &Arc<ByteBudget>, account: Account) -> Self {
        Payer { budget: Arc::clone(budget), account }
    }

    /// The name of the account.
    pub fn owner(&self) -> &value::Str {
        self.account.owner()
    }

    /// Refuses a client that leaves too much unread.
    pub fn check_room(&self) -> Result<(), Status> {
        self.budget.check_room(&self.account)
    }

    /// The same bytes, charged until the last part of them is dropped.
    pub fn charge(&self, bytes: Bytes) -> Result<Bytes, (Bytes, Status)> {
        if bytes.len() < CHARGED_FROM {
            return Ok(bytes);
        }
        match self.budget.charge(self.account.clone(), bytes.len() as u64) {
            Ok(charge) => Ok(Bytes::from_owner(Charged { bytes, _charge: charge })),
            Err(status) => Err((bytes, status)),
        }
    }

    /// As [`Payer::charge`], when there is room.
    pub async fn charge_when_possible(&self, mut bytes: Bytes) -> Bytes {
        loop {
            match self.charge(bytes) {
                Ok(charged) => return charged,
                Err((uncharged, _)) => bytes = uncharged,
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// As [`Payer::charge`], for bytes that are sent in any case.
    pub fn charge_anyway(&self, bytes: Bytes) -> Bytes {
        if bytes.len() < CHARGED_FROM {
            return bytes;
        }
        let charge = self.budget.charge_anyway(self.account.clone(), bytes.len() as u64);
        Bytes::from_owner(Charged { bytes, _charge: charge })
    }
}

struct Charged {
    bytes: Bytes,
    _charge: ByteCharge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

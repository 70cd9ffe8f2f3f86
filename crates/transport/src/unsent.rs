//! Charges response bytes that clients have not read yet to an account.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;

use crate::byte_budget::{Account, ByteBudget, ByteCharge};

/// Smaller responses are not charged: an HTTP/2 stream or a connection takes as much memory anyway.
const CHARGED_FROM: usize = 4 * 1024;

/// Interval at which a stream retries a refused charge.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The account that the responses to a request are charged to.
#[derive(Clone, Debug)]
pub struct Payer {
    budget: Arc<ByteBudget>,
    account: Account,
}

impl Payer {
    pub fn new(budget: &Arc<ByteBudget>, account: Account) -> Self {
        Payer { budget: Arc::clone(budget), account }
    }

    /// Key of the account in the budget.
    pub fn owner(&self) -> &value::Str {
        self.account.owner()
    }

    /// Refuses with 429 a client that has too much unread data.
    pub fn check_room(&self) -> Result<(), Status> {
        self.budget.check_room(&self.account)
    }

    /// Returns the bytes, charged until their last part is dropped, or unchanged with a 429 if they do not
    /// fit.
    pub fn charge(&self, bytes: Bytes) -> Result<Bytes, (Bytes, Status)> {
        if bytes.len() < CHARGED_FROM {
            return Ok(bytes);
        }
        match self.budget.charge(self.account.clone(), bytes.len() as u64) {
            Ok(charge) => Ok(Bytes::from_owner(Charged { bytes, _charge: charge })),
            Err(status) => Err((bytes, status)),
        }
    }

    /// Like [`Payer::charge`], but waits until the bytes fit.
    pub async fn charge_when_possible(&self, mut bytes: Bytes) -> Bytes {
        loop {
            match self.charge(bytes) {
                Ok(charged) => return charged,
                Err((uncharged, _)) => bytes = uncharged,
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Like [`Payer::charge`], but charges even beyond the limit.
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

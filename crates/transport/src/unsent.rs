//! Charges response bytes that clients have not read yet to an account.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use bytes::Bytes;

use crate::byte_budget::{BudgetAccount, ByteBudget, ByteCharge};

/// Smaller responses are not charged: an HTTP/2 stream or a connection takes as much memory anyway.
const CHARGED_FROM: usize = 4 * 1024;

/// Size in bytes of the pieces in which responses are built and sent. Once bytes are in the connection's buffers, the server cannot see
/// whether the client has read them.
pub const PIECE: usize = 64 * 1024;

/// Interval at which a stream retries a refused charge.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// The account that the responses to a request are charged to.
#[derive(Clone, Debug)]
pub struct Payer {
    budget: Arc<ByteBudget>,
    account: BudgetAccount,
}

impl Payer {
    pub fn new(budget: &Arc<ByteBudget>, account: BudgetAccount) -> Self {
        Payer { budget: Arc::clone(budget), account }
    }

    pub fn account(&self) -> &BudgetAccount {
        &self.account
    }

    /// Refuses with 429 a client that has too much unread data.
    pub fn check_room(&self) -> Result<(), Status> {
        self.budget.check_room(&self.account)
    }

    /// Charges memory until the result is dropped, or refuses with 429.
    pub fn charge_memory(&self, bytes: u64) -> Result<ByteCharge, Status> {
        self.budget.charge(self.account.clone(), bytes)
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

/// A response that is built in memory and is charged while it is built. After a charge was refused, it holds nothing and ignores what is
/// written.
#[derive(Debug, Default)]
pub struct UnsentPieces {
    payer: Option<Payer>,
    sealed: VecDeque<Bytes>,
    /// The piece that is being written, of less than [`PIECE`] bytes, and its charge if it has at least [`CHARGED_FROM`].
    current: Vec<u8>,
    charge: Option<ByteCharge>,
    refused: Option<Status>,
}

impl UnsentPieces {
    /// Without a payer, nothing is charged.
    pub fn new(payer: Option<Payer>) -> Self {
        UnsentPieces { payer, ..UnsentPieces::default() }
    }

    /// Charges memory that is needed to compute the next bytes, until the result is dropped.
    pub fn charge_work(&mut self, bytes: u64) -> Result<Option<ByteCharge>, Status> {
        self.check()?;
        let Some(payer) = &self.payer else { return Ok(None) };
        payer.charge_memory(bytes).map(Some).map_err(|status| self.refuse(status))
    }

    /// Adds bytes to the response.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), Status> {
        self.check()?;
        while !bytes.is_empty() {
            let room = PIECE.saturating_sub(self.current.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.charge_current(now.len())?;
            self.current.extend_from_slice(now);
            if self.current.len() >= PIECE {
                self.seal();
            }
            bytes = later;
        }
        Ok(())
    }

    /// Fails with the 429 of the first charge that was refused.
    pub fn check(&self) -> Result<(), Status> {
        self.refused.clone().map_or(Ok(()), Err)
    }

    /// True if a charge was refused, so that the response is incomplete.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The pieces of the whole response, each charged until it is dropped.
    pub fn finish(mut self) -> Result<VecDeque<Bytes>, Status> {
        self.check()?;
        self.seal();
        Ok(self.sealed)
    }

    /// Charges a whole piece before it is filled.
    fn charge_current(&mut self, more: usize) -> Result<(), Status> {
        let length = self.current.len().saturating_add(more);
        if self.charge.is_some() || length < CHARGED_FROM {
            return Ok(());
        }
        self.charge = self.charge_work(PIECE as u64)?;
        self.current.reserve_exact(PIECE.saturating_sub(self.current.len()));
        Ok(())
    }

    fn seal(&mut self) {
        let mut piece = std::mem::take(&mut self.current);
        if piece.is_empty() {
            return;
        }
        piece.shrink_to_fit();
        let bytes = Bytes::from(piece);
        self.sealed.push_back(match self.charge.take() {
            Some(mut charge) => {
                charge.shrink_to(bytes.len() as u64);
                Bytes::from_owner(Charged { bytes, _charge: charge })
            }
            None => bytes,
        });
    }

    fn refuse(&mut self, status: Status) -> Status {
        *self = UnsentPieces { payer: self.payer.take(), ..UnsentPieces::default() };
        self.refused = Some(status.clone());
        status
    }
}

/// Fails only after a refused charge; [`UnsentPieces::check`] returns the error.
impl io::Write for UnsentPieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fails only after a refused charge; [`UnsentPieces::check`] returns the error.
impl fmt::Write for UnsentPieces {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
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

#[cfg(test)]
mod tests;

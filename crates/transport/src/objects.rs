//! Charges the decoded objects of a request to the account of its client.
//!
//! A decoded object takes more memory than the body it was read from, up to 16 times as much, and a request that waits for a webhook or another
//! server keeps it. So a request is charged for the memory of its objects, in a [`ByteBudget`](crate::byte_budget::ByteBudget) of their own,
//! as soon as it has decoded them; decoding itself is limited by the threads that large requests run on.

use api::Status;

use crate::byte_budget::ByteCharge;
use crate::unsent::Payer;

/// Objects of together at most this many bytes of memory are not charged: the number of requests is limited, too.
const CHARGED_FROM: usize = 256 * 1024;

/// How many times a request has an object at the same time: as decoded, as worked on, and in the version or the bytes that another server gets.
pub const COPIES: usize = 3;

tokio::task_local! {
    static PAYER: Payer;
}

/// Runs a request whose objects are charged to `payer`.
pub async fn charged_to<T>(payer: Payer, request: impl Future<Output = T>) -> T {
    PAYER.scope(payer, request).await
}

/// The charge for the objects of a request, or of a part of one; released on drop.
#[derive(Debug, Default)]
pub struct ObjectCharge(Option<ByteCharge>);

impl ObjectCharge {
    /// Raises the charge to what objects of `bytes` bytes of memory take with their copies. Refuses with 429 if that does not fit. Has no effect
    /// outside of [`charged_to`], as for requests from inside this process.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes < CHARGED_FROM {
            return Ok(());
        }
        let bytes = bytes.saturating_mul(COPIES) as u64;
        match &mut self.0 {
            Some(charge) => charge.grow_to(bytes)?,
            None => {
                self.0 = PAYER.try_with(|payer| payer.charge_memory(bytes)).ok().transpose()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use authn::User;
    use prometheus::TextEncoder;
    use runtime::MetricRegistry;

    use super::*;
    use crate::byte_budget::{BudgetAccount, ByteBudget};

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// As much as a user may use alone.
    const SHARE: usize = 384 << 20;

    #[tokio::test]
    async fn objects_are_charged_with_their_copies_to_the_account_of_the_request() {
        let registry = MetricRegistry::new();
        let budget = ByteBudget::for_objects(&registry).unwrap();
        let payer = |name: &str| Payer::new(&budget, BudgetAccount::of(&User::named(name), LOCALHOST));
        let held = || {
            let page = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            page.lines()
                .find(|line| line.starts_with("portcullis_decoded_object_bytes "))
                .map(ToOwned::to_owned)
        };
        charged_to(payer("alice"), async {
            let mut small = ObjectCharge::default();
            small.grow_to(CHARGED_FROM - 1).unwrap();
            assert_eq!(held().unwrap(), "portcullis_decoded_object_bytes 0");
            let mut large = ObjectCharge::default();
            large.grow_to(1 << 20).unwrap();
            assert_eq!(held().unwrap(), format!("portcullis_decoded_object_bytes {}", COPIES << 20));
            assert_eq!(large.grow_to(SHARE / COPIES + (1 << 20)).unwrap_err().code(), 429);
            large.grow_to(SHARE / COPIES - (1 << 20)).unwrap();
            assert_eq!(ObjectCharge::default().grow_to(4 << 20).unwrap_err().code(), 429);
            // Another user has room, and small objects always fit.
            small.grow_to(CHARGED_FROM - 1).unwrap();
            charged_to(payer("bob"), async { ObjectCharge::default().grow_to(4 << 20) }).await.unwrap();
            drop(large);
            small.grow_to(4 << 20).unwrap();
        })
        .await;
        assert_eq!(held().unwrap(), "portcullis_decoded_object_bytes 0");
        ObjectCharge::default().grow_to(usize::MAX).unwrap();
    }
}

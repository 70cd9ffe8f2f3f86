//! The time limits of allocations. What is allocated and not used may belong to a Service that is being written, here or by another
//! server; it must not be taken back before that write has ended.

use std::time::Duration;

use catalog::etcd_config::ETCD_CALL_TIMEOUT;

/// A Service is not written if its addresses and ports were allocated longer ago.
pub(super) const USE_WITHIN: Duration = Duration::from_secs(50);

/// For the time between the check of [`USE_WITHIN`] and the write, and for clocks of different speed.
const MARGIN: Duration = Duration::from_secs(10);

/// How long an IPAddress must be unused, as far as this server has seen, before it is deleted.
pub(super) const GRACE: Duration = Duration::from_secs(100);

/// Time between two runs of the repair loops over all Services and addresses. An unused node port is freed in the third run that sees it.
pub(super) const INTERVAL: Duration = Duration::from_mins(3);

/// Ports that could not be released within this time stay allocated until the repair loop frees them.
pub(super) const RELEASE_WITHIN: Duration = Duration::from_mins(1);

/// The longest time from an allocation to the end of the write that uses it.
const WRITTEN_WITHIN: u128 = USE_WITHIN.as_millis() + ETCD_CALL_TIMEOUT.as_millis() + MARGIN.as_millis();

/// The longest time from the decision to release a port to the end of the write that does.
const RELEASED_WITHIN: u128 = RELEASE_WITHIN.as_millis() + ETCD_CALL_TIMEOUT.as_millis() + MARGIN.as_millis();

const _: () = assert!(WRITTEN_WITHIN <= GRACE.as_millis(), "an address is taken back while it may be used");
const _: () =
    assert!(WRITTEN_WITHIN <= 2 * INTERVAL.as_millis(), "a node port is freed while it may be used");
const _: () = assert!(
    RELEASED_WITHIN <= 2 * INTERVAL.as_millis(),
    "a node port is released after the repair loop may have given it to another Service"
);

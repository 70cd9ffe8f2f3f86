//! Real kubectl against the built binary, as a stranger would use it.
//!
//! `PORTCULLIS_KUBECTL` names the program (PATH without it), `PORTCULLIS_KUBECTL_MINOR` its minor version: what an older one
//! cannot do is left out with a line that says so. With `PORTCULLIS_KUBECONFIG` the suite runs against that server instead.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod admitting;
mod applying;
mod asking;
mod changing;
mod creating;
mod custom;
mod deleting;
mod devices;
mod reading;
mod session;

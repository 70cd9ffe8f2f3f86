//! Real kubectl against the built binary.
//!
//! `PORTCULLIS_KUBECTL` names the program (by default the one in PATH), `PORTCULLIS_KUBECTL_MINOR` its minor version: tests that
//! need a newer one are left out with a line that says so. With `PORTCULLIS_KUBECONFIG` the suite runs against that server
//! instead.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
mod admission;
mod applying;
mod changing;
mod creating;
mod custom;
mod deleting;
mod devices;
mod reading;
mod session;

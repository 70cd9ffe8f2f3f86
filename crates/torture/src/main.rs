//! Runs rounds of faults; `cargo xtask torture etcd` builds the servers and starts this.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    torture::command::run_command(std::env::args().skip(1)).await
}

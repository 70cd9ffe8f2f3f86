//! The load run against the built binary.
fn main() {}

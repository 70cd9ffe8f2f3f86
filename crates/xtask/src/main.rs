//! Set-up, test, bench, code generation, tidy checks.
fn main() {}

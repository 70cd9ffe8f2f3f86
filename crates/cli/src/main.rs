//! The one binary, portcullis.
fn main() {}

//! Everything that is run around the code: set-up, checks, demo.
#![forbid(unsafe_code)]
fn main() {}

//! The program `sandbox`.
#![forbid(unsafe_code)]
fn main() {}

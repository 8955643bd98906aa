//! Placeholder until its first piece lands.
#![forbid(unsafe_code)]

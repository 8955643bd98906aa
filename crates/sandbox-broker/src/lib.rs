//! The egress gateway: where requests from inside meet a network policy.
//!
//! **Owns** nothing yet: until it exists every session is under `deny-all`, its network
//! namespace holds loopback alone, and a backend refuses any other policy with
//! `SANDBOX_UNAVAILABLE`.
//!
//! **Never knows** a process, a namespace or a template. It will stand on the policies of
//! [`sandbox_core`] and on nothing else of ours.
#![forbid(unsafe_code)]

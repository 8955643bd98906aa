//! The coding adapter: what a model's tools are made of.
//!
//! **Owns** nothing yet. It will tie a prepared command to a policy revision, over
//! [`sandbox_core::Session::posture`] and [`sandbox_core::Session::spawn`] alone, so that a
//! wrapped session stays wrapped.
//!
//! **Never knows** that bubblewrap exists.
#![forbid(unsafe_code)]

//! What core promises to those who use it from outside.

mod schemas;

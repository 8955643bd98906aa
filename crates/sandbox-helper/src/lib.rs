//! The processes that stand between host and command: keeper and init.

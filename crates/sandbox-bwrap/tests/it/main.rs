//! The backend on real bubblewrap, as root and as an ordinary user.

mod helper;
mod outcomes;
mod session;

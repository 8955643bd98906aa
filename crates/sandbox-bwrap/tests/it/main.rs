//! The backend on real bubblewrap, as root and as an ordinary user.

mod confinement;
mod helper;
mod outcomes;
mod processes;
mod session;
mod streams;

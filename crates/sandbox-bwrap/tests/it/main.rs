//! The backend on real bubblewrap, as root and as an ordinary user.

mod confinement;
mod faults;
mod helper;
mod host;
mod outcomes;
mod processes;
mod session;
mod streams;
mod wire;

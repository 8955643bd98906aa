//! Pid 1 of a command: reads its request, executes it, reaps, and says how it ended.

mod execute;
mod limits;
mod reap;
mod request;

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::process::DumpableBehavior;

use crate::Step;
use crate::sys;
use crate::wire::{self, Body, Failure, Message, Record};

/// The number at which bubblewrap leaves init's socket.
pub(crate) const SOCKET: i32 = 3;

/// Serves one command.
///
/// When this process ends, the kernel ends everything in its pid namespace: so the record is
/// sent first, and nothing outlives it.
pub(crate) fn run() -> ExitCode {
    // Its memory, descriptors and environment are nothing that the command may look at.
    if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err()
        || sys::close_from(SOCKET + 1).is_err()
    {
        return ExitCode::FAILURE;
    }
    let Ok(socket) = sys::inherited(SOCKET) else {
        return ExitCode::FAILURE;
    };
    match serve(&socket) {
        Served::Record(record) => {
            let message = Message::new(0, Body::Record(record)).encode();
            match wire::send(&socket, &message, &[]) {
                Ok(()) => ExitCode::SUCCESS,
                // The host is gone, and with it whoever would want the record.
                Err(_) => ExitCode::FAILURE,
            }
        }
        Served::HostGone => ExitCode::FAILURE,
    }
}

/// What came of a request.
enum Served {
    Record(Record),
    HostGone,
}

fn serve(socket: &OwnedFd) -> Served {
    let order = match request::receive(socket) {
        Ok(Some(order)) => order,
        Ok(None) => return Served::HostGone,
        Err(failure) => return Served::Record(Record::Failed(failure)),
    };
    if let Err(errno) = request::enter(&order.request.cwd) {
        return Served::Record(Record::BadCwd(errno.raw_os_error()));
    }
    match reap::run(socket, order) {
        Ok(served) => served,
        Err(failure) => Served::Record(Record::Failed(failure)),
    }
}

pub(crate) use reap::ended;

/// A step's failure with the error's number.
pub(crate) fn failure(step: Step) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure {
        step,
        errno: error.raw_os_error().unwrap_or(0),
    }
}

//! Starts the command, forwards signals, reaps all, until it has ended or the host is gone.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::request::Order;
use super::{Served, execute, failure};
use crate::Step;
use crate::sys::{self, Fork};
use crate::wire::{self, Body, Failure, Message, Record, Status};

/// Runs the command to its end.
pub(super) fn run(socket: &OwnedFd, order: Order) -> Result<Served, Failure> {
    // Blocked before the fork: a child that ends at once is not missed.
    let children = sys::watch_children().map_err(failure(Step::SignalDescriptor))?;
    let (errors, child_errors) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| failure(Step::Pipe)(error.into()))?;
    if host_is_gone(socket) {
        return Ok(Served::HostGone);
    }
    let child = match sys::fork().map_err(failure(Step::Fork))? {
        Fork::Child => execute::become_command(&order, &child_errors),
        Fork::Parent(pid) => pid,
    };
    drop(child_errors);
    // The command's pipes must end with the command, not with init.
    drop(order);
    wait(socket, &children, child, errors)
}

/// Whether the lifeline ended while the request was on its way: then nothing is started.
fn host_is_gone(socket: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // What can't be established counts as gone.
    rustix::event::poll(&mut poll, Some(&now)) != Ok(0)
}

/// What the child says before it executes; nothing once it has, since its end closes then.
fn not_executed(errors: &OwnedFd) -> Option<Record> {
    let mut bytes = [0; 64];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(errors, &mut bytes)).ok()?;
    if length == 0 {
        return None;
    }
    match Message::decode(&bytes[..length]).map(|message| message.body) {
        Ok(Body::Record(record)) => Some(record),
        _ => Some(Record::Failed(Failure {
            step: Step::Wait,
            errno: 0,
        })),
    }
}

fn wait(
    socket: &OwnedFd,
    children: &OwnedFd,
    child: Pid,
    errors: OwnedFd,
) -> Result<Served, Failure> {
    let mut errors = Some(errors);
    loop {
        let mut poll = vec![
            PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP),
            PollFd::new(children, PollFlags::IN),
        ];
        // Polled, not read at once: an exec may hang (on a file lease, say), and the lifeline
        // must end that too.
        poll.extend(
            errors
                .iter()
                .map(|errors| PollFd::new(errors, PollFlags::IN)),
        );
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, None))
            .map_err(|error| failure(Step::Wait)(error.into()))?;
        let (host, ended) = (poll[0].revents(), !poll[1].revents().is_empty());
        let said = poll
            .get(2)
            .is_some_and(|errors| !errors.revents().is_empty());
        let status = if ended { reap(children, child) } else { None };
        // A child that is gone has said what it had to: before its status, which is then only
        // that of a process that never became the command.
        if (said || status.is_some())
            && let Some(record) = errors.take().and_then(|errors| not_executed(&errors))
        {
            return Ok(Served::Record(record));
        }
        // The end first: a command that is over has its record even when the host just left.
        if let Some(status) = status {
            return Ok(Served::Record(Record::Ended(status)));
        }
        if host.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return Ok(Served::HostGone);
        }
        if host.contains(PollFlags::IN) {
            forward(socket, child);
        }
    }
}

/// Reaps everything that has ended; the status of the command itself when it is among it.
fn reap(children: &OwnedFd, child: Pid) -> Option<Status> {
    let mut drained = [0; 1024];
    while rustix::io::read(children.as_fd(), &mut drained).is_ok_and(|length| length > 0) {}
    let mut found = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == child {
            found = Some(ended(status));
        }
    }
    found
}

/// How a process ended. Neither of the two is there only for one that did not.
pub(crate) fn ended(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Exited(code),
        (None, signal) => Status::Signalled(signal.unwrap_or(0)),
    }
}

/// Passes a signal on to the command's process group. What is no signal of ours is dropped.
fn forward(socket: &OwnedFd, child: Pid) {
    let Ok(received) = wire::receive(socket) else {
        return;
    };
    let Ok(Body::Signal(number)) = Message::decode(&received.bytes).map(|message| message.body)
    else {
        return;
    };
    if let Some(signal) = Signal::from_named_raw(number) {
        // The group may be empty already, which the next round finds out.
        let _ = rustix::process::kill_process_group(child, signal);
    }
}

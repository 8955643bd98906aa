//! The parent of the session's pid 1.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions};

use crate::sys;

/// Waits for the keeper, and ends it when the host has gone and it has not followed.
///
/// It holds the socket, which it never reads, and the lease for as long as anything of the
/// session lives: waitpid(2) for the first process of a pid namespace returns only after the
/// last one is dead. So the end of the host's socket means that the whole session is gone.
pub(super) fn wait(socket: &OwnedFd, keeper: Pid, _lease: &OwnedFd) -> ExitCode {
    // It pins no folder of the caller's, and shows itself to nobody. Both are best effort: what
    // counts here is that the wait below is reached.
    let _ = rustix::process::chdir(c"/");
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let Ok(pidfd) = rustix::process::pidfd_open(keeper, PidfdFlags::empty()) else {
        let _ = rustix::process::kill_process(keeper, Signal::KILL);
        return reap(keeper);
    };
    let mut poll = [
        PollFd::new(&pidfd, PollFlags::IN),
        // A host that only shuts its side down wants to see the end, as one that is gone does.
        PollFd::new(socket, PollFlags::RDHUP),
    ];
    let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, None));
    if poll[0].revents().is_empty() {
        let mut gone = [PollFd::new(&pidfd, PollFlags::IN)];
        let _ = rustix::io::retry_on_intr(|| rustix::event::poll(&mut gone, Some(&GRACE)));
        if gone[0].revents().is_empty() {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
    reap(keeper)
}

fn reap(keeper: Pid) -> ExitCode {
    let status =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(keeper), WaitOptions::empty()));
    match status {
        Ok(Some((_, status))) => sys::exit_code(status.exit_status().unwrap_or(1)),
        _ => ExitCode::FAILURE,
    }
}

/// How long a keeper may take to end by itself once its host is gone.
const GRACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

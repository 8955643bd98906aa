//! The keeper's loop: starts a bubblewrap for each request, and tells what becomes of it.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use super::at;
use super::status::StatusReader;
use crate::Step;
use crate::init::{self, failure};
use crate::sys::{self, Fork};
use crate::wire::{self, Body, Failure, Message};

/// Serves the host until its end of the socket closes, or says what is no message of ours.
///
/// The caller then ends the process, and the kernel ends everything that was started here.
pub(super) fn serve(
    socket: &OwnedFd,
    bubblewrap: &OwnedFd,
    options: &[CString],
) -> Result<(), Failure> {
    let children = sys::watch_children().map_err(failure(Step::SignalDescriptor))?;
    let nothing = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(at(Step::BindSystem))?;
    let mut keeper = Commands {
        bubblewrap,
        nothing: &nothing,
        options: join(options),
        running: Vec::new(),
    };
    loop {
        let mut poll = vec![
            PollFd::new(socket, PollFlags::IN),
            PollFd::new(&children, PollFlags::IN),
        ];
        poll.extend(
            keeper
                .running
                .iter()
                .filter_map(|running| running.status.as_ref())
                .map(|(status, _)| PollFd::new(status, PollFlags::IN)),
        );
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, None))
            .map_err(at(Step::Wait))?;
        let ready = |index: usize| poll[index].revents();
        let (host, ended) = (!ready(0).is_empty(), !ready(1).is_empty());
        let statuses: Vec<bool> = (2..poll.len())
            .map(|index| !ready(index).is_empty())
            .collect();
        keeper.read_statuses(&statuses);
        if ended {
            drain(&children);
            keeper.reap();
        }
        if host && !keeper.serve_host(socket)? {
            return Ok(());
        }
    }
}

/// What the keeper has running.
struct Commands<'a> {
    bubblewrap: &'a OwnedFd,
    nothing: &'a OwnedFd,
    /// The options, each ended by NUL, as `--args` wants them.
    options: Vec<u8>,
    running: Vec<Running>,
}

/// One bubblewrap.
struct Running {
    request: u32,
    pid: Pid,
    report: OwnedFd,
    status: Option<(OwnedFd, StatusReader)>,
}

/// The descriptors of a [`Body::Spawn`].
struct Order {
    init: OwnedFd,
    report: OwnedFd,
    errors: OwnedFd,
}

impl Commands<'_> {
    /// Takes the host's next message; false at the end.
    fn serve_host(&mut self, socket: &OwnedFd) -> Result<bool, Failure> {
        let malformed = at(Step::Request)(Errno::PROTO);
        let received = wire::receive(socket).map_err(failure(Step::Request))?;
        if received.bytes.is_empty() {
            return Ok(false);
        }
        let message = Message::decode(&received.bytes).map_err(|_| malformed)?;
        let descriptors: Result<[OwnedFd; 3], _> = received.descriptors.try_into();
        let (Body::Spawn, Ok([init, report, errors])) = (message.body, descriptors) else {
            return Err(malformed);
        };
        let order = Order {
            init,
            report,
            errors,
        };
        self.spawn(message.request, order);
        Ok(true)
    }

    /// Starts a bubblewrap, or tells on its report socket why not.
    fn spawn(&mut self, request: u32, order: Order) {
        match self.start(&order) {
            Ok((pid, status, go)) => {
                let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
                tell(&order.report, request, Body::Started, pidfd.ok());
                // Only now does it go on: what can be told to stop is known to the host.
                let _ = rustix::net::send(&go, b"g", SendFlags::NOSIGNAL);
                self.running.push(Running {
                    request,
                    pid,
                    report: order.report,
                    status: Some((status, StatusReader::default())),
                });
            }
            Err(failure) => tell(&order.report, request, Body::Failed(failure), None),
        }
    }

    fn start(&self, order: &Order) -> Result<(Pid, OwnedFd, OwnedFd), Failure> {
        if self.running.len() >= MAX_RUNNING {
            return Err(at(Step::TooManyCommands)(Errno::AGAIN));
        }
        let (status, child_status) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                .map_err(at(Step::Pipe))?;
        let (go, child_go) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(at(Step::Pipe))?;
        // A new one for each: its offset is shared with whoever reads it.
        let options = wire::memfd("options", &self.options).map_err(failure(Step::Pipe))?;
        match sys::fork().map_err(failure(Step::Fork))? {
            Fork::Parent(pid) => Ok((pid, status, go)),
            Fork::Child => {
                // Its own copy would keep the socket open after the keeper's end is gone.
                drop(go);
                self.become_bubblewrap(order, &child_status, &child_go, &options)
            }
        }
    }

    fn become_bubblewrap(
        &self,
        order: &Order,
        status: &OwnedFd,
        go: &OwnedFd,
        options: &OwnedFd,
    ) -> ! {
        let _ = rustix::process::setpgid(None, None);
        let mut byte = [0];
        let told = rustix::net::recv(go, &mut byte, RecvFlags::empty());
        if !told.is_ok_and(|(length, _)| length == 1) {
            sys::exit_now(127);
        }
        sys::reset_signals();
        let error = match self.place(order, status, options) {
            Ok(()) => {
                let arguments = [c"bwrap", c"--args", c"5", c"--", c"/run/init"].map(Into::into);
                sys::execute_descriptor(self.bubblewrap, &arguments, &[])
            }
            Err(error) => error,
        };
        // The host reads these words beside bubblewrap's own.
        let words = format!("bubblewrap can't be executed: {error}\n");
        let _ = rustix::io::write(&order.errors, words.as_bytes());
        sys::exit_now(127)
    }

    /// Puts each descriptor at the number that the options name, and leaves no other.
    fn place(&self, order: &Order, status: &OwnedFd, options: &OwnedFd) -> std::io::Result<()> {
        let sources: [BorrowedFd<'_>; 6] = [
            self.nothing.as_fd(),
            self.nothing.as_fd(),
            order.errors.as_fd(),
            order.init.as_fd(),
            status.as_fd(),
            options.as_fd(),
        ];
        let mut aside = Vec::with_capacity(sources.len());
        for source in sources {
            aside.push(rustix::io::fcntl_dupfd_cloexec(source, ASIDE)?);
        }
        for (number, source) in (0..).zip(&aside) {
            sys::place(source.as_fd(), number)?;
        }
        // bubblewrap expects to write its status without waiting for anybody, but not EAGAIN.
        let flags = rustix::fs::fcntl_getfl(status)?;
        rustix::fs::fcntl_setfl(status, flags - OFlags::NONBLOCK)?;
        sys::close_on_exec_from(6)
    }

    /// Reads the status descriptors that are ready, in the order of the poll.
    fn read_statuses(&mut self, ready: &[bool]) {
        let open = self
            .running
            .iter_mut()
            .filter(|running| running.status.is_some());
        for (running, _) in open.zip(ready).filter(|(_, ready)| **ready) {
            running.read_status();
        }
    }

    /// Reaps what has ended, orphans of commands among it.
    fn reap(&mut self) {
        while let Some(pid) = sys::ended_child() {
            let known = self.running.iter().position(|running| running.pid == pid);
            if known.is_some() {
                // A bubblewrap that was killed during its set-up leaves a child waiting for
                // it; its group's number is still its own here.
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            }
            let Ok(Some((_, status))) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG)
            else {
                return;
            };
            if let Some(index) = known {
                let running = self.running.swap_remove(index);
                let ended = Body::Ended(init::ended(status));
                tell(&running.report, running.request, ended, None);
            }
        }
    }
}

impl Running {
    fn read_status(&mut self) {
        let Some((status, reader)) = &mut self.status else {
            return;
        };
        let mut bytes = [0; 512];
        match rustix::io::read(&*status, &mut bytes) {
            Ok(length) if length > 0 => {
                let Some(pid) = reader.push(&bytes[..length]).and_then(Pid::from_raw) else {
                    return;
                };
                // Not there any more is no failure: it is over already.
                if let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                    tell(&self.report, self.request, Body::InitStarted, Some(pidfd));
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.status = None,
        }
    }
}

/// Tells the host about one command; the host may have stopped listening.
fn tell(report: &OwnedFd, request: u32, body: Body, descriptor: Option<OwnedFd>) {
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.iter().map(AsFd::as_fd).collect();
    let _ = wire::send(report, &Message::new(request, body).encode(), &descriptors);
}

fn drain(children: &OwnedFd) {
    let mut bytes = [0; 1024];
    while rustix::io::read(children, &mut bytes).is_ok_and(|length| length > 0) {}
}

fn join(options: &[CString]) -> Vec<u8> {
    options
        .iter()
        .flat_map(CString::as_bytes_with_nul)
        .copied()
        .collect()
}

/// The first number that descriptors are moved to, above the fixed ones.
const ASIDE: i32 = 40;

/// As many as SPEC OWN-1 allows, and as many again whose bubblewrap is not reaped yet.
const MAX_RUNNING: usize = 1024;

//! Receives the request, and enters its working directory.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::Step;
use crate::init::failure;
use crate::wire::{self, Body, Failure, Message, Request};

/// A request with the command's descriptors 0, 1 and 2.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) request: Request,
    pub(super) stdio: [OwnedFd; 3],
}

/// Waits for the request, which is also the go; none when the host is gone.
pub(super) fn receive(socket: &OwnedFd) -> Result<Option<Order>, Failure> {
    let received = wire::receive(socket).map_err(failure(Step::Request))?;
    if received.bytes.is_empty() {
        return Ok(None);
    }
    let malformed = Failure {
        step: Step::Request,
        errno: Errno::PROTO.raw_os_error(),
    };
    let message = Message::decode(&received.bytes).map_err(|_| malformed)?;
    let descriptors: Result<[OwnedFd; 4], _> = received.descriptors.try_into();
    let (Body::Run, Ok([memfd, stdin, stdout, stderr])) = (message.body, descriptors) else {
        return Err(malformed);
    };
    let bytes =
        wire::read_memfd(&memfd, wire::MAX_REQUEST_BYTES).map_err(failure(Step::Request))?;
    let request = Request::decode(&bytes).map_err(|_| malformed)?;
    Ok(Some(Order {
        request,
        stdio: [stdin, stdout, stderr],
    }))
}

/// Enters the working directory through a descriptor, beneath the workspace (SPEC ARG-4): a
/// link that leads out, a file and a folder that is closed to it each give their own number.
pub(super) fn enter(cwd: &CStr) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = rustix::fs::openat(CWD, c"/workspace", flags, Mode::empty())?;
    if cwd.is_empty() {
        return rustix::process::fchdir(&workspace);
    }
    let folder = rustix::fs::openat2(
        &workspace,
        cwd,
        flags,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )?;
    rustix::process::fchdir(&folder)
}

//! Holds a session's namespaces, and starts bubblewrap in them on request.
//!
//! Two processes of one thread each. The outer one makes the user and pid namespaces and waits;
//! the inner one is pid 1 of the session, so that the kernel ends everything with it.

mod commands;
mod etc;
mod mounts;
mod namespaces;
mod outer;
mod status;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::Step;
use crate::init::failure;
use crate::sys::{self, Fork};
use crate::wire::{self, BUILD_ID, Body, Config, Failure, Message, PROTOCOL};

/// Sets one session up and serves it until the host's end of the socket is closed.
pub(crate) fn run() -> ExitCode {
    let begun = sys::close_from(3).and_then(|()| sys::inherited(0));
    let Ok(socket) = begun else {
        return ExitCode::FAILURE;
    };
    sys::reset_signals();
    match serve(&socket) {
        Ok(code) => code,
        Err(failure) => {
            say(&socket, Body::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// What the host passes along with its configuration.
#[derive(Debug)]
struct Order {
    config: Config,
    lease: OwnedFd,
    session: OwnedFd,
    bubblewrap: OwnedFd,
    read_only: Vec<OwnedFd>,
}

fn serve(socket: &OwnedFd) -> Result<ExitCode, Failure> {
    let Some(order) = receive(socket)? else {
        return Ok(ExitCode::FAILURE);
    };
    bound_itself(&order.config)?;
    // Before the user changes: the file may be closed to the new one.
    let helper = rustix::fs::open(
        c"/proc/self/exe",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(at(Step::CopyHelper))?;
    namespaces::leave_caller(order.config.owner)?;
    namespaces::enter_user(order.config.processes)?;
    let pid = namespaces::fork_into_pid()?;
    match pid {
        Fork::Parent(keeper) => {
            let lease = order.lease;
            drop((order.session, order.bubblewrap, order.read_only, helper));
            Ok(outer::wait(socket, keeper, &lease))
        }
        Fork::Child => {
            set_up(socket, &order, &helper)?;
            let Order {
                config,
                bubblewrap,
                lease,
                ..
            } = order;
            drop(helper);
            let served = commands::serve(socket, &bubblewrap, &config.arguments);
            // Held to the end: who gets the lease must find nothing of this session alive.
            drop(lease);
            served.map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Takes the configuration; none when the host is gone or of another build.
fn receive(socket: &OwnedFd) -> Result<Option<Order>, Failure> {
    let malformed = Failure {
        step: Step::Configuration,
        errno: Errno::PROTO.raw_os_error(),
    };
    let received = wire::receive(socket).map_err(failure(Step::Configuration))?;
    if received.bytes.is_empty() {
        return Ok(None);
    }
    let message = Message::decode(&received.bytes).map_err(|_| malformed)?;
    let Body::Configure { build } = message.body else {
        return Err(malformed);
    };
    if build != BUILD_ID.as_bytes() {
        say(
            socket,
            Body::Mismatch {
                protocol: PROTOCOL,
                build: BUILD_ID.as_bytes().to_vec(),
            },
        );
        return Ok(None);
    }
    let mut descriptors = received.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or(malformed);
    let (memfd, lease, session, bubblewrap) = (next()?, next()?, next()?, next()?);
    let bytes =
        wire::read_memfd(&memfd, wire::MAX_CONFIG_BYTES).map_err(failure(Step::Configuration))?;
    let config = Config::decode(&bytes).map_err(|_| malformed)?;
    Ok(Some(Order {
        config,
        lease,
        session,
        bubblewrap,
        read_only: descriptors.collect(),
    }))
}

/// Limits of the keeper's own: no core file, descriptors for as many commands as a session may
/// admit, and the usual umask, whatever the caller's was.
fn bound_itself(config: &Config) -> Result<(), Failure> {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let core = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    rustix::process::setrlimit(Resource::Core, core).map_err(at(Step::Limits))?;
    let files = rustix::process::getrlimit(Resource::Nofile);
    let wanted = MAX_OPEN_FILES.max(64 + config.read_only.len() as u64);
    let raised = Rlimit {
        current: Some(files.maximum.map_or(wanted, |most| most.min(wanted))),
        maximum: files.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised).map_err(at(Step::Limits))
}

/// Makes the session's namespaces and root, and tells the host.
fn set_up(socket: &OwnedFd, order: &Order, helper: &OwnedFd) -> Result<(), Failure> {
    let Order {
        config,
        session,
        read_only,
        ..
    } = order;
    // By its working directory the session's folder gets into the new mount namespace: a
    // descriptor stays in the old one, and a path may be closed to this user.
    rustix::process::fchdir(session).map_err(at(Step::OpenSession))?;
    namespaces::enter_network_and_mounts(config.host_network)?;
    let sources = mounts::open(&config.read_only, read_only)?;
    mounts::build(config, &sources, helper)?;
    drop(sources);
    mounts::pivot(&config.root)?;
    let workspace = rustix::fs::open(
        c"/k/s/workspace",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(at(Step::OpenWorkspace))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(at(Step::NotDumpable))?;
    wire::send(
        socket,
        &Message::new(0, Body::Ready).encode(),
        &[workspace.as_fd()],
    )
    .map_err(failure(Step::OpenWorkspace))
}

/// Tells the host, which may be gone.
fn say(socket: &OwnedFd, body: Body) {
    let _ = wire::send(socket, &Message::new(0, body).encode(), &[]);
}

/// A step's failure with the error's number.
fn at(step: Step) -> impl Fn(Errno) -> Failure {
    move |errno| Failure {
        step,
        errno: errno.raw_os_error(),
    }
}

/// Writes a file that is there, in one call, as the files of proc(5) want it.
fn write_file(path: &std::ffi::CStr, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(|_| ())
}

/// Three descriptors for each of the 1024 commands that SPEC OWN-1 allows, and some to spare.
const MAX_OPEN_FILES: u64 = 4096;

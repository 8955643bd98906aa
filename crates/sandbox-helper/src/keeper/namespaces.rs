//! Leaves the caller's world step by step.
//!
//! The order is the contract: each step needs a right that a later one takes away.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid};
use rustix::thread::UnshareFlags;

use super::{at, write_file};
use crate::Step;
use crate::init::failure;
use crate::sys::{self, Fork};
use crate::wire::{Failure, Owner};

/// A session of its own, a keyring of its own, and for a root host a user of its own.
pub(super) fn leave_caller(owner: Option<Owner>) -> Result<(), Failure> {
    // The leader of a process group can't; then it is alone in its session already.
    let _ = rustix::process::setsid();
    sys::leave_session_keyring();
    if let Some(Owner { uid, gid }) = owner {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[]).map_err(at(Step::Owner))?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(at(Step::Owner))?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(at(Step::Owner))?;
        // Changing the user cleared this, and without it the next files can't be written.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
            .map_err(at(Step::Owner))?;
    }
    raise_oom_score().map_err(at(Step::OomScore))
}

/// The sandbox dies before what it runs for.
fn raise_oom_score() -> Result<(), rustix::io::Errno> {
    let path = c"/proc/self/oom_score_adj";
    let file = rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = [0; 16];
    let length = rustix::io::read(&file, &mut bytes)?;
    let own: i32 = str::from_utf8(&bytes[..length])
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    write_file(path, &(own + OOM_SCORE_RAISE).min(1000).to_string())
}

/// Makes the user namespace and bounds its processes.
pub(super) fn enter_user(processes: Option<u64>) -> Result<(), Failure> {
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    sys::unshare(UnshareFlags::NEWUSER).map_err(failure(Step::UserNamespace))?;
    // Denied first, or the kernel refuses the group's map.
    write_file(c"/proc/self/setgroups", "deny").map_err(at(Step::IdMaps))?;
    for (path, id) in [(c"/proc/self/uid_map", uid), (c"/proc/self/gid_map", gid)] {
        // Mapped to any number but 0: what is executed then has no capability. 0 is what a
        // mapped root (a rootless container) calls itself.
        let inside = if id == 0 { INSIDE_OF_MAPPED_ROOT } else { id };
        write_file(path, &format!("{inside} {id} 1")).map_err(at(Step::IdMaps))?;
    }
    if let Some(processes) = processes {
        let ceiling = rustix::process::getrlimit(Resource::Nproc).maximum;
        let bound = ceiling.map_or(processes, |ceiling| ceiling.min(processes));
        let limit = Rlimit {
            current: Some(bound),
            maximum: Some(bound),
        };
        rustix::process::setrlimit(Resource::Nproc, limit).map_err(at(Step::Limits))?;
    }
    Ok(())
}

/// Makes the pid namespace; its first process is the child.
pub(super) fn fork_into_pid() -> Result<Fork, Failure> {
    sys::unshare(UnshareFlags::NEWPID).map_err(failure(Step::PidNamespace))?;
    let fork = sys::fork().map_err(failure(Step::Fork))?;
    if matches!(fork, Fork::Child) {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(at(Step::Fork))?;
    }
    Ok(fork)
}

/// Makes the network and mount namespaces, with a `/proc` and a loopback of their own.
pub(super) fn enter_network_and_mounts(host_network: u64) -> Result<(), Failure> {
    sys::unshare(UnshareFlags::NEWNET).map_err(failure(Step::NetworkNamespace))?;
    sys::unshare(UnshareFlags::NEWNS).map_err(failure(Step::MountNamespace))?;
    rustix::mount::mount_change(
        c"/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(at(Step::PrivateMounts))?;
    rustix::mount::mount(
        c"proc",
        c"/proc",
        c"proc",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        None,
    )
    .map_err(at(Step::MountProc))?;
    // The host can't look: this process is about to close itself to it. So it looks itself.
    let network = rustix::fs::stat(c"/proc/self/ns/net").map_err(at(Step::HostNetwork))?;
    if network.st_ino == host_network {
        return Err(at(Step::HostNetwork)(rustix::io::Errno::EXIST));
    }
    sys::loopback_up().map_err(failure(Step::Loopback))
}

const OOM_SCORE_RAISE: i32 = 500;
const INSIDE_OF_MAPPED_ROOT: u32 = 1000;

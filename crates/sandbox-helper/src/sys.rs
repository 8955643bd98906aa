//! The system calls without a safe form: this file holds all `unsafe` of the workspace.
//!
//! Both roles have one thread, which is what makes `fork` and what follows it harmless here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

use rustix::process::Pid;

/// Which side of a fork this is.
#[derive(Debug)]
pub(crate) enum Fork {
    /// The one that called, with the child's number.
    Parent(Pid),
    /// The new one.
    Child,
}

/// fork(2).
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so the child gets no lock that another one holds.
    let pid = check(i64::from(unsafe { libc::fork() }))?;
    match Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX)) {
        Some(pid) => Ok(Fork::Parent(pid)),
        None => Ok(Fork::Child),
    }
}

/// Ends the process at once, with nothing of the runtime's run before (`_exit(2)`).
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: never returns, touches no memory.
    unsafe { libc::_exit(code) }
}

/// The code as a process's result; what does not fit is 1.
pub(crate) fn exit_code(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// unshare(2).
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: none of the callers passes FILES, so every descriptor stays what its owner thinks.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(io::Error::from)
}

/// Closes every descriptor from this number on (close_range(2)).
///
/// Only for the first lines of a role, before anything owns a descriptor in that range.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    close_range(first, 0)
}

/// Marks every descriptor from this number on close-on-exec (close_range(2), Linux 5.11).
pub(crate) fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    close_range(first, libc::CLOSE_RANGE_CLOEXEC)
}

fn close_range(first: RawFd, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: plain numbers; the callers' contracts say that no owned descriptor is closed.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, flags) })?;
    Ok(())
}

/// Takes a descriptor that was put at a fixed number before this program was executed.
///
/// The caller takes each number once.
pub(crate) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only reads; it tells whether the number is open.
    check(i64::from(unsafe { libc::fcntl(number, libc::F_GETFD) }))?;
    // SAFETY: it is open, and by the caller's contract nothing else owns it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(descriptor)
}

/// Puts a copy of a descriptor at a fixed number, not close-on-exec (dup2(2)).
///
/// Only between `fork` and `exec`, where nothing is dropped any more: the number may have had
/// an owner. The two numbers must differ, since dup2 would leave the flag alone.
pub(crate) fn place(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: plain numbers; by the caller's contract no owner of `number` is used again.
    check(i64::from(unsafe {
        libc::dup2(descriptor.as_raw_fd(), number)
    }))?;
    Ok(())
}

/// Puts every signal to its default and unblocks all of them.
///
/// By raw rt_sigaction(2): libc refuses 32 and 33, and Rust's runtime ignores SIGPIPE, which
/// execve(2) would keep.
pub(crate) fn reset_signals() {
    // The kernel's own `struct sigaction` of all zeroes is SIG_DFL with no flags; 64 bytes are
    // more than it has on any architecture.
    let default = [0_u64; 8];
    for signal in 1..=64_i64 {
        // SAFETY: the kernel reads one structure from `default` and writes nothing. For KILL
        // and STOP it fails, which is right.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u8>(),
                8_usize,
            );
        }
    }
    let empty = 0_u64;
    // SAFETY: the kernel reads the eight bytes of `empty`.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const empty,
            std::ptr::null_mut::<u64>(),
            8_usize,
        );
    }
}

/// Blocks SIGCHLD and gives the descriptor that tells of it (signalfd(2)), not blocking.
pub(crate) fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero `sigset_t` is a value of that type; the calls fill and read it.
    let descriptor = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(i64::from(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            std::ptr::null_mut(),
        )))?;
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    check(i64::from(descriptor))?;
    // SAFETY: it was made a line above, so this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A child that has ended and is not reaped yet, so that its number still is its own
/// (waitid(2), `WNOWAIT`).
pub(crate) fn ended_child() -> Option<Pid> {
    // SAFETY: an all-zero `siginfo_t` is a value of that type; the kernel fills it.
    let pid = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, options) < 0 {
            return None;
        }
        info.si_pid()
    };
    Pid::from_raw(pid)
}

/// Leaves the session keyring of whoever started this (keyctl(2), JOIN_SESSION_KEYRING).
///
/// Best effort: the kernel bounds the keyrings of a user, and the 198th fresh one is EDQUOT.
pub(crate) fn leave_session_keyring() {
    // SAFETY: a null name asks for a fresh anonymous keyring; nothing is written.
    let _ = unsafe { libc::syscall(libc::SYS_keyctl, 1_i64, std::ptr::null::<u8>()) };
}

/// Sets the loopback interface up (netdevice(7)).
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero `ifreq` is a value of that type, and `lo` with its end fits.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l'.cast_signed() as libc::c_char;
    request.ifr_name[1] = b'o'.cast_signed() as libc::c_char;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`.
    check(i64::from(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    }))?;
    Ok(())
}

/// Executes the program that a descriptor names (execveat(2)); returns only its failure.
pub(crate) fn execute_descriptor(
    program: impl AsFd,
    arguments: &[CString],
    environment: &[CString],
) -> io::Error {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with null and outlive the call, as do the strings they point to.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_fd().as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    io::Error::last_os_error()
}

/// Executes the program at a path (execve(2)); returns only its failure.
pub(crate) fn execute(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: as above.
    unsafe {
        libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
    }
    io::Error::last_os_error()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

/// Installs a seccomp program, an array of `struct sock_filter` (seccomp(2)).
///
/// `no_new_privs` must be set, as bubblewrap does.
pub(crate) fn install_filter(program: &[u8]) -> io::Result<()> {
    let (instructions, rest) = program.as_chunks::<8>();
    let (Ok(length), true) = (u16::try_from(instructions.len()), rest.is_empty()) else {
        return Err(rustix::io::Errno::INVAL.into());
    };
    let mut filter: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|[c0, c1, jt, jf, k @ ..]| libc::sock_filter {
            code: u16::from_le_bytes([*c0, *c1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_le_bytes(*k),
        })
        .collect();
    let program = libc::sock_fprog {
        len: length,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies `length` instructions from `filter`, which outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    })?;
    Ok(())
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

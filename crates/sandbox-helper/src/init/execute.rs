//! The command's own process, from fork to exec.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

use super::limits;
use super::request::Order;
use crate::Step;
use crate::sys;
use crate::wire::{Body, Failure, Message, Record, Request};

/// The first number that the descriptors are moved to, out of the way of 0, 1 and 2.
const ASIDE: i32 = 16;

/// Becomes the command, or says over the pipe why not.
///
/// No step is optional: the first that fails ends the process before anything of the command's
/// ran.
pub(super) fn become_command(order: &Order, errors: &OwnedFd) -> ! {
    let record = match prepare(order) {
        Ok(()) => execute(&order.request),
        Err(failure) => Record::Failed(failure),
    };
    let message = Message::new(0, Body::Record(record)).encode();
    // A pipe takes this much at once; when even that fails, init sees the end without a record.
    let _ = rustix::io::write(errors, &message);
    sys::exit_now(127)
}

fn prepare(order: &Order) -> Result<(), Failure> {
    let at = |step| crate::init::failure(step);
    rustix::process::setpgid(None, None).map_err(|error| at(Step::ProcessGroup)(error.into()))?;
    place_stdio(&order.stdio).map_err(at(Step::Stdio))?;
    sys::close_on_exec_from(3).map_err(at(Step::Descriptors))?;
    limits::apply(&order.request.limits).map_err(at(Step::Limits))?;
    // Last but for the dispositions: an inherited SIGPIPE or a blocked signal would change what
    // the command does.
    sys::reset_signals();
    if !order.request.filter.is_empty() {
        sys::install_filter(&order.request.filter).map_err(at(Step::Filter))?;
    }
    Ok(())
}

fn place_stdio(stdio: &[OwnedFd; 3]) -> std::io::Result<()> {
    let mut aside = Vec::with_capacity(3);
    for descriptor in stdio {
        aside.push(rustix::io::fcntl_dupfd_cloexec(descriptor, ASIDE)?);
    }
    for (number, descriptor) in (0..).zip(&aside) {
        sys::place(descriptor.as_fd(), number)?;
    }
    Ok(())
}

/// Executes, and gives the record of the failure.
fn execute(request: &Request) -> Record {
    let Request {
        executable,
        arguments,
        environment,
        ..
    } = request;
    let mut refused = None;
    for candidate in candidates(executable, environment) {
        let error = sys::execute(&candidate, arguments, environment);
        let errno = error.raw_os_error().unwrap_or(0);
        let exists = exists(&candidate);
        // As execvp(3): a place on the PATH that lacks the name is passed by, one that refuses
        // it is remembered, anything else is the answer.
        match Errno::from_raw_os_error(errno) {
            Errno::NOENT | Errno::NOTDIR if !exists => {}
            Errno::ACCESS => {
                refused.get_or_insert(Record::NotExecuted {
                    errno,
                    exists: true,
                });
            }
            _ => return Record::NotExecuted { errno, exists },
        }
    }
    refused.unwrap_or(Record::NotExecuted {
        errno: Errno::NOENT.raw_os_error(),
        exists: false,
    })
}

/// Whether the path leads to something: ENOENT then speaks of a script's interpreter.
fn exists(path: &CStr) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::empty()).is_ok()
}

/// The paths to try, in order.
fn candidates(executable: &CString, environment: &[CString]) -> Vec<CString> {
    if executable.is_empty() || executable.as_bytes().contains(&b'/') {
        return vec![executable.clone()];
    }
    let path = environment
        .iter()
        .find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    path.split(|byte| *byte == b':')
        .filter_map(|folder| {
            let mut candidate = folder.to_vec();
            if !candidate.is_empty() {
                candidate.push(b'/');
            }
            candidate.extend(executable.as_bytes());
            CString::new(candidate).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(values: &[&str]) -> Vec<CString> {
        values
            .iter()
            .map(|value| CString::new(*value).unwrap())
            .collect()
    }

    // PROC-7: the lookup is the command's, not the host's.
    #[test]
    fn proc_7_names_are_looked_up_along_the_commands_own_path() {
        let environment = strings(&["HOME=/x", "PATH=/a:/b/", "PATH=/second"]);
        let found = |name: &str| candidates(&CString::new(name).unwrap(), &environment);
        assert_eq!(found("ls"), strings(&["/a/ls", "/b//ls"]));
        assert_eq!(found("./ls"), strings(&["./ls"]));
        assert_eq!(found("/bin/ls"), strings(&["/bin/ls"]));
        assert_eq!(
            candidates(&c"ls".to_owned(), &[]),
            strings(&["/usr/local/bin/ls", "/usr/bin/ls", "/bin/ls"])
        );
        assert_eq!(
            candidates(&c"ls".to_owned(), &strings(&["PATH=:/a"])),
            strings(&["ls", "/a/ls"])
        );
    }
}

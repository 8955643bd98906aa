//! Sets the command's resource limits.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::wire::Limits;

/// Sets each limit that is given, soft and hard.
///
/// Called in the command's own process, inside the innermost user namespace, so that the number
/// of processes counts this command alone. A hard limit that is lower already stays: an
/// unprivileged process can't raise it.
pub(super) fn apply(limits: &Limits) -> std::io::Result<()> {
    for (resource, value) in [
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Memlock, limits.locked_bytes),
        (Resource::Msgqueue, limits.message_queue_bytes),
        // One byte, not none: a limit of zero does not stop a piped core handler (core(5)).
        (Resource::Core, Some(1)),
    ] {
        let Some(value) = value else { continue };
        let ceiling = getrlimit(resource).maximum;
        let value = ceiling.map_or(value, |ceiling| ceiling.min(value));
        setrlimit(
            resource,
            Rlimit {
                current: Some(value),
                maximum: Some(value),
            },
        )?;
    }
    Ok(())
}

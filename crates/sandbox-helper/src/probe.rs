//! What a command finds when it looks around: the evidence of a posture.
//!
//! Run inside as `/run/init probe` by the host, which decides what the lines mean. Every
//! attempt is on the sandbox's own things: what should be refused is opened and not used.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::UnshareFlags;

/// Folders that no command may write to.
const CLOSED: [&str; 8] = [
    "/", "/dev", "/etc", "/home", "/proc", "/run", "/usr", "/var",
];

/// Prints one finding a line, `name value`, and ends with 0.
pub(crate) fn run() -> ExitCode {
    let report = report();
    match std::io::stdout().lock().write_all(report.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn report() -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        // A string takes every line.
        let _ = writeln!(out, "{name} {value}");
    };
    for (name, value) in status_fields() {
        line(name, &value);
    }
    line("descriptors", &descriptors());
    line("environment", &environment());
    line("interfaces", &interfaces());
    line("processes", &processes());
    line(
        "init",
        &outcome(rustix::fs::readlink("/proc/1/exe", Vec::new())),
    );
    line(
        "settings",
        &outcome(open_for_writing("/proc/sys/kernel/core_pattern")),
    );
    for folder in CLOSED {
        line(
            "closed",
            &format!("{folder} {}", outcome(try_to_write(folder))),
        );
    }
    for (path, kind) in writable_mounts() {
        line("writable", &format!("{path} {kind}"));
    }
    for (name, resource) in [
        ("max-processes", Resource::Nproc),
        ("max-files", Resource::Nofile),
        ("max-file-bytes", Resource::Fsize),
        ("max-core-bytes", Resource::Core),
    ] {
        let limit = getrlimit(resource).current;
        line(
            name,
            &limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()),
        );
    }
    // Last: if it is not refused, what follows would be seen from another namespace.
    let nested = crate::sys::unshare(UnshareFlags::NEWUSER);
    line(
        "user-namespace",
        &outcome(nested.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))),
    );
    out
}

/// `done`, or the name of what refused it.
fn outcome<T>(result: Result<T, Errno>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(Errno::ACCESS) => "EACCES".to_owned(),
        Err(Errno::NOENT) => "ENOENT".to_owned(),
        Err(Errno::NOSPC) => "ENOSPC".to_owned(),
        Err(Errno::PERM) => "EPERM".to_owned(),
        Err(Errno::ROFS) => "EROFS".to_owned(),
        Err(errno) => format!("errno-{}", errno.raw_os_error()),
    }
}

fn status_fields() -> Vec<(&'static str, String)> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map_or_else(|| "?".to_owned(), |value| value.trim().to_owned())
    };
    let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(field);
    vec![
        ("capabilities", sets.join(" ")),
        ("no-new-privileges", field("NoNewPrivs")),
        ("seccomp", field("Seccomp")),
        ("uid", field("Uid")),
    ]
}

fn descriptors() -> String {
    // The folder's own descriptor is the next free one, and gone again afterwards.
    let names = numbers("/proc/self/fd");
    names
        .into_iter()
        .filter(|number| open_still(*number))
        .map(|number| number.to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

fn open_still(number: u32) -> bool {
    fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok()
}

fn processes() -> String {
    numbers("/proc").len().to_string()
}

fn numbers(folder: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

fn environment() -> String {
    let mut names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().replace(char::is_whitespace, "?"))
        .collect();
    names.sort_unstable();
    names.join(" ")
}

fn interfaces() -> String {
    let table = fs::read_to_string("/proc/net/dev").unwrap_or_else(|_| "?:".to_owned());
    let names = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned());
    names.collect::<Vec<_>>().join(" ")
}

fn open_for_writing(path: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).map(drop)
}

fn try_to_write(folder: &str) -> Result<(), Errno> {
    let path = format!("{}/.sandbox-probe", folder.trim_end_matches('/'));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(&*path, flags, Mode::RUSR)?;
    // It should not be there at all.
    let _ = rustix::fs::unlink(&*path);
    Ok(())
}

/// Mount points that are writable by mount and by file system, as `proc(5)` lists them.
fn writable_mounts() -> Vec<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_else(|_| "0 0 0:0 / ? rw - ? ? rw".to_owned());
    table.lines().filter_map(writable_mount).collect()
}

fn writable_mount(line: &str) -> Option<(String, String)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mount: Vec<&str> = mount.split(' ').collect();
    let file_system: Vec<&str> = file_system.split(' ').collect();
    let writable = |options: &str| options.split(',').any(|option| option == "rw");
    if writable(mount.get(5)?) && writable(file_system.get(2)?) {
        Some((
            (*mount.get(4)?).to_owned(),
            (*file_system.first()?).to_owned(),
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CON-4: what counts as writable.
    #[test]
    fn con_4_a_mount_is_writable_by_both_of_its_options() {
        let table = [
            (
                "22 27 0:21 / /tmp rw,nosuid shared:1 - tmpfs tmpfs rw,size=1k",
                Some(("/tmp", "tmpfs")),
            ),
            ("22 27 0:21 / /usr ro,nosuid - ext4 /dev/vda rw", None),
            ("22 27 0:21 / /proc rw - proc proc ro", None),
            ("nonsense", None),
        ];
        for (line, expected) in table {
            let expected = expected.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
            assert_eq!(writable_mount(line), expected, "{line}");
        }
    }
}

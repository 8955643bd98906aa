//! bubblewrap's options: a pure function of what the session is.
//!
//! They go through `--args FD`, in this order, and depend on the session alone: executable,
//! arguments, environment, working directory and limits of a command travel in its request
//! (SPEC ARG-4). What is bound comes from the keeper's own root at fixed names, so that no path
//! of the host's but a tool root's is among them.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use sandbox_core::{ErrorCode, SandboxError, shown};
use sandbox_helper::wire::RootEntry;

/// The top level of a host's file system: merged `/usr`, split, without `/lib64`.
///
/// ```
/// use sandbox_bwrap::argv::{HostShape, TopLevel};
///
/// let merged = HostShape::merged(&["bin", "lib", "lib64", "sbin"]);
/// assert_eq!(merged.names["bin"], TopLevel::Link("usr/bin".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostShape {
    /// What stands at each of [`HostShape::NAMES`] that is there.
    pub names: std::collections::BTreeMap<&'static str, TopLevel>,
}

/// What stands at a name of the top level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopLevel {
    /// A link, as on a merged host.
    Link(OsString),
    /// A folder, as on a split one.
    Folder,
}

impl HostShape {
    /// The names beside `/usr` that programs and libraries are found at (hier(7)).
    pub const NAMES: [&'static str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];

    /// A host on which these names are links into `/usr`.
    #[must_use]
    pub fn merged(names: &[&'static str]) -> Self {
        let link = |name: &&'static str| (*name, TopLevel::Link(format!("usr/{name}").into()));
        Self {
            names: names.iter().map(link).collect(),
        }
    }

    /// What the keeper puts beside `/usr` in its own root.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for a link whose target holds NUL.
    pub fn root_entries(&self) -> Result<Vec<RootEntry>, SandboxError> {
        let entry = |(name, top): (&&'static str, &TopLevel)| {
            let name = string(*name)?;
            Ok(match top {
                TopLevel::Link(target) => RootEntry::Link {
                    name,
                    target: string(target.as_bytes())?,
                },
                TopLevel::Folder => RootEntry::Bind { name },
            })
        };
        let entries: Result<Vec<RootEntry>, Cause> = self.names.iter().map(entry).collect();
        Ok(entries?)
    }
}

/// What the options depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The host.
    pub host: HostShape,
    /// Where the keeper's read-only trees `/k/r/0`, `/k/r/1`, … stand inside (SPEC CON-5).
    pub read_only: Vec<PathBuf>,
    /// The size of a command's `/dev/shm`, in bytes.
    pub shm_bytes: u64,
}

/// bubblewrap's options, in order.
///
/// # Errors
/// `SANDBOX_INVALID` for a destination that holds NUL, is no plain absolute path, or would
/// cover, or stand below, something of the sandbox's own; `SANDBOX_LIMIT` for more options than
/// bubblewrap takes.
pub fn options(input: &Input) -> Result<Vec<CString>, SandboxError> {
    let mut options = Options::default();
    namespaces(&mut options);
    system(&mut options, &input.host)?;
    read_only(&mut options, &input.read_only)?;
    kernel(&mut options, input.shm_bytes);
    session(&mut options);
    options.finish()
}

fn namespaces(options: &mut Options) {
    // Each by name: `--unshare-all` only tries some of them.
    options.flags(&["--unshare-user", "--disable-userns"]);
    options.flags(&["--unshare-ipc", "--unshare-pid"]);
    options.flags(&["--unshare-uts", "--unshare-cgroup"]);
    options.flags(&["--hostname", "sandbox", "--uid", "1000", "--gid", "1000"]);
    options.flags(&["--new-session", "--cap-drop", "ALL"]);
    options.flags(&["--as-pid-1", "--die-with-parent"]);
}

fn system(options: &mut Options, host: &HostShape) -> Result<(), Cause> {
    options.flags(&["--ro-bind", "/usr", "/usr"]);
    for (name, top) in &host.names {
        let path = string(format!("/{name}"))?;
        match top {
            TopLevel::Link(target) => {
                options.flags(&["--symlink"]);
                options.values([string(target.as_bytes())?, path]);
            }
            TopLevel::Folder => {
                options.flags(&["--ro-bind"]);
                options.values([path.clone(), path]);
            }
        }
    }
    options.flags(&["--ro-bind", "/k/etc", "/etc"]);
    Ok(())
}

/// Tool roots, each below folders that are named first: bubblewrap makes unnamed ones 0700.
fn read_only(options: &mut Options, destinations: &[PathBuf]) -> Result<(), Cause> {
    check_destinations(destinations)?;
    let mut made = BTreeSet::new();
    for (number, destination) in destinations.iter().enumerate() {
        let parents: Vec<_> = destination.ancestors().skip(1).collect();
        // The last ancestor is `/`.
        for parent in parents.iter().rev().skip(1) {
            if made.insert(*parent) {
                options.flags(&["--dir"]);
                options.values([string(parent.as_os_str().as_bytes())?]);
            }
        }
        options.flags(&["--ro-bind"]);
        options.values([
            string(format!("/k/r/{number}"))?,
            string(destination.as_os_str().as_bytes())?,
        ]);
    }
    Ok(())
}

fn kernel(options: &mut Options, shm_bytes: u64) {
    options.flags(&["--proc", "/proc", "--remount-ro", "/proc"]);
    options.flags(&["--dev", "/dev", "--perms", "1777", "--size"]);
    options.flags(&[&shm_bytes.to_string()]);
    options.flags(&["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]);
}

fn session(options: &mut Options) {
    options.flags(&["--bind", "/k/t", "/tmp"]);
    options.flags(&["--dir", "/home", "--bind", "/k/s/home", "/home/agent"]);
    options.flags(&["--dir", "/run", "--dir", "/var"]);
    options.flags(&["--symlink", "../tmp", "/var/tmp"]);
    options.flags(&["--ro-bind", "/k/h", "/run/init"]);
    // The last mount: none has a destination below what the inside can write.
    options.flags(&["--bind", "/k/s/workspace", "/workspace"]);
    options.flags(&["--remount-ro", "/", "--clearenv"]);
    options.flags(&["--json-status-fd", "4", "--chdir", "/"]);
}

/// Refuses destinations that would change what the sandbox itself is made of.
fn check_destinations(destinations: &[PathBuf]) -> Result<(), Cause> {
    for (number, destination) in destinations.iter().enumerate() {
        check_destination(destination)?;
        for other in &destinations[..number] {
            if destination.starts_with(other) || other.starts_with(destination) {
                return Err(Cause::Nested {
                    destination: destination.clone(),
                    other: other.clone(),
                });
            }
        }
    }
    Ok(())
}

fn check_destination(destination: &PathBuf) -> Result<(), Cause> {
    let bytes = destination.as_os_str().as_bytes();
    let plain = bytes.strip_prefix(b"/").is_some_and(|rest| {
        rest.split(|byte| *byte == b'/')
            .all(|name| !matches!(name, b"" | b"." | b".."))
    });
    if !plain || bytes.contains(&0) || bytes.len() > MAX_PATH_BYTES {
        return Err(Cause::Destination(destination.clone()));
    }
    let own = OWN.iter().find(|own| {
        destination.starts_with(own) || std::path::Path::new(own).starts_with(destination)
    });
    match own {
        Some(own) => Err(Cause::Reserved {
            destination: destination.clone(),
            own,
        }),
        None => Ok(()),
    }
}

/// The list in the making.
#[derive(Debug, Default)]
struct Options(Vec<CString>);

impl Options {
    /// Constants of this file, and numbers.
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(
            flags
                .iter()
                .map(|flag| CString::new(*flag).expect("constants hold no NUL")),
        );
    }

    /// The operands of the flag before.
    fn values<const N: usize>(&mut self, values: [CString; N]) {
        self.0.extend(values);
    }

    fn finish(self) -> Result<Vec<CString>, SandboxError> {
        if self.0.len() > MAX_OPTIONS {
            return Err(Cause::TooMany(self.0.len()).into());
        }
        Ok(self.0)
    }
}

/// The list is separated by NUL: one inside a value would begin a new option.
fn string(value: impl AsRef<[u8]>) -> Result<CString, Cause> {
    CString::new(value.as_ref())
        .map_err(|_| Cause::Destination(OsString::from_vec(value.as_ref().to_vec()).into()))
}

/// Why there is no list of options.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(
        "the read-only mount at {} is refused: a plain absolute path without NUL, `.` and `..` is accepted, up to {MAX_PATH_BYTES} bytes",
        shown(.0.as_os_str().as_bytes())
    )]
    Destination(PathBuf),
    #[error(
        "the read-only mount at {} is refused: {own} is the sandbox's own, and what stands there, above it or below it can't be replaced",
        shown(destination.as_os_str().as_bytes())
    )]
    Reserved {
        destination: PathBuf,
        own: &'static str,
    },
    #[error(
        "the read-only mount at {} is refused: it and the one at {} stand in each other; mount the outer one alone",
        shown(destination.as_os_str().as_bytes()),
        shown(other.as_os_str().as_bytes())
    )]
    Nested {
        destination: PathBuf,
        other: PathBuf,
    },
    #[error("bubblewrap would need {0} options, and takes {MAX_OPTIONS}: mount fewer folders")]
    TooMany(usize),
}

impl From<Cause> for SandboxError {
    fn from(cause: Cause) -> Self {
        let code = match cause {
            Cause::Destination(_) | Cause::Reserved { .. } | Cause::Nested { .. } => {
                ErrorCode::Invalid
            }
            Cause::TooMany(_) => ErrorCode::Limit,
        };
        Self::new(code, cause.to_string())
    }
}

/// What stands in every sandbox. Nothing is mounted there, above or below: not over what the
/// sandbox is made of, and never below a tree that the inside can write, where bubblewrap would
/// follow a planted link while it makes the mount point.
const OWN: [&str; 16] = [
    "/workspace",
    "/tmp",
    "/home/agent",
    "/var/tmp",
    "/usr",
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/etc",
    "/proc",
    "/dev",
    "/run",
    "/sys",
];

/// The kernel's bound of one path, its NUL left out (path_resolution(7)).
const MAX_PATH_BYTES: usize = 4095;

/// bubblewrap's own bound, whatever way the options reach it.
const MAX_OPTIONS: usize = 9000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn input(host: HostShape, read_only: &[&str]) -> Input {
        Input {
            host,
            read_only: read_only.iter().map(Into::into).collect(),
            shm_bytes: 268_435_456,
        }
    }

    fn debian() -> HostShape {
        HostShape::merged(&["bin", "lib", "lib64", "sbin"])
    }

    fn lines(input: &Input) -> String {
        let options = options(input).unwrap();
        let lines: Vec<&str> = options.iter().map(|item| item.to_str().unwrap()).collect();
        lines.join("\n")
    }

    // ARG-1, ARG-2: the options of each shape of host, one item a line. `deny-all` is the one
    // policy there is, and none of the options depends on it: the network is the keeper's.
    #[test]
    fn arg_2_options_for_a_table_of_hosts() {
        let split = HostShape {
            names: BTreeMap::from([
                ("bin", TopLevel::Folder),
                ("lib", TopLevel::Folder),
                ("lib64", TopLevel::Folder),
                ("sbin", TopLevel::Folder),
            ]),
        };
        let absolute_links = HostShape {
            names: BTreeMap::from([
                ("bin", TopLevel::Link("/usr/bin".into())),
                ("lib", TopLevel::Link("usr/lib".into())),
                ("lib64", TopLevel::Link("usr/lib".into())),
                ("sbin", TopLevel::Link("usr/bin".into())),
            ]),
        };
        let tools = [
            "/home/ada/.rustup/toolchains/stable-x86_64-unknown-linux-gnu",
            "/home/ada/.nvm",
            "/opt/jdk -21",
        ];
        for (name, input) in [
            ("merged_usr", input(debian(), &[])),
            ("split_usr", input(split, &[])),
            (
                "no_lib64",
                input(HostShape::merged(&["bin", "lib", "sbin"]), &[]),
            ),
            (
                "multilib",
                input(
                    HostShape::merged(&["bin", "lib", "lib32", "lib64", "libx32", "sbin"]),
                    &[],
                ),
            ),
            ("other_links", input(absolute_links, &[])),
            ("tool_roots", input(debian(), &tools)),
        ] {
            insta::assert_snapshot!(name, lines(&input));
        }
    }

    // ARG-2: no mount lies below what the inside can write, or over what the sandbox is.
    #[test]
    fn arg_2_destinations_that_would_change_the_sandbox_are_refused() {
        for refused in [
            "/workspace",
            "/workspace/.git",
            "/tmp/x",
            "/home",
            "/home/agent",
            "/home/agent/.cargo",
            "/var",
            "/var/tmp/x",
            "/usr/local",
            "/bin/x",
            "/etc/x",
            "/proc/1",
            "/dev/shm",
            "/run/init",
            "/",
            "",
            "relative",
            "/a/../workspace",
            "/a//b",
            "/a/",
            "/./a",
            "/a\0--bind\0/\0/b",
        ] {
            let error = options(&input(debian(), &[refused])).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Invalid, "{refused:?}");
        }
        for accepted in ["/home/ada", "/opt", "/var/lib/x", "/workspaces", "/--bind"] {
            options(&input(debian(), &[accepted])).unwrap();
        }
        let nested = options(&input(debian(), &["/opt", "/opt/jdk"])).unwrap_err();
        assert_eq!(
            nested.to_string(),
            "the read-only mount at \"/opt/jdk\" is refused: it and the one at \"/opt\" stand in each other; mount the outer one alone"
        );
    }

    // ARG-1: the one bound that `--args` does not lift.
    #[test]
    fn arg_1_more_options_than_bubblewrap_takes_are_a_limit() {
        let many: Vec<String> = (0..3000).map(|number| format!("/m{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = options(&input(debian(), &many)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Limit);
    }

    proptest! {
        // ARG-1: whatever a caller's path holds, it is one operand, in its place.
        #[test]
        fn arg_1_callers_strings_are_values_only(name in "[^/\0]{1,24}", value: u64) {
            prop_assume!(name != "." && name != "..");
            let destination = format!("/{name}");
            let mut asked = input(debian(), &[]);
            asked.shm_bytes = value;
            let without = options(&asked).unwrap();
            asked.read_only = vec![destination.clone().into()];
            let Ok(with) = options(&asked) else {
                prop_assert!(OWN.iter().any(|own| own.starts_with(&destination)));
                return Ok(());
            };
            let at = with.iter().zip(&without).take_while(|(a, b)| a == b).count();
            let added = ["--ro-bind", "/k/r/0", &destination].map(|item| CString::new(item).unwrap());
            // `--proc` follows in both: what was added is exactly one option and its operands.
            prop_assert_eq!(&with[at..at + 3], &added[..]);
            prop_assert_eq!(&with[at + 3..], &without[at..]);
        }
    }
}

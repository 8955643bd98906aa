//! Programs that are trusted with the isolation itself.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandbox_core::SandboxError;

use super::Cause;

/// An executable that nobody but root and the caller can replace.
///
/// It is opened once: what is executed later is what was looked at.
#[derive(Clone, Debug)]
pub struct Executable {
    path: PathBuf,
    file: Arc<File>,
}

impl Executable {
    /// bubblewrap at this path (SPEC BAK-2).
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` saying what is wrong: not absolute, not there, a script, not
    /// executable for everybody, setuid, or in the hands of others, a folder above it included.
    pub fn bubblewrap(path: &Path) -> Result<Self, SandboxError> {
        // The sandbox may run as another user than the caller.
        Self::verify("bubblewrap", path, 0o111).map_err(Into::into)
    }

    /// The helper at this path, found by configuration or beside the running program, never by
    /// search along `PATH`.
    ///
    /// # Errors
    /// As of [`Self::bubblewrap`]; that it be executable for the caller is enough, since the
    /// sandbox runs a copy of its own.
    pub fn helper(path: &Path) -> Result<Self, SandboxError> {
        Self::verify("helper", path, 0o100).map_err(Into::into)
    }

    /// Where it is, links resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn verify(what: &'static str, given: &Path, executable: u32) -> Result<Self, Cause> {
        let refused = |why: String| Cause::Executable {
            what,
            path: given.to_owned(),
            why,
        };
        if !given.is_absolute() {
            return Err(refused("an absolute path is accepted".to_owned()));
        }
        let path = given
            .canonicalize()
            .map_err(|error| refused(format!("it can't be found ({error})")))?;
        let mut file =
            File::open(&path).map_err(|error| refused(format!("it can't be read ({error})")))?;
        let metadata = file
            .metadata()
            .map_err(|error| refused(format!("it can't be looked at ({error})")))?;
        check_file(&metadata, &mut file, executable).map_err(|why| refused(why.to_owned()))?;
        let trusted = Trusted::of_this_process();
        for above in std::iter::once(path.as_path()).chain(path.ancestors().skip(1)) {
            let metadata = above.symlink_metadata().map_err(|error| {
                refused(format!("{} can't be looked at ({error})", above.display()))
            })?;
            check_hands((&metadata).into(), trusted).map_err(|why| {
                refused(format!(
                    "{} {why}",
                    sandbox_core::shown(above.to_string_lossy().as_bytes())
                ))
            })?;
        }
        Ok(Self {
            path,
            file: Arc::new(file),
        })
    }
}

impl AsFd for Executable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check_file(metadata: &Metadata, file: &mut File, executable: u32) -> Result<(), &'static str> {
    if !metadata.is_file() {
        return Err("it is no regular file");
    }
    if metadata.mode() & 0o6000 != 0 {
        return Err("it is setuid or setgid: a build without that is accepted");
    }
    if metadata.mode() & executable != executable {
        return Err("it is not executable for everybody who has to run it");
    }
    let mut magic = [0; 4];
    match file.read_exact(&mut magic) {
        Ok(()) if magic == *b"\x7fELF" => Ok(()),
        _ => Err("it is no ELF program: a script in its place is refused"),
    }
}

/// Whose files are trusted.
#[derive(Clone, Copy, Debug)]
struct Trusted {
    uid: u32,
    /// What the kernel calls users that a container does not map: there, the real root is one.
    unmapped: Option<u32>,
}

impl Trusted {
    fn of_this_process() -> Self {
        let whole = std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
        Self {
            uid: rustix::process::geteuid().as_raw(),
            unmapped: (!whole).then_some(UNMAPPED),
        }
    }
}

/// Whether nobody else can change or replace what this describes.
fn check_hands(hands: Hands, trusted: Trusted) -> Result<(), &'static str> {
    let Hands { uid, gid, mode } = hands;
    if uid != 0 && uid != trusted.uid && Some(uid) != trusted.unmapped {
        return Err("belongs to another user: root or you must own it");
    }
    // In a sticky folder nobody replaces what is another's (chmod(2)).
    let sticky = mode & 0o170_000 == 0o040_000 && mode & 0o1000 != 0;
    // A group of the same number as its user is that user's own, by the convention of all
    // large distributions, whose default mode is then 0775.
    let private_group = uid == gid;
    let others = if private_group { 0o002 } else { 0o022 };
    if mode & others != 0 && !sticky {
        return Err("can be written by others: take that right away (`chmod go-w`)");
    }
    Ok(())
}

/// The three numbers that decide.
#[derive(Clone, Copy, Debug)]
struct Hands {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl From<&Metadata> for Hands {
    fn from(metadata: &Metadata) -> Self {
        Self {
            uid: metadata.uid(),
            gid: metadata.gid(),
            mode: metadata.mode(),
        }
    }
}

/// `/proc/sys/kernel/overflowuid`, which nobody changes.
const UNMAPPED: u32 = 65534;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sandbox_core::ErrorCode;

    use super::*;

    // BAK-2: who may own it, and who may write to it.
    #[test]
    fn bak_2_only_root_and_the_caller_are_trusted() {
        let ours = Trusted {
            uid: 1000,
            unmapped: None,
        };
        let contained = Trusted {
            uid: 1000,
            unmapped: Some(UNMAPPED),
        };
        for ((uid, gid, mode), trusted, accepted) in [
            ((0, 0, 0o100_755), ours, true),
            ((1000, 1000, 0o100_755), ours, true),
            ((1001, 1001, 0o100_755), ours, false),
            ((65534, 65534, 0o100_755), ours, false),
            ((65534, 65534, 0o100_755), contained, true),
            ((1000, 1000, 0o100_775), ours, true),
            ((1000, 100, 0o100_775), ours, false),
            ((1000, 1000, 0o100_757), ours, false),
            ((0, 0, 0o041_777), ours, true),
            ((0, 0, 0o040_777), ours, false),
            ((0, 4, 0o040_775), ours, false),
            // The bit means nothing on a file.
            ((0, 0, 0o101_777), ours, false),
        ] {
            let hands = Hands { uid, gid, mode };
            assert_eq!(check_hands(hands, trusted).is_ok(), accepted, "{hands:?}");
        }
    }

    // H25: replaced by a script, setuid, in the hands of others, missing.
    #[test]
    fn h25_what_is_no_bubblewrap_is_refused_with_the_cause() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8], mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let script = file("script", b"#!/bin/sh\n", 0o755);
        let setuid = file("setuid", b"\x7fELF", 0o4755);
        let writable = file("writable", b"\x7fELF", 0o757);
        let closed = file("closed", b"\x7fELF", 0o700);
        let good = file("good", b"\x7fELF", 0o755);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&good, &link).unwrap();
        for (path, why) in [
            (script.as_path(), "no ELF program"),
            (&setuid, "setuid or setgid"),
            (&writable, "can be written by others"),
            (&closed, "not executable for everybody"),
            (folder.path(), "no regular file"),
            (Path::new("/nowhere/bwrap"), "can't be found"),
            (Path::new("bwrap"), "an absolute path"),
        ] {
            let error = Executable::bubblewrap(path).unwrap_err();
            assert_eq!(error.code(), ErrorCode::Unavailable);
            assert!(error.to_string().contains(why), "{error}");
        }
        assert_eq!(
            Executable::bubblewrap(&link).unwrap().path(),
            good.canonicalize().unwrap()
        );
        // The helper is copied before it runs as another user.
        Executable::helper(&closed).unwrap();
        let below = folder.path().join("open");
        std::fs::create_dir(&below).unwrap();
        std::fs::copy(&good, below.join("bwrap")).unwrap();
        std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = Executable::bubblewrap(&below.join("bwrap")).unwrap_err();
        assert!(
            error.to_string().contains("can be written by others"),
            "{error}"
        );
    }
}

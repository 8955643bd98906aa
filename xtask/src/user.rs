//! Running things as an ordinary user, from root, without making one.
//!
//! The user is a number that passwd does not hold. What it has to read may lie below a
//! folder of root's that is closed to it (a home of mode 0700): a mount namespace of its
//! own then shows the same things at the same paths, and nothing else of that folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::program::{run, workspace};

/// A number that no user has, of a user and of a group.
const UID: u32 = 64_321;

/// An ordinary user's place: its home and its temporary folder.
#[derive(Debug)]
pub(crate) struct User {
    folder: tempfile::TempDir,
}

impl User {
    /// A user with an empty home and an empty temporary folder.
    pub(crate) fn new() -> Outcome<Self> {
        let folder = tempfile::Builder::new()
            .prefix("sandbox-user-")
            .tempdir_in("/var/tmp")
            .map_err(|error| format!("a home for the ordinary user: {error}"))?;
        let user = Self { folder };
        open_for_all(user.folder.path())?;
        for place in [user.home(), user.tmp()] {
            fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
            chown(&place, Some(UID), Some(UID))
                .map_err(|error| format!("{}: {error}", place.display()))?;
        }
        Ok(user)
    }

    /// Its home.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Gives it a folder and all that is in it.
    pub(crate) fn give(&self, folder: &Path) -> Outcome {
        run(Command::new("chown")
            .args([
                "--recursive",
                "--no-dereference",
                &format!("{UID}:{UID}"),
                "--",
            ])
            .arg(folder))
    }

    /// Its temporary folder.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.folder.path().join("tmp")
    }

    /// A command of this user, which sees workspace and toolchain where root has them.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut script = String::from("set -e\n");
        for (index, (closed, shown)) in closed_places().into_iter().enumerate() {
            script += &show(index, &closed, &shown, self.folder.path());
        }
        // The working directory, too, as it is seen now.
        script += "cd \"$PWD\"\n";
        script += &format!("exec setpriv --reuid {UID} --regid {UID} --clear-groups -- \"$@\"\n");
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--propagation",
                "private",
                "--",
                "/bin/sh",
                "-c",
                &script,
                "as-user",
            ])
            .arg(program);
        command.env("HOME", self.home()).env("TMPDIR", self.tmp());
        for name in [
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Fails where something was left in the temporary folder.
    pub(crate) fn check_clean(&self) -> Outcome {
        check_empty(&self.tmp())
    }
}

/// Fails where a folder holds anything, and empties it.
pub(crate) fn check_empty(folder: &Path) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut left = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)?.flatten() {
        left.push(entry.file_name().to_string_lossy().into_owned());
        run(Command::new("find")
            .arg(entry.path())
            .args(["-maxdepth", "3", "-ls"]))?;
        // So that the next look finds what is new: what can't be removed is named again.
        let _ = run(Command::new("rm").arg("-rf").arg(entry.path()));
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("left {} behind in TMPDIR", left.join(", ")))
    }
}

/// What the user must read, grouped by the closed folder that each is below.
fn closed_places() -> Vec<(PathBuf, Vec<PathBuf>)> {
    let wanted = [
        Some(workspace()),
        variable("RUSTUP_HOME", ".rustup"),
        variable("CARGO_HOME", ".cargo"),
    ];
    let mut groups: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    for place in wanted.into_iter().flatten().filter(|place| place.is_dir()) {
        let Some(closed) = closed_above(&place) else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| *known == closed) {
            Some((_, places)) => places.push(place),
            None => groups.push((closed, vec![place])),
        }
    }
    groups
}

fn variable(name: &str, below_home: &str) -> Option<PathBuf> {
    match std::env::var_os(name) {
        Some(path) => Some(path.into()),
        None => Some(PathBuf::from(std::env::var_os("HOME")?).join(below_home)),
    }
}

/// The topmost folder on the way that others may not pass.
fn closed_above(place: &Path) -> Option<PathBuf> {
    let mut folders: Vec<&Path> = place.ancestors().collect();
    folders.reverse();
    folders
        .into_iter()
        .find(|folder| fs::metadata(folder).is_ok_and(|metadata| metadata.mode() & 0o001 == 0))
        .map(Path::to_owned)
}

/// Shell lines that put an empty folder over a closed one and the places back into it.
fn show(index: usize, closed: &Path, places: &[PathBuf], scratch: &Path) -> String {
    let mut script = String::new();
    let held = |place: usize| format!("{}/held-{index}-{place}", scratch.display());
    for (number, place) in places.iter().enumerate() {
        script += &format!(
            "mkdir -p '{0}'; mount --bind '{1}' '{0}'\n",
            held(number),
            place.display()
        );
    }
    script += &format!("mount -t tmpfs -o mode=755 shown '{}'\n", closed.display());
    for (number, place) in places.iter().enumerate() {
        script += &format!(
            "mkdir -p '{1}'; mount --bind '{0}' '{1}'; umount '{0}'; rmdir '{0}'\n",
            held(number),
            place.display()
        );
    }
    script
}

/// Lets everybody enter and read a folder.
pub(crate) fn open_for_all(folder: &Path) -> Outcome {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", folder.display()))
}

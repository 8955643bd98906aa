//! Whether a path leads where its owner thinks: nobody else may redirect it.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use sandbox_core::shown;

use crate::error::{Cause, Result};
use crate::identity::Identity;

/// Refuses a path that someone other than root, the caller and the store's owner could
/// redirect: by writing to a folder above it, or by owning a link on the way.
pub(crate) fn check_above(path: &Path, identity: Identity) -> Result<()> {
    let mut above = PathBuf::new();
    for component in path.components() {
        above.push(component);
        // The folder itself is judged by its descriptor; a link in its place is not it.
        if component == Component::RootDir || above != path || above.is_symlink() {
            check_one(&above, path, identity)?;
        }
    }
    Ok(())
}

fn check_one(above: &Path, path: &Path, identity: Identity) -> Result<()> {
    let refuse = |why: String, fix: String| {
        Err(Cause::Refused {
            path: shown(path.as_os_str().as_encoded_bytes()),
            why,
            fix,
        })
    };
    let name = shown(above.as_os_str().as_encoded_bytes());
    let stat = match above.symlink_metadata() {
        Ok(stat) => stat,
        Err(error) => {
            return refuse(
                format!("{name} can't be looked at: {error}"),
                "name a path that this user may search".to_owned(),
            );
        }
    };
    if !is_trusted(stat.uid(), identity) {
        return refuse(
            format!("{name} on the way to it belongs to uid {}", stat.uid()),
            "name a path whose folders belong to root or to you".to_owned(),
        );
    }
    if stat.is_symlink() {
        return Ok(());
    }
    let mode = stat.permissions().mode();
    let sticky = mode & 0o1000 != 0;
    // A group of one's own is how many systems set up home folders (umask 002).
    let own_group = stat.gid() == identity.gid && identity.gid == identity.uid;
    if !sticky && (mode & 0o002 != 0 || (mode & 0o020 != 0 && !own_group && stat.gid() != 0)) {
        return refuse(
            format!(
                "others can write to {name} above it (mode {:04o})",
                mode & 0o7777
            ),
            format!("chmod go-w {name}, or name another path"),
        );
    }
    Ok(())
}

/// Whether this uid is root, the caller or the store's owner.
fn is_trusted(uid: u32, identity: Identity) -> bool {
    uid == 0
        || uid == identity.uid
        || uid == rustix::process::geteuid().as_raw()
        || (uid == OVERFLOW_UID && is_mapped())
}

/// What an owner outside this user namespace looks like; there, the machine's root too.
const OVERFLOW_UID: u32 = 65534;

/// Whether this process lives in a user namespace that does not hold every uid.
fn is_mapped() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut fields = map.split_whitespace();
    !(fields.next() == Some("0")
        && fields.next() == Some("0")
        && fields.next() == Some("4294967295"))
}

//! Whom the sandbox runs as.
//!
//! Never the kernel's root: with every capability dropped, what only the owner guards
//! would still be root's own, kernel settings among it. A root host changes to a dedicated
//! uid before anything is made; an ordinary user, and a root that is mapped to one
//! (rootless containers), stays what it is.

use std::fs;

use sandbox_core::{ErrorCode, Result, SandboxError};

use crate::config::Owner;

/// The system user whose ids are taken where it exists.
const SYSTEM_USER: &str = "sandbox";

/// Where the search for a free id begins, and how far it goes: above what distributions
/// give to people and below what containers map.
const FIRST_FREE_ID: u32 = 58_700;
const LAST_FREE_ID: u32 = 58_799;

/// The ids that the caller's sandboxes run under; none for a caller that keeps its own.
///
/// The configured ones, else those of the system user `sandbox`, else the first from
/// 58700 on that no user has.
///
/// # Errors
/// `SANDBOX_INVALID` for a configured 0, or for ids that the caller can't change to;
/// `SANDBOX_UNAVAILABLE` for a root that has no other id to change to.
pub(crate) fn owner(configured: Option<Owner>) -> Result<Option<Owner>> {
    let read = |path: &str| {
        fs::read_to_string(path).map_err(|error| {
            SandboxError::new(
                ErrorCode::Unavailable,
                format!("{path} can't be read: who the caller is stays unknown"),
            )
            .with_source(error)
        })
    };
    let caller = Caller {
        uid: rustix::process::geteuid().as_raw(),
        uid_map: read("/proc/self/uid_map")?,
        // A host without one has no user to collide with.
        passwd: fs::read_to_string("/etc/passwd").unwrap_or_default(),
    };
    caller.owner(configured)
}

/// Whether the caller is root as the kernel sees it.
#[must_use]
pub fn is_kernel_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::geteuid().is_root() && maps_root_to_root(&map)
}

struct Caller {
    uid: u32,
    uid_map: String,
    passwd: String,
}

impl Caller {
    fn owner(&self, configured: Option<Owner>) -> Result<Option<Owner>> {
        if let Some(Owner { uid, gid }) = configured
            && (uid == 0 || gid == 0)
        {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                "the sandbox can't run as uid or gid 0: any other is accepted, or none to let one be chosen",
            ));
        }
        if self.uid != 0 || !maps_root_to_root(&self.uid_map) {
            return match configured {
                Some(owner) if owner.uid != self.uid => Err(SandboxError::new(
                    ErrorCode::Invalid,
                    format!(
                        "only the kernel's root can run sandboxes as another uid ({}), and this is uid {}",
                        owner.uid, self.uid
                    ),
                )),
                _ => Ok(None),
            };
        }
        let owner = configured
            .or_else(|| self.system_user())
            .or_else(|| self.free_id());
        let owner = owner
            .filter(|owner| self.is_mapped(owner.uid))
            .ok_or_else(|| {
                SandboxError::new(
                    ErrorCode::Unavailable,
                    "the caller is root, and there is no other uid that it may change to",
                )
                .with_hint(
                    "run it as an ordinary user, or in a container that maps more than one uid",
                )
            })?;
        Ok(Some(owner))
    }

    fn system_user(&self) -> Option<Owner> {
        self.users().find_map(|(name, uid, gid)| {
            (name == SYSTEM_USER && uid != 0 && gid != 0).then_some(Owner { uid, gid })
        })
    }

    fn free_id(&self) -> Option<Owner> {
        (FIRST_FREE_ID..=LAST_FREE_ID)
            .find(|id| !self.users().any(|(_, uid, gid)| uid == *id || gid == *id))
            .map(|id| Owner { uid: id, gid: id })
    }

    /// passwd(5), as far as its lines are whole.
    fn users(&self) -> impl Iterator<Item = (&str, u32, u32)> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some((name, uid, gid))
        })
    }

    fn is_mapped(&self, uid: u32) -> bool {
        ranges(&self.uid_map).any(|(inside, _, length)| inside <= uid && uid - inside < length)
    }
}

/// user_namespaces(7): first id inside, first id outside, how many.
fn ranges(map: &str) -> impl Iterator<Item = (u32, u32, u32)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse);
        Some((
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        ))
    })
}

fn maps_root_to_root(map: &str) -> bool {
    ranges(map).any(|(inside, outside, length)| inside == 0 && outside == 0 && length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "         0          0 4294967295\n";
    const ROOTLESS: &str = "0 1001 1\n";

    fn owner(
        uid: u32,
        uid_map: &str,
        passwd: &str,
        configured: Option<Owner>,
    ) -> Result<Option<Owner>> {
        Caller {
            uid,
            uid_map: uid_map.to_owned(),
            passwd: passwd.to_owned(),
        }
        .owner(configured)
    }

    // H29, FI-31: who changes to which uid.
    #[test]
    fn h29_a_root_host_never_stays_root() {
        let ids = |uid, gid| Some(Owner { uid, gid });
        assert_eq!(owner(1001, FULL, "", None).unwrap(), None);
        assert_eq!(
            owner(0, ROOTLESS, "", None).unwrap(),
            None,
            "a mapped root is an ordinary user"
        );
        assert_eq!(owner(0, FULL, "", None).unwrap(), ids(58_700, 58_700));
        assert_eq!(
            owner(0, FULL, "x:x:58700:5:::\n", None).unwrap(),
            ids(58_701, 58_701)
        );
        assert_eq!(
            owner(0, FULL, "sandbox:x:990:991:::\n", None).unwrap(),
            ids(990, 991)
        );
        assert_eq!(
            owner(0, FULL, "sandbox:x:0:0:::\n", None).unwrap(),
            ids(58_700, 58_700)
        );
        assert_eq!(owner(0, FULL, "", ids(7, 8)).unwrap(), ids(7, 8));

        let code = |result: Result<Option<Owner>>| result.unwrap_err().code();
        assert_eq!(code(owner(0, FULL, "", ids(0, 8))), ErrorCode::Invalid);
        assert_eq!(code(owner(1001, FULL, "", ids(0, 0))), ErrorCode::Invalid);
        assert_eq!(code(owner(1001, FULL, "", ids(7, 8))), ErrorCode::Invalid);
        assert_eq!(code(owner(0, "0 0 1\n", "", None)), ErrorCode::Unavailable);
    }
}

//! Whom the store acts as.

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

use crate::error::{Cause, Result};

/// The uid and gid that own all of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether the caller is someone else (the kernel's root) and has to switch.
    switches: bool,
}

impl Identity {
    /// The caller itself, or the one that a root caller acts as.
    pub(crate) fn new(owner: Option<(u32, u32)>) -> Self {
        let (uid, gid) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        match owner {
            Some((owner_uid, owner_gid)) => Self {
                uid: owner_uid,
                gid: owner_gid,
                switches: (owner_uid, owner_gid) != (uid, gid),
            },
            None => Self {
                uid,
                gid,
                switches: false,
            },
        }
    }

    /// Makes this thread act as the owner until the guard is dropped.
    ///
    /// setfsuid(2) is per thread and costs about 3 µs there and back. Nested guards give
    /// back what they found.
    pub(crate) fn enter(self) -> Result<Entered> {
        if !self.switches {
            return Ok(Entered(None));
        }
        // The gid first: the uid gives up the right to change it.
        let gid = setfsgid(Gid::from_raw(self.gid));
        let uid = setfsuid(Uid::from_raw(self.uid));
        let entered = Entered(Some((uid, gid)));
        // Neither call reports a failure: asking again shows what holds (setfsuid(2), BUGS).
        let now = setfsuid(Uid::from_raw(u32::MAX));
        let now_gid = setfsgid(Gid::from_raw(u32::MAX));
        if (now.as_raw(), now_gid.as_raw()) != (self.uid, self.gid) {
            drop(entered);
            return Err(Cause::Invalid(format!(
                "this process may not act as uid {} and gid {}: only the kernel's root can own a store by proxy",
                self.uid, self.gid
            )));
        }
        Ok(entered)
    }
}

/// This thread acts as the store's owner while it lives; see [`Store::act_as_owner`](crate::Store::act_as_owner).
#[derive(Debug)]
#[must_use]
pub struct Entered(Option<(Uid, Gid)>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.0.take() {
            setfsuid(uid);
            setfsgid(gid);
        }
    }
}

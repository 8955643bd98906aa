//! Leases: one owner a session, held by the kernel for as long as its descriptors live.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox_core::{SessionId, shown};
use serde::{Deserialize, Serialize};

use crate::error::{Cause, Context as _, Result};
use crate::json;
use crate::layout::{self, RECORD_MODE};
use crate::store::{Inner, is_folder};
use crate::sys::{self, Errno, Lock, Open};

/// The lease of a session. Dropping it gives it up, once every duplicate is closed too.
///
/// It is never unlocked by hand: that would take it from the duplicates as well.
pub(crate) struct Lease {
    store: Arc<Inner>,
    id: SessionId,
    file: OwnedFd,
    /// The process that wrote the side file: a forked copy must not remove it.
    pid: u32,
}

/// Who holds a lease, for a message. Advisory: nothing is decided by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

impl Lease {
    /// Makes the lease of a new session. None where the id was taken or a reaper was faster.
    pub(crate) fn make(store: &Arc<Inner>, id: &SessionId, command: &str) -> Result<Option<Self>> {
        let what = || format!("making the lease of session {id}");
        let file = match sys::create(&store.leases, layout::session(id), RECORD_MODE) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Ok(None),
            Err(errno) => return Err(Cause::Store(what(), errno)),
        };
        let taken = sys::lock(&file, Lock::TryAlone).and_then(|()| {
            // A reaper that saw a lease without a session may have unlinked it.
            is_behind_its_name_raw(store, id, &file)
        });
        match taken {
            Ok(true) => Ok(Some(Self::held(store, id, file, command))),
            Ok(false) | Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => {
                let _ = sys::unlink(&store.leases, layout::session(id));
                Err(Cause::Store(what(), errno))
            }
        }
    }

    /// Takes the lease of a session that exists. Makes nothing.
    pub(crate) fn take(store: &Arc<Inner>, id: &SessionId) -> Result<Untold> {
        let what = || format!("taking the lease of session {id}");
        let file = match sys::open(&store.leases, layout::session(id), Open::Write) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(not_found(id)),
            Err(errno) => return Err(Cause::Store(what(), errno)),
        };
        wait_for_lock(store, id, &file)?;
        if !is_behind_its_name(store, id, &file).store(what)? {
            return Err(not_found(id));
        }
        Ok(Untold {
            store: Arc::clone(store),
            id: *id,
            file,
        })
    }

    fn held(store: &Arc<Inner>, id: &SessionId, file: OwnedFd, command: &str) -> Self {
        let lease = Self {
            store: Arc::clone(store),
            id: *id,
            file,
            pid: std::process::id(),
        };
        lease.tell(command);
        lease
    }

    /// Says who holds it, for others' messages. A failure costs a word, not the lease.
    fn tell(&self, command: &str) {
        let command: String = command.chars().take(MAX_COMMAND_CHARS).collect();
        let holder = Holder {
            pid: self.pid,
            command,
        };
        let written = json::to_bytes(&holder, "the holder of a lease")
            .ok()
            .and_then(|bytes| {
                let name = layout::holder(&self.id);
                let file = sys::overwrite(&self.store.leases, name, RECORD_MODE).ok()?;
                sys::write_all(&file, &bytes).ok()
            });
        if written.is_none() {
            tracing::debug!(session = %self.id, "the lease's side file was not written");
        }
    }

    /// A descriptor that keeps the lease taken for as long as it is open.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd> {
        sys::duplicate(self.file.as_fd())
            .store(|| format!("duplicating the lease of session {}", self.id))
    }

    /// Removes the lease's file; the lock stays with its descriptors.
    pub(crate) fn remove(&self) -> Result<()> {
        let _ = sys::unlink(&self.store.leases, layout::holder(&self.id));
        match sys::unlink(&self.store.leases, layout::session(&self.id)) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Cause::Store(
                format!("removing the lease of session {}", self.id),
                errno,
            )),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // Before the descriptor closes, so that the next owner's words are never removed.
        if let Ok(_acting) = self.store.act() {
            let _ = sys::unlink(&self.store.leases, layout::holder(&self.id));
        }
    }
}

/// A lease that was taken, before its record was compared: nothing is written yet.
pub(crate) struct Untold {
    store: Arc<Inner>,
    id: SessionId,
    file: OwnedFd,
}

impl Untold {
    /// Keeps it and says so.
    pub(crate) fn keep(self, command: &str) -> Lease {
        Lease::held(&self.store, &self.id, self.file, command)
    }
}

/// Whether the file at the lease's name is this open one, and not unlinked.
pub(crate) fn is_behind_its_name(
    store: &Inner,
    id: &SessionId,
    file: &OwnedFd,
) -> sys::Result<bool> {
    is_behind_its_name_raw(store, id, file)
}

fn is_behind_its_name_raw(store: &Inner, id: &SessionId, file: &OwnedFd) -> sys::Result<bool> {
    let own = sys::stat(file)?;
    match sys::stat_at(&store.leases, layout::session(id)) {
        Ok(named) => Ok(own.links > 0 && own.identity() == named.identity()),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Whether a session's lease is taken: by trying, for a moment, to share it.
pub(crate) fn is_held(store: &Inner, id: &SessionId) -> Result<bool> {
    let what = || format!("looking at the lease of session {id}");
    let file = match sys::open(&store.leases, layout::session(id), Open::Read) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(Cause::Store(what(), errno)),
    };
    for _ in 0..MAX_LOOKS {
        match sys::lock(&file, Lock::TryShare) {
            Ok(()) => return Ok(false),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(Cause::Store(what(), errno)),
        }
        if read_holder(store, id).is_some_and(|holder| lives(holder.pid)) {
            break;
        }
        // As for one who wants it: perhaps just a fork.
        std::thread::sleep(WAIT_STEP);
    }
    Ok(true)
}

/// How often a lease is looked at that nobody living says they hold.
const MAX_LOOKS: u32 = 6;

/// Takes the lock, or says who has it.
///
/// Where nobody says that they hold it, or who said so is dead, it may be in the way for
/// just a moment: another process between fork and exec, a keeper that is ending after
/// its host, somebody listing sessions. That is waited for, with a bound.
fn wait_for_lock(store: &Inner, id: &SessionId, file: &OwnedFd) -> Result<()> {
    let start = Instant::now();
    loop {
        match sys::lock(file, Lock::TryAlone) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => {
                return Err(Cause::Store(
                    format!("taking the lease of session {id}"),
                    errno,
                ));
            }
        }
        let holder = read_holder(store, id);
        let lives = holder.as_ref().is_some_and(|holder| lives(holder.pid));
        if lives || start.elapsed() >= MAX_WAIT {
            return Err(busy(id, holder));
        }
        std::thread::sleep(WAIT_STEP);
    }
}

/// How long a lease is waited for that nobody living says they hold.
const MAX_WAIT: Duration = Duration::from_millis(600);
const WAIT_STEP: Duration = Duration::from_millis(5);
/// The longest part of a holder's command that is kept.
const MAX_COMMAND_CHARS: usize = 200;
/// The largest side file that is read.
const MAX_HOLDER_BYTES: u64 = 8192;

fn read_holder(store: &Inner, id: &SessionId) -> Option<Holder> {
    let name = layout::holder(id);
    let bytes = json::read_bounded(&store.leases, &name, &name, MAX_HOLDER_BYTES).ok()??;
    json::parse(&bytes, &name).ok()
}

/// Whether a process with this id exists, zombies left out.
fn lives(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // "pid (name) state …": the name may hold anything, the last bracket ends it.
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    !matches!(state, Some("Z" | "X"))
}

fn busy(id: &SessionId, holder: Option<Holder>) -> Cause {
    let (who, hint) = match holder {
        Some(holder) => (
            format!("process {} ({})", holder.pid, shown(&holder.command)),
            format!("wait for process {} to end, or end it", holder.pid),
        ),
        None => (
            "another process that did not say who it is".to_owned(),
            "wait for its owner to end".to_owned(),
        ),
    };
    Cause::Busy {
        message: format!("the session {id} is owned by {who}"),
        hint: Some(hint),
    }
}

pub(crate) fn not_found(id: &SessionId) -> Cause {
    Cause::NotFound(format!("there is no session {id}"))
}

/// Makes the lease of a session that lost it, so that the session can be removed.
pub(crate) fn restore(store: &Arc<Inner>, id: &SessionId) -> Result<()> {
    if is_folder(store.sessions.as_fd(), &layout::session(id))
        .store(|| format!("looking at session {id}"))?
    {
        sys::lock_file(&store.leases, layout::session(id), RECORD_MODE)
            .store(|| format!("making the lease of session {id}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Store};

    // 5.3: a lock counts only on the file that still is the one of that name.
    #[test]
    fn a_lease_that_was_unlinked_or_replaced_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state"), &Options::default())
            .unwrap()
            .0;
        let id = SessionId::from_bytes([7; 32]);
        let lease = Lease::make(&store, &id, "test").unwrap().unwrap();
        assert!(is_behind_its_name(&store, &id, &lease.file).unwrap());
        assert!(Lease::make(&store, &id, "rival").unwrap().is_none());

        sys::unlink(&store.leases, layout::session(&id)).unwrap();
        assert!(!is_behind_its_name(&store, &id, &lease.file).unwrap());
        assert!(matches!(Lease::take(&store, &id), Err(Cause::NotFound(_))));

        let second = Lease::make(&store, &id, "second").unwrap().unwrap();
        assert!(!is_behind_its_name(&store, &id, &lease.file).unwrap());
        assert!(is_behind_its_name(&store, &id, &second.file).unwrap());
        // The first owner's end takes nothing from the second.
        drop(lease);
        assert!(matches!(Lease::take(&store, &id), Err(Cause::Busy { .. })));
    }

    // STO-5: the dead, zombies among them, hold nothing.
    #[test]
    fn only_living_processes_hold() {
        assert!(lives(std::process::id()));
        assert!(!lives(u32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        // Until it is waited for it stays a zombie.
        while lives(child.id()) {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}

//! Blobs on their way into the store: hashed while they are written aside, synced, then named.
//!
//! The steps are P1 to P7 of `FORMAT.md`. A pin is a hard link in staging to a blob that
//! is there already: a collector may take the name away, the pin brings it back.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sandbox_core::{FileKind, Timestamp};

use crate::digest::{Digest, Hashing};
use crate::error::{Cause, Context as _, Result};
use crate::layout::{self, BLOB_MODE, FOLDER_MODE};
use crate::staging::Staging;
use crate::store::{Inner, random_name};
use crate::sys::{self, Errno, Open};

/// The blobs of one operation.
pub(crate) struct Publication {
    store: Arc<Inner>,
    pub(crate) staging: Staging,
    staged: Mutex<HashMap<Digest, Staged>>,
    next_name: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Staged {
    size: u64,
    /// A link to a stored blob, whose data is on disk already.
    pinned: bool,
}

/// Which folders of blobs are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// All that a new template needs: another publisher may have made a name and not
    /// synced it yet.
    All,
    /// Those that something was added to: the template was there, and its blobs synced.
    Changed,
}

/// The time of change of every blob: a later one shows that someone wrote to it.
pub(crate) const BLOB_TIME: Timestamp = Timestamp {
    seconds: 0,
    nanoseconds: 0,
};

/// Above this many files one sync of the whole disk is cheaper than one for each.
const MAX_SINGLE_SYNCS: usize = 2000;

impl Publication {
    /// Begins one (P1). The caller acts as the store's owner.
    pub(crate) fn new(store: &Arc<Inner>) -> Result<Self> {
        Ok(Self {
            store: Arc::clone(store),
            staging: Staging::new(store)?,
            staged: Mutex::default(),
            next_name: AtomicU64::new(0),
        })
    }

    /// Adds the bytes of a whole file.
    pub(crate) fn add(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = Digest::of(bytes);
        self.add_as(digest, bytes)?;
        Ok(digest)
    }

    /// Adds the bytes of a whole file, whose digest this is.
    pub(crate) fn add_as(&self, digest: Digest, bytes: &[u8]) -> Result<()> {
        if self.is_known(&digest, bytes.len() as u64)? {
            return Ok(());
        }
        let mut writer = self.begin_with(None)?;
        writer.write(bytes)?;
        writer.finish_as(digest)
    }

    /// Whether a blob needs no writing: staged already, or stored and now pinned (P3).
    pub(crate) fn is_known(&self, digest: &Digest, size: u64) -> Result<bool> {
        if self.staged().contains_key(digest) {
            return Ok(true);
        }
        let what = || format!("pinning the blob {digest}");
        let (folder, name) = layout::blob(digest);
        let stored = format!("{folder}/{name}");
        let pin = digest.to_string();
        match sys::link(&self.store.blobs, &stored, &self.staging.blobs, &pin) {
            Ok(()) => {}
            // Another thread pinned or staged it since.
            Err(Errno::EXIST) => return Ok(true),
            // As many names as the disk allows: this file alone is stored by a copy. EPERM:
            // what stands there is no file, and is put aside when the blob is named.
            Err(Errno::NOENT | Errno::MLINK | Errno::PERM) => return Ok(false),
            Err(errno) => return Err(Cause::Store(what(), errno)),
        }
        let stat = sys::stat_at(&self.staging.blobs, &pin).store(what)?;
        if !is_whole(&stat, size) {
            // Damage is never a hit: the bytes are written again and replace it.
            sys::unlink(&self.staging.blobs, &pin).store(what)?;
            return Ok(false);
        }
        self.staged().insert(*digest, Staged { size, pinned: true });
        Ok(true)
    }

    /// Begins a blob whose digest is not known yet (P2).
    pub(crate) fn begin(&self) -> Result<BlobWriter<'_>> {
        self.begin_with(Some(Hashing::default()))
    }

    fn begin_with(&self, hashing: Option<Hashing>) -> Result<BlobWriter<'_>> {
        let name = format!("n{}", self.next_name.fetch_add(1, Ordering::Relaxed));
        let file = sys::create(&self.staging.blobs, &name, layout::RECORD_MODE)
            .store(|| "making a blob".to_owned())?;
        Ok(BlobWriter {
            publication: self,
            name,
            file,
            hashing,
            size: 0,
            hole: 0,
        })
    }

    /// Brings the data to the disk (P4).
    pub(crate) fn sync(&self) -> Result<()> {
        if !self.store.is_durable() {
            return Ok(());
        }
        let what = || "syncing new blobs".to_owned();
        let fresh: Vec<Digest> = self
            .staged()
            .iter()
            .filter_map(|(digest, staged)| (!staged.pinned).then_some(*digest))
            .collect();
        if fresh.len() > MAX_SINGLE_SYNCS {
            return sys::sync_disk(&self.staging.blobs).store(what);
        }
        for digest in fresh {
            let file =
                sys::open(&self.staging.blobs, digest.to_string(), Open::Read).store(what)?;
            sys::sync_data(&file).store(what)?;
        }
        Ok(())
    }

    /// Names the blobs (P6) and syncs their folders (P7). The caller holds the lock (P5).
    pub(crate) fn name_blobs(&self, sync: Sync) -> Result<()> {
        // Each folder, and whether it has to be synced.
        let mut folders: HashMap<String, (OwnedFd, bool)> = HashMap::new();
        let staged = self.staged().clone();
        for (digest, Staged { size, .. }) in staged {
            let (folder, name) = layout::blob(&digest);
            let (folder, changed) = match folders.entry(folder) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let folder = self.blob_folder(entry.key())?;
                    entry.insert((folder, sync == Sync::All))
                }
            };
            *changed |= self.name_blob(&digest, size, folder, &name)?;
        }
        if !self.store.is_durable() {
            return Ok(());
        }
        let what = || "syncing the folders of new blobs".to_owned();
        let mut any = false;
        for (folder, _) in folders.values().filter(|(_, changed)| *changed) {
            sys::sync(folder).store(what)?;
            any = true;
        }
        if any {
            sys::sync(&self.store.blobs).store(what)?;
        }
        Ok(())
    }

    fn blob_folder(&self, name: &str) -> Result<OwnedFd> {
        let what = || format!("opening blobs/{name}");
        match sys::open(&self.store.blobs, name, Open::Folder) {
            Err(Errno::NOENT) => {}
            folder => return folder.store(what),
        }
        match sys::mkdir(&self.store.blobs, name, FOLDER_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Cause::Store(what(), errno)),
        }
        sys::open(&self.store.blobs, name, Open::Folder).store(what)
    }

    /// Links a staged blob to its name; whether the name is new.
    fn name_blob(&self, digest: &Digest, size: u64, folder: &OwnedFd, name: &str) -> Result<bool> {
        let what = || format!("naming the blob {digest}");
        let staged = digest.to_string();
        for _ in 0..MAX_TRIES {
            match sys::link(&self.staging.blobs, &staged, folder, name) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Cause::Store(what(), errno)),
            }
            match sys::stat_at(folder, name) {
                Ok(stat) if is_whole(&stat, size) => return Ok(false),
                Ok(_) => {
                    // What stands there is not what its name says: kept aside for a person.
                    let aside = format!("blob-{digest}-{}", random_name()?);
                    match sys::rename_new(folder, name, &self.store.quarantine, aside) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(errno) => return Err(Cause::Store(what(), errno)),
                    }
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(Cause::Store(what(), errno)),
            }
        }
        Err(Cause::damaged(
            format!("the blob {digest}"),
            "it is damaged again each time that it is replaced",
        ))
    }

    fn staged(&self) -> std::sync::MutexGuard<'_, HashMap<Digest, Staged>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a damaged blob is put aside before the disk is blamed.
const MAX_TRIES: u32 = 10;

/// Whether a blob looks as it was left: its length, and not written to since.
pub(crate) fn is_whole(stat: &sys::Stat, size: u64) -> bool {
    stat.kind == FileKind::File && stat.size == size && stat.modified == BLOB_TIME
}

/// A blob being written; hashed on the way.
pub(crate) struct BlobWriter<'a> {
    publication: &'a Publication,
    name: String,
    file: OwnedFd,
    /// None where the digest is known already.
    hashing: Option<Hashing>,
    size: u64,
    /// Zeros that were not written, at the end so far.
    hole: u64,
}

impl BlobWriter<'_> {
    /// Appends bytes. Whole blocks of zeros become holes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(hashing) = &mut self.hashing {
            hashing.update(bytes);
        }
        self.size += bytes.len() as u64;
        if bytes.len() >= HOLE_BYTES && is_zero(bytes) {
            self.hole += bytes.len() as u64;
            return Ok(());
        }
        let what = || "writing a blob".to_owned();
        if self.hole > 0 {
            let at = self.size - bytes.len() as u64;
            sys::seek(&self.file, rustix::fs::SeekFrom::Start(at)).store(what)?;
            self.hole = 0;
        }
        sys::write_all(&self.file, bytes).store(what)
    }

    /// The digest of what was written; asked once, at the end.
    pub(crate) fn digest(&mut self) -> Digest {
        self.hashing.take().unwrap_or_default().finish()
    }

    /// Ends the blob, whose digest this is.
    pub(crate) fn finish_as(self, digest: Digest) -> Result<()> {
        let what = || "writing a blob".to_owned();
        let publication = self.publication;
        if self.hole > 0 {
            sys::set_length(&self.file, self.size).store(what)?;
        }
        sys::set_times(&self.file, BLOB_TIME).store(what)?;
        sys::set_mode(&self.file, BLOB_MODE).store(what)?;
        if publication.store.is_durable() {
            sys::begin_write_out(&self.file);
        }
        let staged = &publication.staging.blobs;
        match sys::rename_new(staged, &self.name, staged, digest.to_string()) {
            Ok(()) => {}
            // Another file of the same bytes was faster.
            Err(Errno::EXIST) => return sys::unlink(staged, &self.name).store(what),
            Err(errno) => return Err(Cause::Store(what(), errno)),
        }
        publication.staged().insert(
            digest,
            Staged {
                size: self.size,
                pinned: false,
            },
        );
        Ok(())
    }

    /// Gives the blob up.
    pub(crate) fn abandon(self) {
        let _ = sys::unlink(&self.publication.staging.blobs, &self.name);
    }
}

/// Whether all bytes are zero: the first is, and each equals the one before.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

/// The shortest run of zeros that becomes a hole.
const HOLE_BYTES: usize = 64 * 1024;

//! One walk over a tree that others may be changing: by descriptor, without recursion.

use std::os::fd::BorrowedFd;

use crate::error::Result;
use crate::sys::{self, Errno, Stat};
use crate::tree::{Folders, join};

/// What a walk asks and tells on its way.
pub(crate) trait Visitor {
    /// A folder was opened; its entries come next.
    fn enter(&mut self, path: &[u8], folder: BorrowedFd<'_>) -> Result<()>;

    /// An entry. Whether to go into it, where it is a folder.
    fn entry(&mut self, at: &At<'_>, stat: &Stat) -> Result<bool>;

    /// An entry or a folder could not be looked at.
    fn closed(&mut self, path: &[u8], errno: Errno) -> Result<()>;
}

/// Where an entry stands.
#[derive(Debug)]
pub(crate) struct At<'a> {
    pub(crate) folder: BorrowedFd<'a>,
    pub(crate) name: &'a [u8],
    pub(crate) path: &'a [u8],
}

/// Walks everything below `root`, parents before what stands in them, in byte order of the
/// names of each folder. Mounts are not entered; a folder that goes meanwhile is passed over.
pub(crate) fn walk(root: BorrowedFd<'_>, visitor: &mut impl Visitor) -> Result<()> {
    let mut folders = Folders::new(root);
    // Depth is on the heap: what waits is the folders not yet opened.
    let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let folder = match folders.open(&path) {
            Ok(folder) => folder,
            Err(errno) => {
                visitor.closed(&path, errno)?;
                continue;
            }
        };
        visitor.enter(&path, folder)?;
        // The root is the caller's descriptor and may have been listed before.
        let names = if path.is_empty() {
            sys::list(folder)
        } else {
            sys::list_once(folder)
        };
        let mut names = match names {
            Ok(names) => names,
            Err(errno) => {
                visitor.closed(&path, errno)?;
                continue;
            }
        };
        names.sort_unstable();
        let begin = waiting.len();
        for name in names {
            let below = join(&path, &name);
            let stat = match sys::stat_at(folder, &name) {
                Ok(stat) => stat,
                // Gone since the listing.
                Err(Errno::NOENT) => continue,
                Err(errno) => {
                    visitor.closed(&below, errno)?;
                    continue;
                }
            };
            let at = At {
                folder,
                name: &name,
                path: &below,
            };
            if visitor.entry(&at, &stat)? {
                waiting.push(below);
            }
        }
        waiting[begin..].reverse();
    }
    Ok(())
}

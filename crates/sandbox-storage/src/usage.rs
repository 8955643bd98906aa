//! How much there is, in short.

use sandbox_core::Result;
use serde::Serialize;

use crate::error::Context as _;
use crate::store::Store;
use crate::sys::{self, Errno, Open};
use crate::{record, template};

/// What a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usage {
    /// How many templates there are.
    pub templates: u64,
    /// How many sessions there are.
    pub sessions: u64,
    /// How many blobs the templates share.
    pub blobs: u64,
    /// The bytes of the blobs. Sessions come on top.
    pub blob_bytes: u64,
    /// What is free on the disk, in bytes.
    pub free_bytes: u64,
}

impl Store {
    /// Counts templates, sessions and blobs. Takes a look at each blob, at no session's files.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn usage(&self) -> Result<Usage> {
        let store = &*self.0;
        let _acting = store.act()?;
        let what = || "counting blobs".to_owned();
        let mut usage = Usage {
            templates: template::keys(store)?.len() as u64,
            sessions: record::ids(store)?.len() as u64,
            free_bytes: sys::disk(&store.root).store(what)?.free_bytes,
            ..Usage::default()
        };
        for folder in sys::list(&store.blobs).store(what)? {
            let folder = sys::open(&store.blobs, &folder, Open::Folder).store(what)?;
            for name in sys::list_once(&folder).store(what)? {
                match sys::stat_at(&folder, &name) {
                    Ok(stat) => {
                        usage.blobs += 1;
                        usage.blob_bytes = usage.blob_bytes.saturating_add(stat.size);
                    }
                    // Collected since the listing.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno).store(what).map_err(Into::into),
                }
            }
        }
        Ok(usage)
    }
}

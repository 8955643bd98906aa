//! Taking a template away.

use std::time::SystemTime;

use sandbox_core::TemplateKey;

use super::seconds;
use crate::error::{Cause, Context as _, Result};
use crate::store::{Inner, Store, random_name};
use crate::sys::{self, Errno, Lock, Open};
use crate::{layout, reap};

impl Store {
    /// Removes a template that no session was made from.
    ///
    /// Its blobs go with the next [`gc`](Self::gc). That it is not there is no error.
    ///
    /// # Errors
    /// `SANDBOX_BUSY` where a session stands on it, naming one, or is being made.
    pub fn remove_template(&self, key: &TemplateKey) -> sandbox_core::Result<()> {
        let store = &*self.0;
        let _acting = store.act()?;
        let _alone = store.take_lock(layout::LOCK_STORE, Lock::Alone)?;
        retire(store, key, None, || {
            let standing = crate::record::read_all(store)?;
            match standing
                .iter()
                .find(|(_, record)| record.template_key == *key)
            {
                None => Ok(false),
                Some((id, _)) => Err(Cause::Busy {
                    message: format!("the session {id} was made from the template {key}"),
                    hint: Some(format!("remove it first: sandbox session rm {id}")),
                }),
            }
        })?;
        reap::trash(store, None)?;
        Ok(())
    }
}

/// Takes a template out of sight, unless it is in use, was used since `used_before`, or
/// something names it. The caller holds the store's lock alone.
pub(crate) fn retire(
    store: &Inner,
    key: &TemplateKey,
    used_before: Option<SystemTime>,
    mut is_named: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let what = || format!("retiring the template {key}");
    if is_named()? {
        return Ok(false);
    }
    let name = layout::template(key);
    let folder = match sys::open(&store.templates, &name, Open::Folder) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(Cause::Store(what(), errno)),
    };
    let file = sys::lock_file(&folder, layout::USE, layout::RECORD_MODE).store(what)?;
    match sys::lock_alone_soon(&file) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) if used_before.is_some() => return Ok(false),
        Err(Errno::WOULDBLOCK) => {
            return Err(Cause::Busy {
                message: format!("a session is being made from the template {key}"),
                hint: None,
            });
        }
        Err(errno) => return Err(Cause::Store(what(), errno)),
    }
    if let Some(used_before) = used_before {
        let used = sys::stat(&file).store(what)?.modified;
        if used.seconds >= seconds(used_before) {
            return Ok(false);
        }
    }
    // Asked again under the lock: a session that was being made until now is visible now.
    if is_named()? {
        return Ok(false);
    }
    sys::rename_new(&store.templates, &name, &store.trash, random_name()?).store(what)?;
    Ok(true)
}

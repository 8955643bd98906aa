//! Collection: what nothing leads to any more goes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandbox_core::{Result, SessionId, TemplateKey, shown};
use serde::Serialize;

use crate::digest::Digest;
use crate::error::{Cause, Context as _};
use crate::layout;
use crate::manifest::Node;
use crate::reap;
use crate::record;
use crate::reference::{self, RefName};
use crate::session;
use crate::store::{Inner, Store};
use crate::sys::{self, Errno, Lock, Open};
use crate::template::{self, Template, seconds};

/// What a collection takes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GcOptions {
    /// The moment that counts as now.
    pub now: SystemTime,
    /// Templates used, and blobs made or found again, within this time stay: somebody may
    /// be about to use them. 10 minutes.
    pub grace: Duration,
}

impl Default for GcOptions {
    fn default() -> Self {
        Self {
            now: SystemTime::now(),
            grace: Duration::from_secs(10 * 60),
        }
    }
}

/// What a collection took.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct GcReport {
    /// Sessions past their expiry that nobody owned.
    pub sessions: Vec<SessionId>,
    /// Refs past their expiry.
    pub refs: Vec<String>,
    /// Templates that no session and no ref named.
    pub templates: Vec<TemplateKey>,
    /// How many blobs no template had.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Staging folders and leases of owners that died.
    pub leftovers: u64,
}

impl Store {
    /// Removes expired sessions that nobody owns, refs past their time, templates that
    /// neither session nor ref names, blobs of no template, and what the dead left.
    ///
    /// Everything is read before anything is removed: a record or manifest that can't be
    /// read is never taken for "refers to nothing". What is being published or created
    /// meanwhile is safe.
    ///
    /// # Errors
    /// `SANDBOX_BUSY` where another collection runs; `SANDBOX_STORAGE`, naming the file,
    /// where a record or manifest can't be read: nothing was removed then.
    pub fn gc(&self, options: &GcOptions) -> Result<GcReport> {
        let store = &self.0;
        let _acting = store.act()?;
        Ok(gc(store, options)?)
    }
}

fn gc(store: &Arc<Inner>, options: &GcOptions) -> crate::error::Result<GcReport> {
    let what = || "taking the collector's lock".to_owned();
    let running = sys::lock_file(&store.lock, layout::LOCK_GC, layout::RECORD_MODE).store(what)?;
    match sys::lock_alone_soon(&running) {
        Err(Errno::WOULDBLOCK) => {
            return Err(Cause::Busy {
                message: "another collection of this store is running".to_owned(),
                hint: Some("wait for it to end".to_owned()),
            });
        }
        locked => locked.store(what)?,
    }
    let mut report = GcReport::default();
    // A first look, before anything goes: damage stops the run here.
    let sessions = record::read_all(store)?;
    let refs = reference::read_all(store)?;
    mark(store)?;

    let now = seconds(options.now);
    for (id, record) in &sessions {
        if record.is_expired(now) && session::expire(store, id, now)? {
            report.sessions.push(*id);
        }
    }
    for (name, reference) in &refs {
        if reference.expires.is_some_and(|expires| expires <= now) && expire_ref(store, name, now)?
        {
            report.refs.push(name.to_string());
        }
    }
    report.leftovers = (reap::staging_of_the_dead(store)? + reap::orphaned_leases(store)?) as u64;
    {
        // Publishers wait from here: none can be between naming its blobs and its template.
        let _alone = store.take_lock(layout::LOCK_STORE, Lock::Alone)?;
        let before = options
            .now
            .checked_sub(options.grace)
            .unwrap_or(SystemTime::UNIX_EPOCH);
        retire_templates(store, before, &mut report)?;
        sweep_blobs(store, &mark(store)?, before, &mut report)?;
    }
    reap::trash(store, None)?;
    Ok(report)
}

/// Removes a ref that expired, under the lock that set_ref shares.
fn expire_ref(store: &Inner, name: &RefName, now: i64) -> crate::error::Result<bool> {
    let _alone = store.take_lock(layout::LOCK_STORE, Lock::Alone)?;
    let expired = reference::read_all(store)?
        .get(name)
        .and_then(|reference| reference.expires)
        .is_some_and(|expires| expires <= now);
    if expired {
        reference::remove(store, name)?;
    }
    Ok(expired)
}

/// The digests that the manifests of all templates name.
fn mark(store: &Inner) -> crate::error::Result<HashSet<Digest>> {
    let mut marked = HashSet::new();
    for key in template::keys(store)? {
        let template = match Template::read(store, &key) {
            // Retired since the listing, by `remove_template`.
            Err(Cause::NotFound(_)) => continue,
            template => template?,
        };
        for entry in template.manifest.entries() {
            if let Node::File { digest, .. } = entry.node {
                marked.insert(digest);
            }
        }
    }
    Ok(marked)
}

fn retire_templates(
    store: &Inner,
    before: SystemTime,
    report: &mut GcReport,
) -> crate::error::Result<()> {
    let mut named = Named::default();
    named.keys.extend(
        reference::read_all(store)?
            .into_values()
            .map(|reference| reference.key),
    );
    for key in template::keys(store)? {
        if template::retire(store, &key, Some(before), || named.is_named(store, &key))? {
            report.templates.push(key);
        }
    }
    Ok(())
}

/// The templates that refs and sessions name; sessions appear while it runs.
#[derive(Default)]
struct Named {
    keys: HashSet<TemplateKey>,
    seen: HashSet<SessionId>,
}

impl Named {
    fn is_named(&mut self, store: &Inner, key: &TemplateKey) -> crate::error::Result<bool> {
        for id in record::ids(store)? {
            if self.seen.contains(&id) {
                continue;
            }
            if let Some(record) = record::read(store, &id)? {
                self.keys.insert(record.template_key);
            }
            self.seen.insert(id);
        }
        Ok(self.keys.contains(key))
    }
}

fn sweep_blobs(
    store: &Inner,
    marked: &HashSet<Digest>,
    before: SystemTime,
    report: &mut GcReport,
) -> crate::error::Result<()> {
    let what = || "sweeping blobs/".to_owned();
    for folder_name in sys::list(&store.blobs).store(what)? {
        let folder = sys::open(&store.blobs, &folder_name, Open::Folder)
            .store(|| format!("opening blobs/{}", shown(&folder_name)))?;
        for name in sys::list(&folder).store(what)? {
            let Some(digest) = digest_of(&folder_name, &name) else {
                continue;
            };
            if marked.contains(&digest) {
                continue;
            }
            let stat = sys::stat_at(&folder, &name).store(what)?;
            // A pin bumps the time of change, and so renews the grace.
            if stat.changed.seconds >= seconds(before) {
                continue;
            }
            sys::unlink(&folder, &name).store(what)?;
            report.blobs += 1;
            report.bytes = report.bytes.saturating_add(stat.size);
        }
    }
    if report.blobs > 0 {
        // What was found before may be gone: the next use looks again.
        store
            .verified
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clear();
    }
    Ok(())
}

/// The digest that a blob's folder and name spell; other names are nobody's.
fn digest_of(folder: &[u8], name: &[u8]) -> Option<Digest> {
    std::str::from_utf8(&[folder, name].concat())
        .ok()?
        .parse()
        .ok()
}

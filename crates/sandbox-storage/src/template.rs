//! Templates: published trees, valid by what they hold and not by being there.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_core::{BackendName, EntryName, Prewarmed, TemplateId, TemplateKey};
use serde::{Deserialize, Serialize};

use crate::digest::{TreeId, template_key};
use crate::error::{Cause, Context as _, Result};
use crate::layout::{self, MAX_MANIFEST_BYTES};
use crate::manifest::{Manifest, Node};
use crate::publish::{Publication, is_whole};
use crate::store::{Inner, Store, random_name};
use crate::sys::{self, Errno, Lock, Open};
use crate::{json, reap};

/// What a template was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Entries that the caller gave as bytes.
    Bytes,
    /// A folder of the host.
    Folder {
        /// Its real path at that time.
        path: EntryName,
    },
}

/// A template as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TemplateInfo {
    /// Its name by content.
    pub template_key: TemplateKey,
    /// What the caller called it.
    pub template_id: TemplateId,
    /// The backend it is for.
    pub backend: BackendName,
    /// The exact tree, times of change included.
    pub tree_id: TreeId,
    /// How many files, folders and links it has.
    pub entries: u64,
    /// The bytes of its files.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What it was made from.
    pub source: Source,
    /// The named refs that lead to it.
    pub refs: Vec<String>,
}

/// The record in `meta.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Meta {
    pub(crate) format: u32,
    pub(crate) template_id: TemplateId,
    pub(crate) backend: BackendName,
    pub(crate) tree_id: TreeId,
    /// The template that this one is a snapshot over.
    pub(crate) parent: Option<TemplateKey>,
    pub(crate) policies: Policies,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) symlinks: u64,
    pub(crate) bytes: u64,
    pub(crate) created: u64,
    pub(crate) source: Source,
}

/// How the tree was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Policies {
    /// Whether ignore rules left something out.
    pub(crate) respect_ignore: bool,
    /// How many patterns of the caller's left something out.
    pub(crate) excludes: u64,
}

/// The number of the records of templates and sessions that this version writes.
pub(crate) const RECORD_FORMAT: u32 = 1;

/// A template that was read and found to be what its name says.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) key: TemplateKey,
    pub(crate) folder: OwnedFd,
    pub(crate) meta: Meta,
    pub(crate) manifest: Manifest,
}

impl Template {
    /// Reads and checks a template: its record, its manifest against the record's tree id,
    /// and the key recomputed from both against its name.
    pub(crate) fn read(store: &Inner, key: &TemplateKey) -> Result<Self> {
        let name = layout::template(key);
        let label = format!("template {key}");
        let folder = match sys::open(&store.templates, &name, Open::Folder) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => {
                return Err(Cause::NotFound(format!("there is no template {key}")));
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(Cause::damaged(label, "it is no folder"));
            }
            Err(errno) => return Err(Cause::Store(format!("opening {label}"), errno)),
        };
        match Self::check(key, &folder, &label) {
            Ok((meta, manifest)) => Ok(Self {
                key: *key,
                folder,
                meta,
                manifest,
            }),
            // A collector took it away while it was read: not damaged, just gone.
            Err(_) if !is_in_place(store, &name, &folder)? => Err(Cause::NotFound(format!(
                "there is no template {key} any more"
            ))),
            Err(cause) => Err(cause),
        }
    }

    fn check(key: &TemplateKey, folder: &OwnedFd, label: &str) -> Result<(Meta, Manifest)> {
        let meta = read_meta(folder, label)?;
        let manifest_label = format!("the manifest of {label}");
        let bytes = json::read_bounded(
            folder,
            layout::MANIFEST,
            &manifest_label,
            MAX_MANIFEST_BYTES,
        )?
        .ok_or_else(|| Cause::damaged(&manifest_label, "it is missing"))?;
        let tree_id = Manifest::tree_id(&bytes);
        if tree_id != meta.tree_id {
            return Err(Cause::damaged(
                manifest_label,
                format!("its hash is {tree_id}, the record says {}", meta.tree_id),
            ));
        }
        let manifest =
            Manifest::decode(&bytes).map_err(|why| Cause::damaged(manifest_label, why))?;
        let actual = template_key(&meta.backend, &meta.template_id, &manifest.content_root());
        if actual != *key {
            return Err(Cause::damaged(
                label,
                format!("its content is that of {actual}"),
            ));
        }
        Ok((meta, manifest))
    }

    /// Takes the template into use: it is not retired while the descriptor lives.
    pub(crate) fn take_use(&self, store: &Inner) -> Result<OwnedFd> {
        let what = || format!("taking the template {} into use", self.key);
        let file = sys::lock_file(&self.folder, layout::USE, layout::RECORD_MODE).store(what)?;
        sys::lock(&file, Lock::Share).store(what)?;
        sys::touch(&file).store(what)?;
        // A collector may have retired it between the look and the lock.
        if is_in_place(store, &layout::template(&self.key), &self.folder)? {
            return Ok(file);
        }
        Err(Cause::NotFound(format!(
            "the template {} was just collected: prewarm it again",
            self.key
        )))
    }

    /// Looks for all its blobs, with their lengths: once an open store, then remembered.
    pub(crate) fn check_blobs(&self, store: &Inner) -> Result<()> {
        let verified = || {
            store
                .verified
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if verified().contains(&self.key) {
            return Ok(());
        }
        for entry in self.manifest.entries() {
            let Node::File { digest, size, .. } = &entry.node else {
                continue;
            };
            let label = || format!("the blob {digest} of template {}", self.key);
            let (folder, name) = layout::blob(digest);
            match sys::stat_at(&store.blobs, format!("{folder}/{name}")) {
                Ok(stat) if is_whole(&stat, *size) => {}
                Ok(_) => {
                    return Err(Cause::damaged(
                        label(),
                        "it has another length or was written to",
                    ));
                }
                Err(Errno::NOENT) => return Err(Cause::damaged(label(), "it is missing")),
                Err(errno) => return Err(Cause::Store(format!("looking at {}", label()), errno)),
            }
        }
        verified().insert(self.key);
        Ok(())
    }
}

/// Whether a template's folder still stands under its name.
fn is_in_place(store: &Inner, name: &str, folder: &OwnedFd) -> Result<bool> {
    let what = || format!("looking at template {name}");
    let here = sys::stat(folder).store(what)?.identity();
    match sys::stat_at(&store.templates, name) {
        Ok(stat) => Ok(stat.identity() == here),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(Cause::Store(what(), errno)),
    }
}

/// Reads the record of a template's folder.
pub(crate) fn read_meta(folder: &OwnedFd, label: &str) -> Result<Meta> {
    let meta_label = format!("the record of {label}");
    let meta: Meta = json::read(folder, layout::META, &meta_label)?
        .ok_or_else(|| Cause::damaged(&meta_label, "it is missing"))?;
    if meta.format == RECORD_FORMAT {
        Ok(meta)
    } else {
        Err(Cause::damaged(
            meta_label,
            format!(
                "its format is {}, this version reads {RECORD_FORMAT}",
                meta.format
            ),
        ))
    }
}

/// Makes a template of a manifest whose blobs are all staged.
pub(crate) fn publish(
    store: &Arc<Inner>,
    publication: &Publication,
    backend: &BackendName,
    id: &TemplateId,
    manifest: &Manifest,
    (source, policies): (Source, Policies),
) -> Result<Prewarmed> {
    let key = template_key(backend, id, &manifest.content_root());
    let encoded = manifest.encode();
    let count = |kind: fn(&Node) -> bool| {
        manifest
            .entries()
            .iter()
            .filter(|entry| kind(&entry.node))
            .count() as u64
    };
    let meta = Meta {
        format: RECORD_FORMAT,
        template_id: id.clone(),
        backend: backend.clone(),
        tree_id: Manifest::tree_id(&encoded),
        parent: None,
        policies,
        files: count(|node| matches!(node, Node::File { .. })),
        directories: count(|node| matches!(node, Node::Directory)),
        symlinks: count(|node| matches!(node, Node::Symlink { .. })),
        bytes: manifest.total_bytes(),
        created: now(),
        source,
    };
    let durable = store.is_durable();
    let out = &publication.staging.out;
    json::write_new(out, layout::MANIFEST, &encoded, durable)?;
    let meta = json::to_bytes(&meta, layout::META)?;
    json::write_new(out, layout::META, &meta, durable)?;
    json::write_new(out, layout::USE, b"", false)?;
    if durable {
        sys::sync(out).store(|| "syncing a template".to_owned())?;
    }
    publication.sync()?;
    for _ in 0..MAX_TRIES {
        if let Some(reused) = show(store, publication, &key)? {
            return Ok(Prewarmed {
                template_key: key,
                reused,
            });
        }
        quarantine(store, &key)?;
    }
    Err(Cause::damaged(
        format!("template {key}"),
        "it is damaged again each time that it is replaced",
    ))
}

/// How often a damaged template is put aside before the disk is blamed.
const MAX_TRIES: u32 = 3;

/// Names the blobs and the template under the shared lock. Whether it was there already;
/// none where what is there is damaged.
fn show(store: &Inner, publication: &Publication, key: &TemplateKey) -> Result<Option<bool>> {
    let what = || format!("publishing the template {key}");
    let _shared = store.take_lock(layout::LOCK_STORE, Lock::Share)?;
    publication.name_blobs()?;
    let name = layout::template(key);
    match publication.staging.publish(&store.templates, &name) {
        Ok(()) => {
            if store.is_durable() {
                sys::sync(&store.templates).store(what)?;
            }
            return Ok(Some(false));
        }
        Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
        Err(errno) => return Err(Cause::Store(what(), errno)),
    }
    match Template::read(store, key) {
        Ok(template) => {
            let file =
                sys::lock_file(&template.folder, layout::USE, layout::RECORD_MODE).store(what)?;
            sys::touch(&file).store(what)?;
            Ok(Some(true))
        }
        Err(Cause::Damaged { .. } | Cause::NotFound(_)) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Puts a template aside that is not what its name says, unless someone healed it since.
fn quarantine(store: &Inner, key: &TemplateKey) -> Result<()> {
    let what = || format!("putting the damaged template {key} aside");
    let _alone = store.take_lock(layout::LOCK_STORE, Lock::Alone)?;
    match Template::read(store, key) {
        Ok(_) | Err(Cause::NotFound(_)) => return Ok(()),
        Err(Cause::Damaged { .. }) => {}
        Err(cause) => return Err(cause),
    }
    let aside = format!("template-{key}-{}", random_name()?);
    sys::rename_new(
        &store.templates,
        layout::template(key),
        &store.quarantine,
        aside,
    )
    .store(what)
}

impl Store {
    /// All templates, in the order of their keys, without their content being read.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE` where a record can't be read.
    pub fn list_templates(&self) -> sandbox_core::Result<Vec<TemplateInfo>> {
        let store = &*self.0;
        let _acting = store.act()?;
        let refs = crate::reference::read_all(store)?;
        let mut templates = Vec::new();
        for key in keys(store)? {
            let label = format!("template {key}");
            let folder = match sys::open(&store.templates, layout::template(&key), Open::Folder) {
                Ok(folder) => folder,
                // Collected since the listing.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(Cause::Store(format!("opening {label}"), errno).into()),
            };
            let meta = read_meta(&folder, &label)?;
            templates.push(TemplateInfo {
                template_key: key,
                template_id: meta.template_id,
                backend: meta.backend,
                tree_id: meta.tree_id,
                entries: meta.files + meta.directories + meta.symlinks,
                bytes: meta.bytes,
                created: meta.created,
                source: meta.source,
                refs: refs
                    .iter()
                    .filter(|(_, reference)| reference.key == key)
                    .map(|(name, _)| name.to_string())
                    .collect(),
            });
        }
        Ok(templates)
    }

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
    is_named: impl FnOnce() -> Result<bool>,
) -> Result<bool> {
    let what = || format!("retiring the template {key}");
    let name = layout::template(key);
    let folder = match sys::open(&store.templates, &name, Open::Folder) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(Cause::Store(what(), errno)),
    };
    let file = sys::lock_file(&folder, layout::USE, layout::RECORD_MODE).store(what)?;
    match sys::lock(&file, Lock::TryAlone) {
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
    // Asked under the lock: a session that was being made until now is visible now.
    if is_named()? {
        return Ok(false);
    }
    sys::rename_new(&store.templates, &name, &store.trash, random_name()?).store(what)?;
    Ok(true)
}

/// The keys of all templates, sorted; other names in the folder are nobody's.
pub(crate) fn keys(store: &Inner) -> Result<Vec<TemplateKey>> {
    let names = sys::list(&store.templates).store(|| "listing templates/".to_owned())?;
    let mut keys: Vec<TemplateKey> = names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok())
        .collect();
    keys.sort_unstable();
    Ok(keys)
}

/// Now, in seconds since 1970.
pub(crate) fn now() -> u64 {
    u64::try_from(seconds(SystemTime::now())).unwrap_or(0)
}

/// A moment in whole seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |s| -s),
    }
}

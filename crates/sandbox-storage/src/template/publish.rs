//! Showing a template: whole, or not at all.

use std::sync::Arc;

use sandbox_core::{BackendName, Prewarmed, TemplateId, TemplateKey};

use super::{Meta, Policies, RECORD_FORMAT, Source, Template, now};
use crate::digest::template_key;
use crate::error::{Cause, Context as _, Result};
use crate::manifest::{Manifest, Node};
use crate::publish::{Publication, Sync};
use crate::store::{Inner, random_name};
use crate::sys::{self, Errno, Lock};
use crate::{json, layout};

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
    publication.sync()?;
    // The common case of a run: the template is there, and nothing has to reach the disk.
    if reuse(store, publication, &key)? {
        return Ok(Prewarmed {
            template_key: key,
            reused: true,
        });
    }
    let durable = store.is_durable();
    let out = &publication.staging.out;
    json::write_new(out, layout::MANIFEST, &encoded, durable)?;
    let meta = json::to_bytes(&meta, layout::META)?;
    json::write_new(out, layout::META, &meta, durable)?;
    json::write_new(out, layout::USE, b"", false)?;
    if durable {
        sys::sync(out).store(|| "syncing a template".to_owned())?;
    }
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

/// Whether the template is there, whole; blobs that it had lost come back.
fn reuse(store: &Inner, publication: &Publication, key: &TemplateKey) -> Result<bool> {
    let _shared = store.take_lock(layout::LOCK_STORE, Lock::Share)?;
    match Template::read(store, key) {
        Ok(template) => {
            publication.name_blobs(Sync::Changed)?;
            template.touch_use()?;
            Ok(true)
        }
        Err(Cause::Damaged { .. } | Cause::NotFound(_)) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Names the blobs and the template under the shared lock. Whether it was there already;
/// none where what is there is damaged.
fn show(store: &Inner, publication: &Publication, key: &TemplateKey) -> Result<Option<bool>> {
    let what = || format!("publishing the template {key}");
    let _shared = store.take_lock(layout::LOCK_STORE, Lock::Share)?;
    publication.name_blobs(Sync::All)?;
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
            template.touch_use()?;
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

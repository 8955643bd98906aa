//! Named refs: what keeps a template that no session stands on.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use sandbox_core::{Result, SandboxError, TemplateKey, shown};
use serde::{Deserialize, Serialize};

use crate::digest::FieldHasher;
use crate::error::{Cause, Context as _};
use crate::layout;
use crate::staging::Staging;
use crate::store::{Inner, Store};
use crate::sys::{self, Errno, Lock};
use crate::template::{RECORD_FORMAT, seconds};
use crate::{json, template};

/// The name of a ref: 1 to 100 of `a-z`, `0-9`, `.`, `_` and `-`, not beginning with a dot.
///
/// ```
/// use sandbox_storage::RefName;
///
/// assert!(RefName::new("rust-1.95").is_ok());
/// assert!(RefName::new("../up").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RefName(String);

impl RefName {
    /// Checks the name.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where it has other characters or another length.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let fine = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
        if (1..=100).contains(&name.len()) && name.bytes().all(fine) && !name.starts_with('.') {
            return Ok(Self(name));
        }
        Err(Cause::Invalid(format!(
            "the ref name {} is refused: 1 to 100 of a-z, 0-9, `.`, `_` and `-` are accepted, no dot first",
            shown(&name)
        ))
        .into())
    }

    /// The one ref of a project folder, which each run of it replaces: `run-` and a hash
    /// of the folder's real path.
    #[must_use]
    pub fn for_folder(real_path: &Path) -> Self {
        let mut hasher = FieldHasher::new(b"sbx-folder-v1");
        hasher.field(real_path.as_os_str().as_bytes());
        let digits: String = hasher.finish()[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self(format!("run-{digits}"))
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for RefName {
    type Err = SandboxError;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

/// The record in `refs/<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    pub(crate) format: u32,
    pub(crate) key: TemplateKey,
    /// In seconds since 1970; none is never.
    pub(crate) expires: Option<i64>,
}

impl Store {
    /// Points a ref at a template, in place of what it named before.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where there is no such template, `SANDBOX_STORAGE`.
    pub fn set_ref(
        &self,
        name: &RefName,
        key: &TemplateKey,
        expires_in: Option<Duration>,
    ) -> Result<()> {
        let store = &self.0;
        let _acting = store.act()?;
        let record = Reference {
            format: RECORD_FORMAT,
            key: *key,
            expires: expires_in.map(|after| seconds(SystemTime::now() + after)),
        };
        let bytes = json::to_bytes(&record, "a ref")?;
        let staging = Staging::new(store)?;
        json::write_new(&staging.out, &name.0, &bytes, store.is_durable())?;
        // No collector runs between the look at the template and the ref that keeps it.
        let _shared = store.take_lock(layout::LOCK_STORE, Lock::Share)?;
        let what = || format!("writing the ref {name}");
        if sys::stat_at(&store.templates, layout::template(key)) == Err(Errno::NOENT) {
            return Err(Cause::NotFound(format!("there is no template {key}")).into());
        }
        sys::rename_over(&staging.out, &name.0, &store.refs, &name.0).store(what)?;
        if store.is_durable() {
            sys::sync(&store.refs).store(what)?;
        }
        Ok(())
    }

    /// The template that a ref names, if there is such a ref.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE` where its record can't be read.
    pub fn read_ref(&self, name: &RefName) -> Result<Option<TemplateKey>> {
        let _acting = self.0.act()?;
        Ok(read(&self.0, name)?.map(|reference| reference.key))
    }

    /// Removes a ref; that it is not there is no error.
    ///
    /// # Errors
    /// `SANDBOX_STORAGE`.
    pub fn remove_ref(&self, name: &RefName) -> Result<()> {
        let _acting = self.0.act()?;
        Ok(remove(&self.0, name)?)
    }
}

pub(crate) fn remove(store: &Inner, name: &RefName) -> crate::error::Result<()> {
    match sys::unlink(&store.refs, &name.0) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Cause::Store(format!("removing the ref {name}"), errno)),
    }
}

fn read(store: &Inner, name: &RefName) -> crate::error::Result<Option<Reference>> {
    let label = format!("the ref {name}");
    let reference: Option<Reference> = json::read(&store.refs, &name.0, &label)?;
    match reference {
        Some(reference) if reference.format != template::RECORD_FORMAT => Err(Cause::damaged(
            label,
            format!("its format is {}", reference.format),
        )),
        reference => Ok(reference),
    }
}

/// All refs by name; names that no ref can have are nobody's.
pub(crate) fn read_all(store: &Inner) -> crate::error::Result<BTreeMap<RefName, Reference>> {
    let mut refs = BTreeMap::new();
    for name in sys::list(&store.refs).store(|| "listing refs/".to_owned())? {
        let Some(name) = String::from_utf8(name)
            .ok()
            .and_then(|name| RefName::new(name).ok())
        else {
            continue;
        };
        if let Some(reference) = read(store, &name)? {
            refs.insert(name, reference);
        }
    }
    Ok(refs)
}

//! A store in a temporary folder, and trees as values.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sandbox_core::{
    BackendName, ErrorCode, SandboxError, TemplateFile, TemplateFiles, TemplateId, TemplateKey,
    WorkspacePath,
};
use sandbox_storage::{
    HostFolder, IngestOptions, Ingested, Options, Session, SessionOptions, Store,
};
use tempfile::TempDir;

/// A store that goes with the test.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) folder: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(&folder.path().join("state")).unwrap();
        Self { store, folder }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.store.root().to_owned()
    }

    /// A folder beside the store.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn prewarm(&self, files: &[(&str, &str)]) -> TemplateKey {
        let prewarmed = self
            .store
            .prewarm(&backend(), &id("t"), &text_files(files))
            .unwrap();
        prewarmed.template_key
    }

    pub(crate) fn create(&self, key: &TemplateKey) -> Session {
        self.store
            .create(&backend(), key, &SessionOptions::default())
            .unwrap()
    }

    pub(crate) fn ingest(&self, folder: &Path) -> Ingested {
        self.ingest_with(folder, &IngestOptions::default()).unwrap()
    }

    pub(crate) fn ingest_with(
        &self,
        folder: &Path,
        options: &IngestOptions,
    ) -> Result<Ingested, SandboxError> {
        let folder = HostFolder::open(folder)?;
        self.store.ingest(&backend(), &id("t"), &folder, options)
    }

    /// What stands in the store, contents included, times left out.
    pub(crate) fn snapshot(&self) -> Tree {
        tree(&self.root())
    }

    /// The names in one of the store's folders.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        names(&self.root().join(folder))
    }

    /// Asserts that nothing but templates and blobs is there.
    pub(crate) fn assert_no_leftovers(&self) {
        for folder in ["sessions", "leases", "staging", "trash"] {
            assert_eq!(self.names(folder), Vec::<String>::new(), "{folder}");
        }
    }
}

/// Opens a store that a small test disk can hold.
pub(crate) fn open(path: &Path) -> Result<Store, SandboxError> {
    let mut options = Options::default();
    options.min_free = 0;
    Store::open(path, &options)
}

pub(crate) fn backend() -> BackendName {
    BackendName::new("b").unwrap()
}

pub(crate) fn id(name: &str) -> TemplateId {
    TemplateId::new(name).unwrap()
}

pub(crate) fn path(written: &str) -> WorkspacePath {
    WorkspacePath::parse(written).unwrap()
}

pub(crate) fn text_files(files: &[(&str, &str)]) -> TemplateFiles {
    let files = files
        .iter()
        .map(|(name, text)| TemplateFile::file(path(name), (*text).to_owned()))
        .collect();
    TemplateFiles::new(files).unwrap()
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What stands at a path: kind, nine mode bits, and content or target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Thing {
    Folder(u32),
    File(u32, Vec<u8>),
    Link(Vec<u8>),
    Other,
}

pub(crate) type Tree = BTreeMap<Vec<u8>, Thing>;

/// Reads a tree, links not followed, by path: for trees of sane depth that we may read.
pub(crate) fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        for entry in fs::read_dir(root.join(&below)).unwrap() {
            let below = below.join(entry.unwrap().file_name());
            let full = root.join(&below);
            let stat = full.symlink_metadata().unwrap();
            let mode = stat.mode() & 0o777;
            let thing = if stat.is_dir() {
                waiting.push(below.clone());
                Thing::Folder(mode)
            } else if stat.is_file() {
                Thing::File(mode, fs::read(&full).unwrap())
            } else if stat.is_symlink() {
                Thing::Link(fs::read_link(&full).unwrap().into_os_string().into_vec())
            } else {
                Thing::Other
            };
            tree.insert(below.into_os_string().into_vec(), thing);
        }
    }
    tree
}

/// The times of change of a tree, by path.
pub(crate) fn times(root: &Path) -> BTreeMap<Vec<u8>, (i64, i64)> {
    tree(root)
        .into_keys()
        .map(|path| {
            let stat = root
                .join(OsStr::from_bytes(&path))
                .symlink_metadata()
                .unwrap();
            (path, (stat.mtime(), stat.mtime_nsec()))
        })
        .collect()
}

pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Sets the time of change of an entry, a link itself.
pub(crate) fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = rustix::fs::Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(
        rustix::fs::CWD,
        path,
        &times,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
}

/// Binds a Unix socket in a folder whose path may be longer than such an address.
pub(crate) fn socket(folder: &Path, name: &str) -> std::os::unix::net::UnixListener {
    use std::os::fd::AsRawFd as _;
    let folder = fs::File::open(folder).unwrap();
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    std::os::unix::net::UnixListener::bind(path).unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
pub(crate) fn assert_code<T: std::fmt::Debug>(
    result: Result<T, SandboxError>,
    code: ErrorCode,
    says: &[&str],
) -> SandboxError {
    let error = result.unwrap_err();
    assert_eq!(error.code(), code, "{error:?}");
    for part in says {
        assert!(error.to_string().contains(part), "{part:?} in {error}");
    }
    error
}

/// The workspace of a session, by path.
pub(crate) fn workspace(session: &Session) -> PathBuf {
    session.path().join("workspace")
}

/// All blobs with their bytes, mode and time.
pub(crate) fn blobs(root: &Path) -> BTreeMap<Vec<u8>, (Thing, (i64, i64))> {
    let root = root.join("blobs");
    let times = times(&root);
    tree(&root)
        .into_iter()
        .filter(|(_, thing)| matches!(thing, Thing::File(..)))
        .map(|(path, thing)| {
            let time = times[&path];
            (path, (thing, time))
        })
        .collect()
}

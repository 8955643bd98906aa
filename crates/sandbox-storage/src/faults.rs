//! Every system call of every operation fails once, and is the last one once.
//!
//! The same store takes it all: after each fault it is opened again, looked over, cleaned,
//! and must be byte for byte what it was before (I13).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use sandbox_core::{
    BackendName, ErrorCode, Result, SandboxError, SavedState, TemplateFile, TemplateFiles,
    TemplateId, TemplateKey, WorkspacePath,
};
use tempfile::TempDir;

use crate::sys::fault::{Fault, Plan};
use crate::{
    Details, GcOptions, HostFolder, IngestOptions, Options, RefName, SessionOptions, Store,
};

/// What is done under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Open,
    Prewarm,
    PrewarmAgain,
    Ingest,
    Create,
    CreateDurable,
    Reconnect,
    Delete,
    Changes,
    SetRef,
    Gc,
}

impl Operation {
    const ALL: [Self; 11] = [
        Self::Open,
        Self::Prewarm,
        Self::PrewarmAgain,
        Self::Ingest,
        Self::Create,
        Self::CreateDurable,
        Self::Reconnect,
        Self::Delete,
        Self::Changes,
        Self::SetRef,
        Self::Gc,
    ];
}

/// A store with one template, one session and a ref, and a project beside it.
struct Bed {
    folder: TempDir,
    key: TemplateKey,
    saved: SavedState,
    before: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

fn backend() -> BackendName {
    BackendName::new("b").unwrap()
}

fn files(text: &str) -> TemplateFiles {
    let path = |written| WorkspacePath::parse(written).unwrap();
    TemplateFiles::new(vec![
        TemplateFile::file(path("a"), "shared"),
        TemplateFile::file(path("d/own"), text.to_owned()),
        TemplateFile::symlink(path("l"), "a"),
    ])
    .unwrap()
}

impl Bed {
    fn new() -> Self {
        // Thousands of small files come and go: memory is enough, where there is one.
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let bed = Self {
            key: TemplateKey::from_bytes([0; 32]),
            saved: SavedState {
                backend: backend(),
                session_id: sandbox_core::SessionId::from_bytes([0; 32]),
                template_key: TemplateKey::from_bytes([0; 32]),
            },
            before: BTreeMap::new(),
            folder,
        };
        let project = bed.project();
        fs::create_dir_all(project.join("d")).unwrap();
        fs::write(project.join("a"), "shared").unwrap();
        fs::write(project.join("d/small"), "small").unwrap();
        fs::hard_link(project.join("d/small"), project.join("linked")).unwrap();
        fs::write(project.join("large"), vec![7; (1 << 20) + 5]).unwrap();
        std::os::unix::fs::symlink("a", project.join("l")).unwrap();
        let store = bed.open().unwrap();
        let id = TemplateId::new("t").unwrap();
        let key = store
            .prewarm(&backend(), &id, &files("base"))
            .unwrap()
            .template_key;
        let options = SessionOptions {
            expires_in: None,
            ..Default::default()
        };
        let session = store.create(&backend(), &key, &options).unwrap();
        let saved = session.saved_state();
        session.release();
        store
            .set_ref(&RefName::new("mine").unwrap(), &key, None)
            .unwrap();
        let mut bed = Self { key, saved, ..bed };
        bed.before = contents(&bed.root());
        bed
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn open(&self) -> Result<Store> {
        open(&self.root())
    }

    /// Prepares what an operation works on.
    fn prepare(&self, operation: Operation) -> Prepared {
        let store = self.open().unwrap();
        // A day later it has expired.
        let options = SessionOptions {
            expires_in: Some(Duration::from_secs(60)),
            ..Default::default()
        };
        let session = match operation {
            Operation::Delete | Operation::Gc => {
                let session = store.create(&backend(), &self.key, &options).unwrap();
                let saved = session.saved_state();
                session.release();
                Some(saved)
            }
            _ => None,
        };
        if operation == Operation::Gc {
            let id = TemplateId::new("garbage").unwrap();
            store.prewarm(&backend(), &id, &files("garbage")).unwrap();
        }
        Prepared {
            root: self.root(),
            project: self.project(),
            key: self.key,
            saved: session.unwrap_or_else(|| self.saved.clone()),
        }
    }

    /// Opens the store again, looks it over, cleans it, and compares.
    fn check(&self, what: &str) {
        let store = self
            .open()
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let names = |folder: &str| -> Vec<String> {
            fs::read_dir(self.root().join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| !name.ends_with(".holder"))
                .collect()
        };
        assert_eq!(
            (names("staging"), names("trash")),
            (vec![], vec![]),
            "{what}"
        );
        let sessions = store.list_sessions().unwrap();
        assert_eq!(names("leases").len(), sessions.len(), "{what}");
        for info in sessions {
            let Details::Known { template_key, .. } = info.details else {
                panic!("{what}: {info:?}")
            };
            let saved = SavedState {
                backend: backend(),
                session_id: info.session_id,
                template_key,
            };
            let session = store.reconnect(&backend(), &saved, "check").unwrap();
            assert_eq!(session.changes().unwrap(), [], "{what}");
            if saved == self.saved {
                session.clear_dirty().unwrap();
            } else {
                session.delete().unwrap();
            }
        }
        // I4: whatever is visible is complete.
        for template in store.list_templates().unwrap() {
            let key = template.template_key;
            let session = store.create(&backend(), &key, &SessionOptions::default());
            session
                .unwrap_or_else(|error| panic!("{what}: {error:?}"))
                .delete()
                .unwrap();
        }
        store
            .set_ref(&RefName::new("mine").unwrap(), &self.key, None)
            .unwrap();
        store.gc(&everything()).unwrap();
        drop(store);
        let after = contents(&self.root());
        let differ: Vec<_> = after
            .iter()
            .filter(|(path, content)| self.before.get(*path) != Some(content))
            .map(|(path, _)| path)
            .chain(self.before.keys().filter(|path| !after.contains_key(*path)))
            .collect();
        assert!(differ.is_empty(), "{what}: {differ:?}");
    }
}

fn open(root: &Path) -> Result<Store> {
    let options = Options {
        min_free: 0,
        ..Default::default()
    };
    Store::open(root, &options)
}

fn everything() -> GcOptions {
    GcOptions {
        now: SystemTime::now() + Duration::from_secs(24 * 60 * 60),
        grace: Duration::ZERO,
    }
}

/// Files and folders with their modes and bytes.
fn contents(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let stat = path.symlink_metadata().unwrap();
        let mut bytes = Vec::new();
        if stat.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            // Which of the 256 folders of blobs exist is history, not content.
            if path.parent() == Some(&root.join("blobs")) {
                continue;
            }
        } else if stat.is_file() {
            bytes = fs::read(&path).unwrap();
        }
        found.insert(
            path.strip_prefix(root).unwrap().to_owned(),
            (stat.mode(), bytes),
        );
    }
    found
}

/// What an operation needs to know.
struct Prepared {
    root: PathBuf,
    project: PathBuf,
    key: TemplateKey,
    saved: SavedState,
}

impl Prepared {
    fn run(&self, operation: Operation, plan: &Arc<Plan>) -> Result<()> {
        if operation == Operation::Open {
            return plan.run(|| open(&self.root).map(drop));
        }
        let store = open(&self.root).unwrap();
        let id = TemplateId::new("t").unwrap();
        let options = SessionOptions {
            durable: operation == Operation::CreateDurable,
            ..Default::default()
        };
        plan.run(|| match operation {
            Operation::Open => Ok(()),
            Operation::Prewarm => store.prewarm(&backend(), &id, &files("new")).map(drop),
            Operation::PrewarmAgain => store.prewarm(&backend(), &id, &files("base")).map(drop),
            Operation::Ingest => {
                let folder = HostFolder::open(&self.project)?;
                let options = IngestOptions {
                    respect_ignore: true,
                    ..Default::default()
                };
                store.ingest(&backend(), &id, &folder, &options).map(drop)
            }
            Operation::Create | Operation::CreateDurable => {
                store.create(&backend(), &self.key, &options).map(drop)
            }
            Operation::Reconnect => {
                let session = store.reconnect(&backend(), &self.saved, "fault")?;
                session.mark_dirty()?;
                session.clear_dirty()
            }
            Operation::Delete => store.reconnect(&backend(), &self.saved, "fault")?.delete(),
            Operation::Changes => store
                .reconnect(&backend(), &self.saved, "fault")?
                .changes()
                .map(|changes| assert_eq!(changes, [])),
            Operation::SetRef => store.set_ref(&RefName::new("mine").unwrap(), &self.key, None),
            Operation::Gc => store.gc(&everything()).map(drop),
        })
    }
}

/// The calls that an operation makes.
fn count(bed: &Bed, operation: Operation) -> Vec<&'static str> {
    let mut log = Vec::new();
    // Twice: the first run makes folders of blobs that stay.
    for _ in 0..2 {
        let plan = Plan::new(usize::MAX, Fault::Die);
        bed.prepare(operation).run(operation, &plan).unwrap();
        bed.check("no fault");
        log = plan.log();
    }
    log
}

/// One test at a time: a lock of this process is shared by whatever another test is
/// starting, between fork and exec.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn assert_typed(result: Result<()>, what: &str) {
    if let Err(error) = result {
        let fits = |error: &SandboxError| {
            // A lock, a lease or a name that failed may look like a rival's.
            matches!(
                error.code(),
                ErrorCode::Storage | ErrorCode::Busy | ErrorCode::Invalid | ErrorCode::NotFound
            )
        };
        assert!(fits(&error), "{what}: {error:?}");
    }
}

// STC-47, STO-6, I9, I13: one failed call, whichever and whatever the error.
#[test]
fn stc_47_any_call_may_fail_once() {
    let _alone = alone();
    for operation in Operation::ALL {
        let bed = Bed::new();
        let calls = count(&bed, operation);
        for (at, call) in calls.iter().enumerate() {
            for errno in [Errno::NOSPC, Errno::IO, Errno::MFILE] {
                let what = format!("{operation:?}, {call} number {at}, {errno:?}");
                let plan = Plan::new(at, Fault::Fail(errno));
                assert_typed(bed.prepare(operation).run(operation, &plan), &what);
                bed.check(&what);
            }
        }
    }
}

// STC-47: a disk that is full, or gone, from one call on.
#[test]
fn stc_47_every_later_call_may_fail_too() {
    let _alone = alone();
    for operation in Operation::ALL {
        let bed = Bed::new();
        let calls = count(&bed, operation);
        for (at, call) in calls.iter().enumerate() {
            let what = format!("{operation:?}, from {call} number {at} on");
            let plan = Plan::new(at, Fault::FailOn(Errno::DQUOT));
            assert_typed(bed.prepare(operation).run(operation, &plan), &what);
            bed.check(&what);
        }
    }
}

const VARIABLE: &str = "SANDBOX_STORAGE_FAULT";

// STC-45, STO-3, STO-5, I9: the process dies at any call.
#[test]
fn stc_45_a_process_may_die_at_any_call() {
    let _alone = alone();
    for operation in Operation::ALL {
        let bed = Bed::new();
        let calls = count(&bed, operation);
        let mut died = 0;
        for (at, call) in calls.iter().enumerate() {
            let what = format!("{operation:?}, killed at {call} number {at}");
            let prepared = bed.prepare(operation);
            let index = Operation::ALL
                .iter()
                .position(|one| *one == operation)
                .unwrap();
            let task = serde_json::to_string(&(
                index,
                at,
                &prepared.root,
                &prepared.project,
                prepared.key,
                &prepared.saved,
            ))
            .unwrap();
            let status = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "faults::as_the_process_that_dies",
                    "--test-threads=1",
                ])
                .env(VARIABLE, task)
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            // Threads share the work of an ingest: a run may need fewer calls than the one
            // that was counted, and then there is no such call to die at.
            died += usize::from(!status.success());
            bed.check(&what);
        }
        assert!(
            died * 4 >= calls.len() * 3,
            "{operation:?}: {died} of {} died",
            calls.len()
        );
    }
}

/// What the process that dies does; in the test run itself there is no task.
#[test]
fn as_the_process_that_dies() {
    let Ok(task) = std::env::var(VARIABLE) else {
        return;
    };
    let (index, at, root, project, key, saved): (usize, usize, PathBuf, PathBuf, _, _) =
        serde_json::from_str(&task).unwrap();
    let prepared = Prepared {
        root,
        project,
        key,
        saved,
    };
    let plan = Plan::new(at, Fault::Die);
    prepared.run(Operation::ALL[index], &plan).unwrap();
}

// STC-52: a disk that gives a blob no further name: that file alone is written again.
#[test]
fn stc_52_a_blob_without_room_for_a_pin_is_written_again() {
    let _alone = alone();
    let bed = Bed::new();
    let calls = count(&bed, Operation::PrewarmAgain);
    let pins: Vec<usize> = calls
        .iter()
        .enumerate()
        .filter(|(_, call)| **call == "link")
        .map(|(at, _)| at)
        .collect();
    let pin = *pins.first().unwrap();
    let plan = Plan::new(pin, Fault::Fail(Errno::MLINK));
    bed.prepare(Operation::PrewarmAgain)
        .run(Operation::PrewarmAgain, &plan)
        .unwrap();
    assert!(plan.log().iter().filter(|call| **call == "write").count() > 0);
    bed.check("EMLINK");
}

// Where the kernel can't copy within itself, files are copied by hand, with the same result.
#[test]
fn a_disk_without_copy_file_range_is_copied_by_hand() {
    let _alone = alone();
    let bed = Bed::new();
    let calls = count(&bed, Operation::Create);
    let at = calls
        .iter()
        .position(|call| *call == "copy_file_range")
        .unwrap();
    for errno in [Errno::XDEV, Errno::OPNOTSUPP, Errno::INVAL, Errno::NOSYS] {
        let plan = Plan::new(at, Fault::Fail(errno));
        bed.prepare(Operation::Create)
            .run(Operation::Create, &plan)
            .unwrap();
        assert!(plan.log().contains(&"read"));
        bed.check("no copy_file_range");
    }
}

// STO-3, STO-6, I14: a collector that spares nothing, at any point of a create: the session
// is whole, or its template was gone before it began.
#[test]
fn i14_a_collector_at_any_point_of_a_create() {
    let _alone = alone();
    let bed = Bed::new();
    let id = TemplateId::new("unnamed").unwrap();
    let names = |store: &Store, plan: &Arc<Plan>| {
        let key = store
            .prewarm(&backend(), &id, &files("unnamed"))
            .unwrap()
            .template_key;
        let session = plan.run(|| store.create(&backend(), &key, &SessionOptions::default()));
        match session {
            Ok(session) => {
                assert_eq!(session.changes().unwrap(), []);
                session.delete().unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::NotFound, "{error:?}");
                false
            }
        }
    };
    let store = bed.open().unwrap();
    let counting = Plan::new(usize::MAX, Fault::Die);
    assert!(names(&store, &counting));
    let calls = counting.log().len();
    let mut made = 0;
    for at in 0..calls {
        let root = bed.root();
        let plan = Plan::acting(at, move || {
            open(&root).unwrap().gc(&everything()).unwrap();
        });
        made += usize::from(names(&store, &plan));
    }
    // Collected before the look, and spared after it: both were met.
    assert!(made > 0 && made < calls, "{made} of {calls}");
    bed.check("a collector beside");
}

// STG-7, STC-21: a folder swapped for a link at any point of an ingest: nothing outside
// the folder is read.
#[test]
fn stg_7_a_swap_at_any_point_of_an_ingest() {
    let _alone = alone();
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let (project, outside) = (folder.path().join("project"), folder.path().join("outside"));
    for (root, text) in [(&project.join("way"), "public"), (&outside, "secret")] {
        for name in ["one", "two"] {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::write(root.join(name).join("file"), text).unwrap();
        }
    }
    let store = open(&folder.path().join("state")).unwrap();
    let id = TemplateId::new("t").unwrap();
    let ingest = |plan: &Arc<Plan>| {
        let host = HostFolder::open(&project).unwrap();
        plan.run(|| store.ingest(&backend(), &id, &host, &IngestOptions::default()))
    };
    let counting = Plan::new(usize::MAX, Fault::Die);
    ingest(&counting).unwrap();
    let secret = crate::digest::Digest::of(b"secret").to_string();
    for at in 0..counting.log().len() {
        let (way, aside) = (project.join("way"), project.join("aside"));
        let plan = Plan::acting(at, {
            let (way, aside) = (way.clone(), aside.clone());
            move || {
                fs::rename(&way, &aside).unwrap();
                // Relative: an absolute one would be stopped by the border of a mount, too.
                std::os::unix::fs::symlink("../outside", &way).unwrap();
            }
        });
        if let Err(error) = ingest(&plan) {
            assert_eq!(error.code(), ErrorCode::Busy, "call {at}: {error:?}");
        }
        if aside.exists() {
            fs::remove_file(&way).unwrap();
            fs::rename(&aside, &way).unwrap();
        }
        let blob = store
            .root()
            .join("blobs")
            .join(&secret[..2])
            .join(&secret[2..]);
        assert!(!blob.exists(), "call {at}");
    }
}

// STC-19: a file that never keeps still is named, whatever its size, and nothing is published.
#[test]
fn stc_19_a_file_that_never_keeps_still_is_named() {
    let _alone = alone();
    for size in [0, 100, (1 << 20) + 1] {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir(&project).unwrap();
        let file = project.join("busy.log");
        fs::write(&file, vec![b'x'; size]).unwrap();
        let store = open(&folder.path().join("state")).unwrap();
        let host = HostFolder::open(&project).unwrap();
        let plan = Plan::acting_always(move || {
            use std::io::Write as _;
            let mut open = fs::OpenOptions::new().append(true).open(&file).unwrap();
            open.write_all(b"line\n").unwrap();
        });
        let id = TemplateId::new("t").unwrap();
        let error = plan
            .run(|| store.ingest(&backend(), &id, &host, &IngestOptions::default()))
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::Busy, "{error:?}");
        assert!(error.to_string().contains("busy.log"), "{error}");
        assert!(store.list_templates().unwrap().is_empty());
    }
}

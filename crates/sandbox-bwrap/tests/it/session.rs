//! A session without the store: two folders, a lease, a keeper.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use sandbox_bwrap::argv::HostShape;
use sandbox_bwrap::keeper::{Event, Executable, Keeper, RunningCommand, Setup};
use sandbox_bwrap::{Owner, ReadOnlyMount};
use sandbox_core::SandboxError;
use sandbox_helper::wire::{Limits, Record, Request, TmpfsSize};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use sandbox_testkit::helper;

/// Whom the sandbox runs as in tests of a root host.
const OWNER: Owner = Owner {
    uid: 70_001,
    gid: 70_001,
};

/// How long anything here may take before it counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The owner that a host like this one needs.
pub(crate) fn owner() -> Option<Owner> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    let kernel_root =
        rustix::process::geteuid().is_root() && map.split_ascii_whitespace().take(2).eq(["0", "0"]);
    kernel_root.then_some(OWNER)
}

/// A session's folder with its lease.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) lease: File,
    path: PathBuf,
    /// What removes it; none for one that another process made.
    _root: Option<TempDir>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["session", "session/workspace", "session/home"] {
            let path = root.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
            if let Some(Owner { uid, gid }) = owner() {
                // Where there is no such user (H29), the keeper is to say so.
                let _ = chown(&path, Some(uid), Some(gid));
            }
        }
        File::create_new(root.path().join("lease")).unwrap();
        let mut folder = Self::open(root.path());
        folder._root = Some(root);
        folder
    }

    /// One that another process made, whose lease must be free.
    pub(crate) fn open(path: &Path) -> Self {
        let lease = File::open(path.join("lease")).unwrap();
        lease.try_lock().unwrap();
        Self {
            lease,
            path: path.to_owned(),
            _root: None,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path.join("session/workspace")
    }

    pub(crate) fn setup(&self) -> Setup {
        let session = rustix::fs::open(
            self.path.join("session"),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .unwrap();
        Setup {
            helper: Executable::helper(helper::path()).unwrap(),
            bubblewrap: Executable::bubblewrap(Path::new("/usr/bin/bwrap")).unwrap(),
            session,
            lease: self.lease.try_clone().unwrap().into(),
            owner: owner(),
            host: HostShape::of_host().unwrap(),
            read_only: Vec::new(),
            tmp: TmpfsSize {
                bytes: 1 << 20,
                inodes: 100,
            },
            shm_bytes: 1 << 20,
            processes: Some(2048),
        }
    }
}

/// A running session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) keeper: Keeper,
    pub(crate) workspace: OwnedFd,
    pub(crate) folder: Folder,
}

impl Session {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await.unwrap()
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Setup)) -> Result<Self, SandboxError> {
        Self::start_in(Folder::new(), change).await
    }

    pub(crate) async fn start_in(
        folder: Folder,
        change: impl FnOnce(&mut Setup),
    ) -> Result<Self, SandboxError> {
        let mut setup = folder.setup();
        change(&mut setup);
        let (keeper, workspace) = Keeper::start(setup).await?;
        Ok(Self {
            keeper,
            workspace,
            folder,
        })
    }

    pub(crate) async fn with_mount(source: &Path, destination: &str) -> Result<Self, SandboxError> {
        Self::start_with(|setup| {
            setup.read_only.push(ReadOnlyMount {
                source: source.to_owned(),
                destination: destination.to_owned(),
            });
        })
        .await
    }

    pub(crate) async fn spawn(&self, request: &Request) -> Spawned {
        Spawned::of(&self.keeper, request).await.unwrap()
    }

    pub(crate) async fn run(&self, request: &Request) -> Ran {
        self.spawn(request).await.finish().await
    }

    /// Runs a script of the shell.
    pub(crate) async fn shell(&self, script: &str) -> Ran {
        self.run(&request(&["/bin/sh", "-c", script])).await
    }

    /// What a script writes, which must succeed.
    pub(crate) async fn text(&self, script: &str) -> String {
        let ran = self.shell(script).await;
        assert_eq!(ran.record(), exited(0), "{script}: {ran:?}");
        ran.stdout
    }
}

/// A command with the host's ends of its pipes.
#[derive(Debug)]
pub(crate) struct Spawned {
    pub(crate) command: RunningCommand,
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

impl Spawned {
    pub(crate) async fn of(keeper: &Keeper, request: &Request) -> Result<Self, SandboxError> {
        let pair = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let ((child_stdin, stdin), (stdout, child_stdout), (stderr, child_stderr)) =
            (pair(), pair(), pair());
        let stdio = [child_stdin, child_stdout, child_stderr];
        Ok(Self {
            command: keeper.spawn(request, stdio).await?,
            stdin: pipe::Sender::from_owned_fd(stdin).unwrap(),
            stdout: pipe::Receiver::from_owned_fd(stdout).unwrap(),
            stderr: pipe::Receiver::from_owned_fd(stderr).unwrap(),
        })
    }

    /// Closes standard input and reads everything to its end.
    pub(crate) async fn finish(self) -> Ran {
        let Self {
            mut command,
            stdin,
            mut stdout,
            mut stderr,
        } = self;
        drop(stdin);
        let (mut out, mut err) = (String::new(), String::new());
        let all = async {
            tokio::join!(
                command.event(),
                stdout.read_to_string(&mut out),
                stderr.read_to_string(&mut err),
            )
        };
        let (first, ..) = tokio::time::timeout(PATIENCE, all)
            .await
            .expect("the command hangs");
        tokio::time::timeout(PATIENCE, command.gone())
            .await
            .expect("its pid 1 hangs");
        Ran {
            first,
            stdout: out,
            stderr: err,
        }
    }
}

/// A command that is over.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) first: Event,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn record(&self) -> Record {
        match &self.first {
            Event::Record(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn error(self) -> SandboxError {
        match self.first {
            Event::Failed(error) => error,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn exited(code: i32) -> Record {
    Record::Ended(sandbox_helper::wire::Status::Exited(code))
}

pub(crate) fn signalled(number: i32) -> Record {
    Record::Ended(sandbox_helper::wire::Status::Signalled(number))
}

/// A request with the environment that a command has by default.
pub(crate) fn request(arguments: &[&str]) -> Request {
    let string = |value: &str| CString::new(value).unwrap();
    Request {
        executable: string(arguments[0]),
        arguments: arguments.iter().map(|argument| string(argument)).collect(),
        environment: ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent"]
            .map(string)
            .to_vec(),
        cwd: CString::default(),
        limits: Limits {
            processes: Some(512),
            open_files: Some(4096),
            ..Limits::default()
        },
        filter: Vec::new(),
    }
}

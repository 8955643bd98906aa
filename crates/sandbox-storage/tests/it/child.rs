//! This test program started again as another process.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sandbox_core::{ErrorCode, SavedState};
use sandbox_storage::{GcOptions, HostFolder, SessionOptions};
use serde::{Deserialize, Serialize};

use crate::support::{backend, id, open, text_files};

/// What another process is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Reconnects, says `won` or the error's code, and holds on until its input ends.
    Own(SavedState),
    /// Reconnects and deletes at once; says the outcome.
    Delete(SavedState),
    /// Reconnects and releases at once; says the outcome.
    Reconnect(SavedState),
    /// Makes templates and sessions and removes them, until it is killed.
    Churn { seed: u64 },
    /// Ingests, creates and says how it went.
    Fill { project: String },
    /// Ingests one file and says how much memory that took at most, in KiB.
    Measure { project: String },
    /// Mounts in a folder, ingests it, and says what was skipped and how many files went in.
    IngestAroundMounts { project: String },
    /// Mounts in a session's workspace, deletes the session, and says what became of both.
    DeleteAroundMount,
    /// Publishes overlapping templates until its input ends; says how many.
    Publish { seed: u64 },
}

const VARIABLE: &str = "SANDBOX_STORAGE_TEST_CHILD";

/// A process working on a store; killed when dropped.
pub(crate) struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(store: &Path, task: &Task) -> Self {
        Self::start_under(store, task, Command::new(std::env::current_exe().unwrap()))
    }

    /// Starts it by a command that ends in the path of this program.
    pub(crate) fn start_under(store: &Path, task: &Task, mut command: Command) -> Self {
        let mut child = command
            .args([
                "--exact",
                "child::as_another_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(
                VARIABLE,
                serde_json::to_string(&(store.to_str().unwrap(), task)).unwrap(),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next word that it says.
    pub(crate) fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "it ended silently"
            );
            if let Some((_, word)) = line.split_once("says: ") {
                return word.trim_end().to_owned();
            }
        }
    }

    /// Ends its input and waits for it.
    pub(crate) fn finish(mut self) -> String {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }

    /// Kills it as by `kill -9` and reaps it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does; in the test run itself there is no task, and nothing to do.
#[test]
fn as_another_process() {
    let Ok(task) = std::env::var(VARIABLE) else {
        return;
    };
    let (store, task): (String, Task) = serde_json::from_str(&task).unwrap();
    work(Path::new(&store), task);
}

fn say(word: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "says: {word}").unwrap();
    out.flush().unwrap();
}

fn wait_for_end_of_input() {
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
}

fn work(path: &Path, task: Task) {
    let store = open(path).unwrap();
    match task {
        Task::Own(saved) => match store.reconnect(&backend(), &saved, "the other process") {
            Ok(session) => {
                say("won");
                wait_for_end_of_input();
                session.release();
            }
            Err(error) => {
                say(error.code());
                wait_for_end_of_input();
            }
        },
        Task::Delete(saved) => match store.reconnect(&backend(), &saved, "the other process") {
            Ok(session) => {
                session.delete().unwrap();
                say("deleted");
            }
            Err(error) => say(error.code()),
        },
        Task::Reconnect(saved) => match store.reconnect(&backend(), &saved, "the other process") {
            Ok(session) => {
                // Whole, or it would not be there.
                let folder = session.path().join("workspace/a/b");
                assert_eq!(std::fs::read(folder).unwrap(), b"x");
                session.release();
                say("won");
            }
            Err(error) => say(error.code()),
        },
        Task::Churn { seed } => {
            say("begins");
            for round in seed.. {
                let text = format!("{}", round % 7);
                let files = text_files(&[("a/b", "x"), ("c", &text), ("d/e/f", &text)]);
                let key = store
                    .prewarm(&backend(), &id("t"), &files)
                    .unwrap()
                    .template_key;
                let mut options = SessionOptions::default();
                options.durable = round % 2 == 0;
                let session = store.create(&backend(), &key, &options).unwrap();
                if round % 3 == 0 {
                    session.release();
                } else {
                    session.delete().unwrap();
                }
                if round % 5 == 0 {
                    let mut options = GcOptions::default();
                    options.grace = std::time::Duration::ZERO;
                    // Another process may be collecting.
                    let _ = store.gc(&options);
                }
            }
        }
        Task::Fill { project } => {
            let folder = HostFolder::open(Path::new(&project)).unwrap();
            match store.ingest(&backend(), &id("t"), &folder, &Default::default()) {
                Ok(_) => say("fits"),
                Err(error) => say(format!("{} {error}", error.code())),
            }
        }
        Task::Measure { project } => {
            let folder = HostFolder::open(Path::new(&project)).unwrap();
            let ingested = store
                .ingest(&backend(), &id("t"), &folder, &Default::default())
                .unwrap();
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let peak = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))
                .unwrap();
            let peak = peak.trim().trim_end_matches(" kB");
            say(format!("{peak} {}", ingested.prewarmed.template_key));
        }
        Task::IngestAroundMounts { project } => {
            let project = Path::new(&project);
            mount(&project.join("mount"));
            std::fs::write(project.join("mount/inside"), "x").unwrap();
            let bound = std::process::Command::new("mount")
                .arg("--bind")
                .args([project.join("mount/inside"), project.join("mounted file")])
                .status()
                .unwrap();
            assert!(bound.success());
            let folder = HostFolder::open(project).unwrap();
            let ingested = store
                .ingest(&backend(), &id("t"), &folder, &Default::default())
                .unwrap();
            let skipped = serde_json::to_string(&ingested.skipped).unwrap();
            say(format!("{skipped} {}", ingested.stats.files));
        }
        Task::DeleteAroundMount => {
            let files = text_files(&[("a/b/c", "x"), ("d", "y")]);
            let key = store
                .prewarm(&backend(), &id("t"), &files)
                .unwrap()
                .template_key;
            let session = store
                .create(&backend(), &key, &SessionOptions::default())
                .unwrap();
            let at = session.path().join("workspace/a/b/mount");
            std::fs::create_dir(&at).unwrap();
            mount(&at);
            std::fs::write(at.join("precious"), "kept").unwrap();
            let mounted = std::fs::File::open(at.join("precious")).unwrap();
            let error = session.delete().unwrap_err();
            assert!(store.list_sessions().unwrap().is_empty());
            let links = std::os::unix::fs::MetadataExt::nlink(&mounted.metadata().unwrap());
            let kept = std::io::read_to_string(mounted).unwrap();
            say(format!(
                "{} {}",
                error.code(),
                if links == 1 { &kept } else { "unlinked" }
            ));
        }
        Task::Publish { seed } => {
            let ends = std::thread::spawn(wait_for_end_of_input);
            let mut count = 0_u64;
            say("begins");
            while !ends.is_finished() {
                count += 1;
                let common = format!("common {}", count % 5);
                let own = format!("{seed} {count}");
                let files = text_files(&[("common", &common), ("own", &own)]);
                let key = store
                    .prewarm(&backend(), &id("t"), &files)
                    .unwrap()
                    .template_key;
                let mut options = SessionOptions::default();
                options.expires_in = None;
                match store.create(&backend(), &key, &options) {
                    Ok(session) => session.delete().unwrap(),
                    // A collector that spares nothing may have been faster; but a template
                    // that is there is whole.
                    Err(error) => assert_eq!(error.code(), ErrorCode::NotFound, "{error:?}"),
                }
            }
            say(count);
        }
    }
}

/// Mounts a small disk; it goes with this process's mount namespace.
fn mount(at: &Path) {
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(at)
        .status()
        .unwrap();
    assert!(mounted.success());
}

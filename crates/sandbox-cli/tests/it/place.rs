//! A project to run things in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use sandbox_testkit::helper;

/// How long anything here may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// A project folder and a state folder of its own.
pub(crate) struct Place {
    root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("project")).unwrap();
        fs::write(root.path().join("project/greeting"), "hello\n").unwrap();
        Self { root }
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// The program, in the project, with nothing on its standard input.
    pub(crate) fn sandbox(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
        command
            .args(arguments)
            .current_dir(self.project())
            .env("SANDBOX_STATE_DIR", self.state())
            .env("SANDBOX_HELPER", helper::path())
            .env_remove("SANDBOX_BWRAP")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        Running::start(&mut self.sandbox(arguments)).end()
    }

    pub(crate) fn sh(&self, script: &str) -> Output {
        self.run(&["run", "--", "sh", "-c", script])
    }

    /// What a program that succeeds writes: one JSON value.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[&["--json"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A fresh session's id.
    pub(crate) fn session(&self) -> String {
        let id = &self.json(&["session", "create"])["session"];
        id.as_str().unwrap().to_owned()
    }

    pub(crate) fn sessions(&self) -> usize {
        self.json(&["session", "list"]).as_array().unwrap().len()
    }
}

/// A program that runs meanwhile, in a process group of its own as a shell's job is.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        use std::os::unix::process::CommandExt as _;
        command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits for exactly this on standard output.
    pub(crate) fn expect(&mut self, wanted: &str) {
        let mut read = vec![0; wanted.len()];
        let stdout = self.0.stdout.as_mut().unwrap();
        std::io::Read::read_exact(stdout, &mut read).unwrap();
        assert_eq!(text(&read), wanted);
    }

    /// Signals the whole group, as a terminal does.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process_group(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Its end; one that hangs is killed.
    pub(crate) fn end(self) -> Output {
        let pid = Pid::from_child(&self.0);
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(self.0.wait_with_output()));
        match end.recv_timeout(PATIENCE) {
            Ok(output) => output.unwrap(),
            Err(_) => {
                rustix::process::kill_process(pid, Signal::KILL).unwrap();
                panic!("the program did not end");
            }
        }
    }
}

/// Waits until something that nobody tells is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it is not so yet");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of JSON that a program wrote.
pub(crate) fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

//! A host process of its own, for what would end the test's: this program again, running only
//! [`a_host_process_runs_a_command`].

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use sandbox_bwrap::keeper::{Event, Keeper};
use sandbox_core::ErrorCode;

use crate::processes::{self, Known};
use crate::session::{Folder, PATIENCE, Session, Spawned, exited, request};

/// The folder of a session that the host process is to use, and keep a command running in.
const FOLDER: &str = "SANDBOX_TEST_FOLDER";

/// Set where the process runs no other test.
const ALONE: &str = "SANDBOX_TEST_ALONE";

/// The error that is expected in place of a session.
const REFUSED: &str = "SANDBOX_TEST_REFUSED";

// H28 and others run this in odd surroundings; in plain ones it is the plain case.
#[tokio::test]
async fn a_host_process_runs_a_command() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return hold(Path::new(&folder)).await;
    }
    let before = (mounts(), descriptors());
    let started = Session::start_with(|_| {}).await;
    if let Ok(hint) = std::env::var(REFUSED) {
        let error = started.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error:?}");
        assert!(
            error.hint().is_some_and(|given| given.contains(&hint)),
            "{error:?}"
        );
        return;
    }
    let session = started.unwrap();
    let ran = session
        .shell("touch made; umask; ls /proc/$$/fd; exit 7")
        .await;
    let expected = (exited(7), "0022\n0\n1\n2\n");
    assert_eq!((ran.record(), ran.stdout.as_str()), expected, "{ran:?}");
    session.keeper.close().await.unwrap();
    drop(session);
    assert_eq!((mounts(), descriptors()), before);
}

/// This process's mount table. FI-27: a session leaves it as it was.
fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// How many descriptors this process has open, where no other test runs in it. I6: a session
/// gives back all of its own.
fn descriptors() -> Option<usize> {
    std::env::var_os(ALONE)?;
    Some(std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Keeps a command running with all that it can hide, until something ends it.
#[expect(clippy::print_stdout, reason = "it is how the test hears of it")]
async fn hold(folder: &Path) {
    let folder = Folder::open(folder);
    let (keeper, workspace) = Keeper::start(folder.setup()).await.unwrap();
    println!("starting");
    let script = "trap '' TERM HUP; (setsid sh -c 'sleep 1000 & sleep 1000' &); \
                  sleep 1000 & exec sleep 1000";
    let spawned = Spawned::of(&keeper, &request(&["/bin/sh", "-c", script])).await;
    // A keeper that is gone already is an outcome too.
    if let Ok(mut spawned) = spawned {
        let first = tokio::time::timeout(3 * PATIENCE, spawned.command.event()).await;
        assert!(!matches!(first.expect("no outcome"), Event::Gone));
        spawned.command.end().await.unwrap();
    }
    drop(workspace);
    keeper.close().await.unwrap();
}

/// A started one.
#[derive(Debug)]
pub(crate) struct Host {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Host {
    /// One that keeps a command running in this folder; it is about to start it.
    pub(crate) fn holding(folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(ARGUMENTS)
            .env(FOLDER, folder)
            .env("SANDBOX_HELPER", sandbox_testkit::helper::path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        // The harness may have put words of its own in front.
        while !line.ends_with("starting\n") {
            line.clear();
            assert_ne!(
                stdout.read_line(&mut line).unwrap(),
                0,
                "the host process failed"
            );
        }
        Self { child, stdout }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        // Its pipe first: a full one would hold it.
        let _ = std::io::copy(&mut self.stdout, &mut std::io::sink());
        self.child.wait().unwrap()
    }
}

/// How the test program runs as a host process.
const ARGUMENTS: [&str; 3] = [
    "--exact",
    "host::a_host_process_runs_a_command",
    "--nocapture",
];

/// Runs the plain case behind these words of a command line; they must succeed.
fn run_behind(wrapper: &[&str], refused: Option<&str>) {
    let program = Program::new();
    let mut command = Command::new(wrapper[0]);
    command
        .args(&wrapper[1..])
        .arg(&program.test)
        .args(ARGUMENTS)
        .env("SANDBOX_HELPER", &program.helper)
        .env("TMPDIR", program.folder.path().join("tmp"))
        .env(ALONE, "1")
        .env("RUST_BACKTRACE", "0");
    if let Some(hint) = refused {
        command.env(REFUSED, hint);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{wrapper:?}: {output:?}");
    // Without these the run above would prove nothing.
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.is_empty() || said.contains("1 passed"), "{output:?}");
}

/// Copies of the programs where everybody may run them.
struct Program {
    folder: tempfile::TempDir,
    test: PathBuf,
    helper: PathBuf,
}

impl Program {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        let copy = |from: &Path, name: &str| {
            let to = folder.path().join(name);
            // By another process: what a test beside this one forks would hold the copy open for
            // writing until it executes, and the copy could not be executed (ETXTBSY).
            let copied = Command::new("cp").args([from, &to]).status().unwrap();
            assert!(copied.success());
            open(&to, 0o755);
            to
        };
        let test = copy(&std::env::current_exe().unwrap(), "it");
        let helper = copy(sandbox_testkit::helper::path(), "sandbox-helper");
        let tmp = folder.path().join("tmp");
        std::fs::create_dir(&tmp).unwrap();
        open(&tmp, 0o1777);
        Self {
            folder,
            test,
            helper,
        }
    }
}

/// What makes an ordinary user of whoever runs the tests.
fn as_ordinary_user(rest: &[&'static str]) -> Vec<&'static str> {
    let mut words = Vec::new();
    if rustix::process::geteuid().is_root() {
        words.extend([
            "setpriv",
            "--reuid=12345",
            "--regid=12345",
            "--clear-groups",
        ]);
    }
    words.extend(rest);
    words
}

// H28: SIGCHLD ignored, descriptors 0, 1 and 2 closed, odd umasks.
#[test]
fn h28_odd_surroundings_change_nothing() {
    for script in [
        "trap '' CHLD; exec \"$@\"",
        "exec \"$@\" <&- >&- 2>&-",
        "umask 0; exec \"$@\"",
        "umask 0077; exec \"$@\"",
        "trap '' PIPE TERM HUP INT; exec \"$@\"",
        // S02: what a host leaves open reaches nobody.
        "exec \"$@\" 7</ 8</etc/passwd 9>&1",
    ] {
        run_behind(&["/bin/sh", "-c", script, "sh"], None);
    }
}

// FI-27: on a host whose `/` is shared, nothing of a session stays in its mount table. The
// process itself compares.
#[test]
fn fi_27_a_shared_root_keeps_its_mount_table() {
    let script = "mount --make-rshared / && exec \"$@\"";
    let mut wrapper = vec!["unshare"];
    if !rustix::process::geteuid().is_root() {
        wrapper.extend(["--user", "--map-root-user"]);
    }
    wrapper.extend(["--mount", "/bin/sh", "-c", script, "sh"]);
    run_behind(&wrapper, None);
}

// FI-31: a mapped root is an ordinary user.
#[test]
fn fi_31_a_mapped_root_is_an_ordinary_user() {
    run_behind(
        &as_ordinary_user(&["unshare", "--user", "--map-root-user"]),
        None,
    );
}

// H26: user namespaces switched off; the text names the setting.
#[test]
fn h26_without_user_namespaces_nothing_runs() {
    let script = "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"";
    let wrapper = as_ordinary_user(&["unshare", "-Ur", "/bin/sh", "-c", script, "sh"]);
    run_behind(&wrapper, Some("user.max_user_namespaces"));
}

// H29: root of a container that has no second user is refused, with what to configure.
#[test]
fn h29_a_root_without_a_second_user_is_refused() {
    if rustix::process::geteuid().is_root() {
        run_behind(
            &["unshare", "--user", "--map-root-user"],
            Some("configure a uid"),
        );
    } else {
        // For everybody else such a root is a mapped one.
        run_behind(&["unshare", "--user", "--map-root-user"], None);
    }
}

// H27: in a container that hides a part of /proc no fresh one can be mounted.
#[test]
fn h27_a_masked_proc_is_named() {
    let script = "mount --bind /dev/null /proc/keys; exec \"$@\"";
    let wrapper = as_ordinary_user(&["unshare", "-Urm", "/bin/sh", "-c", script, "sh"]);
    run_behind(&wrapper, Some("unmask"));
}

/// What was alive below a process, and what it starts until it is gone.
#[derive(Debug, Default)]
pub(crate) struct Family(Vec<Known>);

impl Family {
    /// Adds everything below the root and below what is known already.
    pub(crate) fn look(&mut self, root: u32) {
        let roots: Vec<u32> = std::iter::once(root)
            .chain(
                self.0
                    .iter()
                    .filter(|known| processes::lives(**known))
                    .map(|known| known.0),
            )
            .collect();
        for (pid, process) in roots.into_iter().flat_map(processes::below) {
            let known = (pid, process.started);
            if !self.0.contains(&known) {
                self.0.push(known);
            }
        }
    }

    /// Waits until all are gone and the lease is free.
    pub(crate) fn gone(&mut self, root: u32, lease: &File, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        loop {
            self.look(root);
            let alive = self
                .0
                .iter()
                .filter(|known| processes::lives(**known))
                .count();
            let free = lease.try_lock().is_ok();
            if free && alive == 0 {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{alive} alive, lease free: {free}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

//! What is killed or stopped, and that nothing is left (faults of `containment`).

use std::time::{Duration, Instant};

use rustix::process::Signal;
use sandbox_bwrap::keeper::Event;
use sandbox_core::ErrorCode;
use tokio::io::AsyncReadExt;

use crate::host::{Family, Host};
use crate::processes;
use crate::session::{Folder, PATIENCE, Session, Spawned, request};

/// Whom a round kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Host,
    Outer,
    Keeper,
    Bubblewrap,
    Init,
    Command,
}

impl Target {
    /// Its number below the host process, once it is there.
    fn find(self, host: u32) -> Option<u32> {
        let below = processes::below(host);
        let child_of = |parent: u32, name: &str| {
            let mut children = below.iter();
            children
                .find(|(_, process)| process.parent == parent && process.name == name)
                .map(|(pid, _)| *pid)
        };
        let outer = || child_of(host, "sandbox-helper");
        let keeper = || child_of(outer()?, "sandbox-helper");
        let bubblewrap = || child_of(keeper()?, "bwrap");
        let init = || child_of(bubblewrap()?, "init");
        match self {
            Self::Host => Some(host),
            Self::Outer => outer(),
            Self::Keeper => keeper(),
            Self::Bubblewrap => bubblewrap(),
            Self::Init => init(),
            // The first that init started; later ones are orphans that it adopted.
            Self::Command => {
                let init = init()?;
                let mut children = below.iter();
                children
                    .find(|(_, process)| process.parent == init)
                    .map(|(pid, _)| *pid)
            }
        }
    }
}

/// `SANDBOX_TEST_ROUNDS` times as many rounds as a plain run has.
fn rounds(plain: u32) -> u32 {
    let factor = std::env::var("SANDBOX_TEST_ROUNDS");
    plain * factor.map_or(1, |factor| factor.parse::<u32>().unwrap())
}

/// Kills the target this long after the start of a command, and looks that nothing is left.
///
/// Gives whether the target was there to be killed.
fn kill_round(target: Target, after: Duration) -> bool {
    let folder = Folder::new();
    // The host process takes it.
    folder.lease.unlock().unwrap();
    let lease = folder.lease.try_clone().unwrap();
    let host = Host::holding(folder.path());
    let pid = host.pid();
    let started = Instant::now();
    std::thread::sleep(after);
    let mut family = Family::default();
    family.look(pid);
    let found = target.find(pid);
    let patience = Instant::now() + PATIENCE;
    processes::signal(found.unwrap_or(pid), Signal::KILL);
    family.look(pid);
    let status = host.wait();
    assert!(
        Instant::now() < patience,
        "{target:?} after {after:?}: the host process hung"
    );
    if found.is_some() && target != Target::Host {
        assert!(
            status.success(),
            "{target:?} after {after:?}: no outcome ({status})"
        );
    }
    // Reopened: the duplicate in this process shares the host's lock no more.
    drop(lease);
    let lease = std::fs::File::open(folder.path().join("lease")).unwrap();
    family
        .gone(pid, &lease, Duration::from_secs(2))
        .unwrap_or_else(|left| {
            panic!(
                "{target:?} after {after:?}: {left}, {:?} in",
                started.elapsed()
            )
        });
    found.is_some()
}

/// Spreads the kills evenly over the time that a start takes.
fn kill_at_random(target: Target, plain: u32, within: Duration) {
    let rounds = rounds(plain);
    let killed = (0..rounds)
        .filter(|round| kill_round(target, within * *round / rounds))
        .count();
    assert!(killed > 0, "{target:?} was never there");
}

// FI-02, CON-2
#[test]
fn fi_02_a_killed_host_leaves_nothing() {
    kill_at_random(Target::Host, 30, Duration::from_millis(15));
}

// FI-03
#[test]
fn fi_03_a_killed_bubblewrap_leaves_nothing() {
    kill_at_random(Target::Bubblewrap, 20, Duration::from_millis(12));
}

// FI-03
#[test]
fn fi_03_a_killed_init_leaves_nothing() {
    kill_at_random(Target::Init, 12, Duration::from_millis(24));
}

// FI-03
#[test]
fn fi_03_a_killed_command_leaves_nothing() {
    kill_at_random(Target::Command, 8, Duration::from_millis(24));
}

// FI-28, FI-04
#[test]
fn fi_28_a_keeper_killed_early_leaves_nothing() {
    kill_at_random(Target::Keeper, 30, Duration::from_millis(4));
    kill_at_random(Target::Outer, 10, Duration::from_millis(12));
}

// FI-28, FI-05: a stopped keeper, bubblewrap or init does not hold the session of a dead host.
#[test]
fn fi_28_what_is_stopped_does_not_hold_a_dead_hosts_session() {
    for target in [Target::Keeper, Target::Bubblewrap, Target::Init] {
        let folder = Folder::new();
        folder.lease.unlock().unwrap();
        let host = Host::holding(folder.path());
        let pid = host.pid();
        let limit = Instant::now() + PATIENCE;
        while Target::Command.find(pid).is_none() {
            assert!(Instant::now() < limit, "no command");
        }
        let mut family = Family::default();
        family.look(pid);
        processes::signal(target.find(pid).unwrap(), Signal::STOP);
        processes::signal(pid, Signal::KILL);
        host.wait();
        let lease = std::fs::File::open(folder.path().join("lease")).unwrap();
        family
            .gone(pid, &lease, Duration::from_secs(2))
            .unwrap_or_else(|left| panic!("{target:?}: {left}"));
    }
}

/// A session with commands that run until something ends them, and who is above them.
struct Busy {
    session: Session,
    commands: Vec<Spawned>,
    above: Vec<(String, u32)>,
}

impl Busy {
    async fn start(count: usize, marker: &str) -> Self {
        let session = Session::start().await;
        let script = format!("setsid sleep {marker} & echo ready; sleep {marker}");
        let asked = request(&["/bin/sh", "-c", &script]);
        let mut commands = Vec::new();
        for _ in 0..count {
            let mut spawned = session.spawn(&asked).await;
            let mut line = [0; 6];
            spawned.stdout.read_exact(&mut line).await.unwrap();
            commands.push(spawned);
        }
        let shells = processes::with_argument(&format!("echo ready; sleep {marker}"));
        let above = processes::above(shells[0]);
        Self {
            session,
            commands,
            above,
        }
    }

    /// The number of the process at this place: 0 is init, 2 the keeper.
    fn signal(&self, place: usize, signal: Signal) {
        let names: Vec<&str> = self.above.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["init", "bwrap", "sandbox-helper", "sandbox-helper"]);
        processes::signal(self.above[place].1, signal);
    }
}

// FI-04: a keeper that dies takes eight commands along, and the session says so.
#[tokio::test]
async fn fi_04_a_killed_keeper_ends_every_command() {
    let marker = "31536000.04";
    let mut busy = Busy::start(8, marker).await;
    busy.signal(2, Signal::KILL);
    for spawned in &mut busy.commands {
        let first = tokio::time::timeout(PATIENCE, spawned.command.event())
            .await
            .unwrap();
        let Event::Failed(error) = first else {
            panic!("{first:?}");
        };
        assert_eq!(error.code(), ErrorCode::Unavailable, "{error}");
        spawned.command.end().await.unwrap();
    }
    tokio::time::timeout(PATIENCE, busy.session.keeper.gone())
        .await
        .unwrap();
    assert_eq!(processes::with_argument(marker), [0_u32; 0]);
    let refused = Spawned::of(&busy.session.keeper, &request(&["true"])).await;
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Unavailable);
    // Both may be repeated.
    busy.session.keeper.close().await.unwrap();
}

// FI-05, OWN-3: what is stopped is ended by SIGKILL, within two seconds.
#[tokio::test]
async fn fi_05_stopped_processes_end_within_two_seconds() {
    for (place, marker) in [(0, "31536000.050"), (1, "31536000.051")] {
        let mut busy = Busy::start(1, marker).await;
        busy.signal(place, Signal::STOP);
        let started = Instant::now();
        busy.commands[0].command.end().await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(2));
        processes::all_gone(&processes::with_argument(marker)).await;
        busy.session.keeper.close().await.unwrap();
    }
    let busy = Busy::start(1, "31536000.052").await;
    busy.signal(2, Signal::STOP);
    let started = Instant::now();
    busy.session.keeper.close().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(processes::with_argument("31536000.052"), [0_u32; 0]);
}

// BAK-3, H25: a program in bubblewrap's place is told by its own words, and nothing runs.
#[tokio::test]
async fn bak_3_the_words_of_what_is_no_bubblewrap_are_shown() {
    let session = Session::start_with(|setup| {
        let other = std::path::Path::new("/usr/bin/env");
        setup.bubblewrap = sandbox_bwrap::keeper::Executable::bubblewrap(other).unwrap();
    })
    .await
    .unwrap();
    let error = session.run(&request(&["true"])).await.error();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.to_string().contains("unrecognized option"), "{error}");
    session.keeper.close().await.unwrap();
}

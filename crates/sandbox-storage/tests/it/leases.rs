//! One owner a session, across processes and deaths.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use sandbox_core::{ErrorCode, SavedState, TemplateKey};

use crate::child::{Other, Task};
use crate::support::{Fixture, assert_code, backend, open};

fn session(fixture: &Fixture) -> SavedState {
    let key = fixture.prewarm(&[("a/b", "x")]);
    let session = fixture.create(&key);
    let saved = session.saved_state();
    session.release();
    saved
}

// STO-5: a second owner is refused and told who the first is.
#[test]
fn sto_5_a_second_owner_is_told_who_the_first_is() {
    let fixture = Fixture::new();
    let saved = session(&fixture);
    let mut other = Other::start(&fixture.root(), &Task::Own(saved.clone()));
    assert_eq!(other.says(), "won");
    let pid = other.pid().to_string();
    let error = assert_code(
        fixture.store.reconnect(&backend(), &saved, "me"),
        ErrorCode::Busy,
        &[&pid, "the other process"],
    );
    assert!(error.hint().unwrap().contains(&pid));
    assert!(error.refusal().retryable);
    assert_code(
        fixture.store.delete_session(&saved.session_id),
        ErrorCode::Busy,
        &[&pid],
    );
    assert!(fixture.store.list_sessions().unwrap()[0].held);
    other.finish();
    fixture
        .store
        .reconnect(&backend(), &saved, "me")
        .unwrap()
        .release();
    assert!(!fixture.store.list_sessions().unwrap()[0].held);
}

// STO-5: within one process, too: a descriptor of its own, not the process, is the owner.
#[test]
fn sto_5_one_process_owns_it_once() {
    let fixture = Fixture::new();
    let saved = session(&fixture);
    let held = fixture
        .store
        .reconnect(&backend(), &saved, "first")
        .unwrap();
    let second = open(&fixture.root()).unwrap();
    assert_code(
        second.reconnect(&backend(), &saved, "second"),
        ErrorCode::Busy,
        &["first"],
    );
    held.release();
    second.reconnect(&backend(), &saved, "second").unwrap();
}

// STC-38, STO-5: a killed owner frees it by dying.
#[test]
fn stc_38_a_killed_owner_frees_the_session() {
    let fixture = Fixture::new();
    let saved = session(&fixture);
    let mut other = Other::start(&fixture.root(), &Task::Own(saved.clone()));
    assert_eq!(other.says(), "won");
    let start = Instant::now();
    other.kill();
    fixture.store.reconnect(&backend(), &saved, "me").unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(500),
        "{:?}",
        start.elapsed()
    );
}

// STC-39: the keeper's duplicate keeps it taken when the owner lets go.
#[test]
fn stc_39_a_duplicate_keeps_the_lease() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a/b", "x")]);
    let session = fixture.create(&key);
    let saved = session.saved_state();
    let duplicate = session.lease_fd().unwrap();
    // A child that outlives its owner, with the duplicate as its standard input.
    let mut keeper = std::process::Command::new("sleep")
        .arg("1000")
        .stdin(duplicate)
        .spawn()
        .unwrap();
    session.release();
    assert_code(
        fixture.store.reconnect(&backend(), &saved, "me"),
        ErrorCode::Busy,
        &[&saved.session_id.to_string()],
    );
    assert_code(
        fixture.store.delete_session(&saved.session_id),
        ErrorCode::Busy,
        &[],
    );
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    fixture.store.reconnect(&backend(), &saved, "me").unwrap();
}

// STC-40: letting go is closing one's own descriptor: the next owner's lease is untouched.
#[test]
fn stc_40_a_late_release_takes_nothing_from_the_next_owner() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a/b", "x")]);
    let first = fixture.create(&key);
    let saved = first.saved_state();
    let duplicate = first.lease_fd().unwrap();
    first.release();
    drop(duplicate);
    let second = fixture
        .store
        .reconnect(&backend(), &saved, "second")
        .unwrap();
    assert!(
        second
            .lease_fd()
            .unwrap()
            .as_fd()
            .try_clone_to_owned()
            .is_ok()
    );
    assert_code(
        fixture.store.reconnect(&backend(), &saved, "third"),
        ErrorCode::Busy,
        &["second"],
    );
}

// STC-41, STO-5: of many at once exactly one wins.
#[test]
fn stc_41_of_a_hundred_processes_one_wins() {
    const RIVALS: usize = 100;
    let fixture = Fixture::new();
    let saved = session(&fixture);
    let mut rivals: Vec<Other> = (0..RIVALS)
        .map(|_| Other::start(&fixture.root(), &Task::Own(saved.clone())))
        .collect();
    let mut words: Vec<String> = rivals.iter_mut().map(Other::says).collect();
    words.sort();
    let mut wanted = vec!["SANDBOX_BUSY".to_owned(); RIVALS - 1];
    wanted.push("won".to_owned());
    assert_eq!(words, wanted);
    for rival in rivals {
        rival.finish();
    }
}

// STC-42, STO-7: delete against reconnect; never half a session.
#[test]
fn stc_42_delete_and_reconnect_never_meet_half_a_session() {
    const ROUNDS: usize = 200;
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a/b", "x")]);
    let other = open(&fixture.root()).unwrap();
    for _ in 0..ROUNDS {
        let session = fixture.create(&key);
        let saved = session.saved_state();
        std::thread::scope(|scope| {
            let rival = scope.spawn(|| other.reconnect(&backend(), &saved, "rival"));
            session.delete().unwrap();
            match rival.join().unwrap() {
                Ok(session) => panic!("{session:?} is gone"),
                Err(error) => assert!(
                    matches!(error.code(), ErrorCode::Busy | ErrorCode::NotFound),
                    "{error:?}"
                ),
            }
        });
    }
    fixture.assert_no_leftovers();
}

// STC-42 between processes: who deletes and who reconnects, both from outside.
#[test]
fn stc_42_processes_delete_and_reconnect() {
    let fixture = Fixture::new();
    for _ in 0..20 {
        let saved = session(&fixture);
        let mut reconnect = Other::start(&fixture.root(), &Task::Reconnect(saved.clone()));
        let mut delete = Other::start(&fixture.root(), &Task::Delete(saved.clone()));
        let (reconnected, deleted) = (reconnect.says(), delete.says());
        assert!(
            ["won", "SANDBOX_BUSY", "SANDBOX_NOT_FOUND"].contains(&&*reconnected),
            "{reconnected}"
        );
        assert!(
            ["deleted", "SANDBOX_BUSY"].contains(&&*deleted),
            "{deleted}"
        );
        reconnect.finish();
        delete.finish();
        fixture.store.delete_session(&saved.session_id).unwrap();
    }
    fixture.assert_no_leftovers();
}

// STC-43: an id that names nothing makes nothing.
#[test]
fn stc_43_unknown_and_deleted_ids_are_not_found() {
    let fixture = Fixture::new();
    let saved = session(&fixture);
    fixture.store.delete_session(&saved.session_id).unwrap();
    let unknown = SavedState {
        session_id: "ab".repeat(32).parse().unwrap(),
        template_key: TemplateKey::from_bytes([1; 32]),
        ..saved.clone()
    };
    let before = fixture.snapshot();
    for saved in [saved, unknown] {
        assert_code(
            fixture.store.reconnect(&backend(), &saved, "me"),
            ErrorCode::NotFound,
            &[&saved.session_id.to_string()],
        );
        // STO-7: a delete may be repeated.
        fixture.store.delete_session(&saved.session_id).unwrap();
    }
    assert_eq!(fixture.snapshot(), before);
}

// STC-44: a copy of the guard in another process holds it until the last one is closed.
#[test]
fn stc_44_the_last_copy_frees_it() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a/b", "x")]);
    let session = fixture.create(&key);
    let saved = session.saved_state();
    let mut copies: Vec<_> = (0..3)
        .map(|_| {
            std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .stdout(session.lease_fd().unwrap())
                .spawn()
                .unwrap()
        })
        .collect();
    // One copy that goes takes nothing from the owner.
    let mut first = copies.remove(0);
    drop(first.stdin.take());
    first.wait().unwrap();
    assert_code(
        fixture.store.reconnect(&backend(), &saved, "me"),
        ErrorCode::Busy,
        &[],
    );
    session.release();
    for mut copy in copies {
        assert_code(
            fixture.store.reconnect(&backend(), &saved, "me"),
            ErrorCode::Busy,
            &[],
        );
        drop(copy.stdin.take());
        copy.wait().unwrap();
    }
    fixture.store.reconnect(&backend(), &saved, "me").unwrap();
}

// A session whose lease was lost to a hand from outside can't be taken up, but removed.
#[test]
fn a_session_without_a_lease_can_be_removed() {
    let fixture = Fixture::new();
    let saved = session(&fixture);
    let lease = fixture
        .root()
        .join("leases")
        .join(saved.session_id.to_string());
    std::fs::remove_file(&lease).unwrap();
    assert_code(
        fixture.store.reconnect(&backend(), &saved, "me"),
        ErrorCode::NotFound,
        &[],
    );
    fixture.store.delete_session(&saved.session_id).unwrap();
    fixture.assert_no_leftovers();
}

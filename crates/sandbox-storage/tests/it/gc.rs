//! Collection: what goes, what stays, and what stops it.

use std::fs;
use std::time::{Duration, SystemTime};

use sandbox_core::ErrorCode;
use sandbox_storage::{GcOptions, GcReport, RefName, SessionOptions};

use crate::child::{Other, Task};
use crate::support::{Fixture, assert_code, backend, blobs, id, open, text_files, workspace};

/// Takes everything that nothing names, as if it were a day later.
fn all() -> GcOptions {
    let mut options = GcOptions::default();
    options.now = SystemTime::now() + Duration::from_secs(24 * 60 * 60);
    options.grace = Duration::ZERO;
    options
}

// I8: with no roots nothing remains; twice is as once.
#[test]
fn i8_nothing_named_means_nothing_left() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x"), ("b", "yy")]);
    let report = fixture.store.gc(&all()).unwrap();
    assert_eq!(
        (&*report.templates, report.blobs, report.bytes),
        (&[key][..], 2, 3)
    );
    assert!(blobs(&fixture.root()).is_empty());
    assert!(fixture.names("templates").is_empty());
    assert_eq!(fixture.store.gc(&all()).unwrap(), GcReport::default());
    fixture.assert_no_leftovers();
    // And what is collected can be made again.
    let key = fixture.prewarm(&[("a", "x"), ("b", "yy")]);
    fixture.create(&key);
}

// I8: what a session or a ref names stays, with its blobs.
#[test]
fn i8_sessions_and_refs_keep_their_templates() {
    let fixture = Fixture::new();
    let kept = fixture.prewarm(&[("a", "of the session")]);
    let named = fixture.prewarm(&[("a", "of the ref")]);
    let garbage = fixture.prewarm(&[("a", "of nobody")]);
    let mut options = SessionOptions::default();
    options.expires_in = None;
    let session = fixture.store.create(&backend(), &kept, &options).unwrap();
    session.release();
    fixture
        .store
        .set_ref(&RefName::new("mine").unwrap(), &named, None)
        .unwrap();
    let report = fixture.store.gc(&all()).unwrap();
    assert_eq!(report.templates, [garbage]);
    assert_eq!(blobs(&fixture.root()).len(), 2);
    fixture.create(&kept);
    fixture.create(&named);
}

// I8: a template that a session is being made from stays.
#[test]
fn i8_a_template_in_use_stays() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let in_use = fs::File::open(fixture.root().join(format!("templates/{key}/use"))).unwrap();
    rustix::fs::flock(&in_use, rustix::fs::FlockOperation::LockShared).unwrap();
    assert_eq!(fixture.store.gc(&all()).unwrap(), GcReport::default());
    assert_code(
        fixture.store.remove_template(&key),
        ErrorCode::Busy,
        &["being made"],
    );
    drop(in_use);
    assert_eq!(fixture.store.gc(&all()).unwrap().templates, [key]);
}

// What was just made or used is somebody's next step.
#[test]
fn the_grace_keeps_what_is_young() {
    let fixture = Fixture::new();
    fixture.prewarm(&[("a", "x")]);
    assert_eq!(
        fixture.store.gc(&GcOptions::default()).unwrap(),
        GcReport::default()
    );
    let mut later = GcOptions::default();
    later.now += Duration::from_secs(11 * 60);
    assert_eq!(fixture.store.gc(&later).unwrap().templates.len(), 1);
}

// A ref is replaced by the next run's, and runs don't pile up.
#[test]
fn a_folders_ref_is_replaced() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    let name = RefName::for_folder(&project);
    assert_ne!(name, RefName::for_folder(&fixture.beside("other")));
    let old = fixture.prewarm(&[("a", "old")]);
    let new = fixture.prewarm(&[("a", "new")]);
    fixture.store.set_ref(&name, &old, None).unwrap();
    fixture.store.set_ref(&name, &new, None).unwrap();
    assert_eq!(fixture.store.read_ref(&name).unwrap(), Some(new));
    assert_eq!(fixture.names("refs"), [name.to_string()]);
    assert_eq!(fixture.store.gc(&all()).unwrap().templates, [old]);
    fixture.store.remove_ref(&name).unwrap();
    fixture.store.remove_ref(&name).unwrap();
    assert_eq!(fixture.store.read_ref(&name).unwrap(), None);
    assert_code(
        fixture.store.set_ref(&name, &old, None),
        ErrorCode::NotFound,
        &[&old.to_string()],
    );
    assert_eq!(fixture.store.gc(&all()).unwrap().templates, [new]);
}

// Refs and sessions end at their time, owned sessions not.
#[test]
fn what_expired_goes_unless_it_is_owned() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let hour = Duration::from_secs(60 * 60);
    let name = RefName::new("short").unwrap();
    fixture.store.set_ref(&name, &key, Some(hour)).unwrap();
    let mut options = SessionOptions::default();
    options.expires_in = Some(hour);
    let owned = fixture.store.create(&backend(), &key, &options).unwrap();
    let free = fixture.store.create(&backend(), &key, &options).unwrap();
    let free_id = free.id();
    free.release();
    let kept = fixture.create(&key);
    kept.release();
    let report = fixture.store.gc(&all()).unwrap();
    assert_eq!(
        (&*report.sessions, &*report.refs),
        (&[free_id][..], &["short".to_owned()][..])
    );
    assert!(report.templates.is_empty());
    assert_eq!(fs::read(workspace(&owned).join("a")).unwrap(), b"x");
    assert_eq!(fixture.store.list_sessions().unwrap().len(), 2);
    owned.release();
    assert_eq!(fixture.store.gc(&all()).unwrap().sessions.len(), 1);
}

// A session that is used on lives on.
#[test]
fn a_renewed_session_expires_later() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let mut options = SessionOptions::default();
    options.expires_in = Some(Duration::from_secs(60));
    let session = fixture.store.create(&backend(), &key, &options).unwrap();
    session
        .renew(Some(Duration::from_secs(7 * 24 * 60 * 60)))
        .unwrap();
    let saved = session.saved_state();
    session.release();
    assert_eq!(fixture.store.gc(&all()).unwrap().sessions, []);
    let session = fixture.store.reconnect(&backend(), &saved, "me").unwrap();
    session.renew(Some(Duration::ZERO)).unwrap();
    session.release();
    assert_eq!(
        fixture.store.gc(&all()).unwrap().sessions,
        [saved.session_id]
    );
}

// What a store takes on its disk, in short.
#[test]
fn usage_counts_each_blob_once() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "same"), ("b", "same"), ("c", "other")]);
    fixture.create(&key).release();
    let usage = fixture.store.usage().unwrap();
    assert_eq!((usage.templates, usage.sessions), (1, 1));
    assert_eq!((usage.blobs, usage.blob_bytes), (2, 9));
    assert!(usage.free_bytes > 0);
}

// STC-51: a manifest that can't be read stops it, and nothing is removed.
#[test]
fn stc_51_an_unreadable_manifest_stops_it() {
    let fixture = Fixture::new();
    let broken = fixture.prewarm(&[("a", "x")]);
    fixture.prewarm(&[("a", "garbage")]);
    let mut options = SessionOptions::default();
    options.expires_in = Some(Duration::from_secs(1));
    fixture
        .store
        .create(&backend(), &broken, &options)
        .unwrap()
        .release();
    let manifest = fixture.root().join(format!("templates/{broken}/manifest"));
    fs::write(&manifest, "sbx").unwrap();
    let before = fixture.snapshot();
    assert_code(
        fixture.store.gc(&all()),
        ErrorCode::Storage,
        &["manifest", &broken.to_string()],
    );
    assert_eq!(fixture.snapshot(), before);
}

// Section 4.8: an unreadable session record or ref is never "refers to nothing".
#[test]
fn an_unreadable_record_stops_it() {
    for damaged in ["sessions", "refs"] {
        let fixture = Fixture::new();
        let key = fixture.prewarm(&[("a", "x")]);
        let session = fixture.create(&key);
        fixture
            .store
            .set_ref(&RefName::new("mine").unwrap(), &key, None)
            .unwrap();
        let record = match damaged {
            "sessions" => session.path().join("state.json"),
            _ => fixture.root().join("refs/mine"),
        };
        session.release();
        fs::write(&record, "{").unwrap();
        let before = fixture.snapshot();
        assert_code(fixture.store.gc(&all()), ErrorCode::Storage, &["damaged"]);
        assert_eq!(fixture.snapshot(), before);
    }
}

// One at a time.
#[test]
fn a_second_collection_is_busy() {
    let fixture = Fixture::new();
    let lock = fs::File::open(fixture.root().join("lock/gc")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_code(
        fixture.store.gc(&all()),
        ErrorCode::Busy,
        &["another collection"],
    );
    drop(lock);
    fixture.store.gc(&all()).unwrap();
}

// STC-48: staging of the dead goes, of the living stays.
#[test]
fn stc_48_only_the_staging_of_the_dead_is_reaped() {
    let fixture = Fixture::new();
    let staging = fixture.root().join("staging");
    for name in ["00000000-earlier", "11111111-unlocked", "22222222-alive"] {
        fs::create_dir_all(staging.join(name).join("out")).unwrap();
    }
    fs::write(staging.join("00000000-earlier/lock"), "").unwrap();
    fs::write(staging.join("stray file"), "").unwrap();
    let lock = fs::File::create(staging.join("22222222-alive/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let report = fixture.store.gc(&all()).unwrap();
    assert_eq!(report.leftovers, 3);
    assert_eq!(fixture.names("staging"), ["22222222-alive"]);
    drop(lock);
    // A process that another test is just starting may hold a copy until it executes.
    let end = SystemTime::now() + Duration::from_secs(10);
    while !fixture.names("staging").is_empty() {
        assert!(SystemTime::now() < end);
        open(&fixture.root()).unwrap();
    }
}

// A lease without a session goes, the one of a session does not.
#[test]
fn orphaned_leases_are_reaped() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let session = fixture.create(&key);
    let leases = fixture.root().join("leases");
    let orphan = "ab".repeat(32);
    fs::write(leases.join(&orphan), "").unwrap();
    fs::write(leases.join(format!("{orphan}.holder")), "").unwrap();
    let held = "cd".repeat(32);
    let lock = fs::File::create(leases.join(&held)).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    open(&fixture.root()).unwrap();
    let id = session.id().to_string();
    let mut wanted = vec![id.clone(), format!("{id}.holder"), held];
    wanted.sort();
    assert_eq!(fixture.names("leases"), wanted);
}

// STC-49: publishers with overlapping content beside a collector that spares nothing.
#[test]
fn stc_49_publishers_and_a_collector() {
    let fixture = Fixture::new();
    let mut publishers: Vec<Other> = (0..3)
        .map(|seed| Other::start(&fixture.root(), &Task::Publish { seed }))
        .collect();
    for publisher in &mut publishers {
        assert_eq!(publisher.says(), "begins");
    }
    for _ in 0..30 {
        collect(&fixture);
        // I4: whatever is visible is complete: the same look that a create takes. Only
        // this thread collects.
        for template in fixture.store.list_templates().unwrap() {
            let key = template.template_key;
            fixture.create(&key).delete().unwrap();
        }
    }
    for publisher in publishers {
        let rest = publisher.finish();
        assert!(rest.contains("says: "), "{rest}");
    }
    // Everything that was published still is what it says.
    let files = text_files(&[("a", "x")]);
    fixture.store.prewarm(&backend(), &id("t"), &files).unwrap();
    collect(&fixture);
    fixture.assert_no_leftovers();
}

/// Collects, however often a fork of another test holds the collector's lock for a moment:
/// tests of one process share their descriptors with whatever is being started.
fn collect(fixture: &Fixture) {
    loop {
        match fixture.store.gc(&all()) {
            Err(error) if error.code() == ErrorCode::Busy => std::thread::yield_now(),
            outcome => {
                outcome.unwrap();
                return;
            }
        }
    }
}

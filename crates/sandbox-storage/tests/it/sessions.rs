//! Templates and sessions: made, taken up, damaged, removed.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox_core::{
    BackendName, ErrorCode, Mode, SavedState, TemplateFile, TemplateFiles, TemplateKey,
};
use sandbox_storage::{Details, SessionMode, SessionOptions};

use crate::support::{
    Fixture, Thing, assert_code, backend, blobs, chmod, id, is_root, open, path, text_files, tree,
    workspace, write,
};

// STO-1, STO-3: made once, then found.
#[test]
fn sto_1_a_second_prewarm_finds_the_first() {
    let fixture = Fixture::new();
    let files = text_files(&[("a", "x"), ("b/c", "x")]);
    let first = fixture.store.prewarm(&backend(), &id("t"), &files).unwrap();
    let second = fixture.store.prewarm(&backend(), &id("t"), &files).unwrap();
    assert_eq!((first.reused, second.reused), (false, true));
    assert_eq!(first.template_key, second.template_key);
    // The same bytes twice are one blob.
    assert_eq!(blobs(&fixture.root()).len(), 1);
    fixture.assert_no_leftovers();
}

// STO-3: two at once both succeed, with the same key.
#[test]
fn sto_3_prewarms_at_once_agree() {
    let fixture = Fixture::new();
    let text: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let files: Vec<(&str, &str)> = text.iter().map(|text| (&**text, &**text)).collect();
    let files = text_files(&files);
    let prewarmed: Vec<_> = std::thread::scope(|scope| {
        let rivals: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let store = open(&fixture.root()).unwrap();
                    store.prewarm(&backend(), &id("t"), &files).unwrap()
                })
            })
            .collect();
        rivals
            .into_iter()
            .map(|rival| rival.join().unwrap())
            .collect()
    });
    assert!(
        prewarmed
            .iter()
            .all(|one| one.template_key == prewarmed[0].template_key)
    );
    assert_eq!(prewarmed.iter().filter(|one| !one.reused).count(), 1);
    fixture.create(&prewarmed[0].template_key);
}

// STO-3: what a crash left is no template, and is cleaned up.
#[test]
fn sto_3_leftovers_are_not_templates() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let staging = fixture.root().join("staging/00000000-dead");
    fs::create_dir_all(staging.join("out")).unwrap();
    fs::copy(
        fixture.root().join(format!("templates/{key}/manifest")),
        staging.join("out/manifest"),
    )
    .unwrap();
    write(&fixture.root().join("trash/old/file"), "x");
    assert_eq!(fixture.store.list_templates().unwrap().len(), 1);
    open(&fixture.root()).unwrap();
    fixture.assert_no_leftovers();
    assert_eq!(fixture.store.list_templates().unwrap().len(), 1);
}

// STO-4: a random id, and a private copy.
#[test]
fn sto_4_sessions_are_private_copies() {
    let fixture = Fixture::new();
    let files = vec![
        TemplateFile::executable(path("bin/run"), "#!/bin/sh\n"),
        TemplateFile::file(path("data"), "x".repeat(100_000)),
        TemplateFile::symlink(path("link"), "data"),
        TemplateFile {
            mode: Mode::from_bits_truncate(0o500),
            ..TemplateFile::directory(path("closed"))
        },
        TemplateFile::file(path("closed/inside"), "y"),
    ];
    let files = TemplateFiles::new(files).unwrap();
    let key = fixture
        .store
        .prewarm(&backend(), &id("t"), &files)
        .unwrap()
        .template_key;
    let (one, two) = (fixture.create(&key), fixture.create(&key));
    assert_ne!(one.id(), two.id());
    assert_eq!(tree(&workspace(&one)), tree(&workspace(&two)));
    let made = tree(&workspace(&one));
    assert_eq!(
        made[&b"bin/run"[..]],
        Thing::File(0o755, b"#!/bin/sh\n".to_vec())
    );
    assert_eq!(made[&b"bin"[..]], Thing::Folder(0o755));
    assert_eq!(made[&b"closed"[..]], Thing::Folder(0o500));
    assert_eq!(made[&b"link"[..]], Thing::Link(b"data".to_vec()));
    fs::write(workspace(&one).join("data"), "mine").unwrap();
    assert_eq!(
        fs::read(workspace(&two).join("data")).unwrap().len(),
        100_000
    );
    assert!(matches!(
        one.mode(),
        SessionMode::Copy | SessionMode::Reflink
    ));
    assert_eq!(tree(&one.path().join("home")).len(), 0);
    let stat = workspace(&one).metadata().unwrap();
    assert_eq!(stat.permissions().mode() & 0o777, 0o755);
    // An ordinary user's temporary folder goes only then.
    for session in [&one, &two] {
        chmod(&workspace(session).join("closed"), 0o700);
    }
}

// STC-28, STO-9: nothing that a session does changes a blob.
#[test]
fn stc_28_no_session_changes_a_blob() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "one"), ("b", "two"), ("c/d", "three")]);
    let before = blobs(&fixture.root());
    let session = fixture.create(&key);
    let root = workspace(&session);
    fs::write(root.join("a"), "longer than before").unwrap();
    fs::OpenOptions::new()
        .write(true)
        .open(root.join("b"))
        .unwrap()
        .set_len(1)
        .unwrap();
    chmod(&root.join("c/d"), 0o777);
    fs::hard_link(root.join("b"), root.join("b2")).unwrap();
    fs::rename(root.join("c"), root.join("e")).unwrap();
    symlink("a", root.join("f")).unwrap();
    fs::remove_file(root.join("a")).unwrap();
    crate::support::set_time(&root.join("b"), 1, 1);
    assert_eq!(blobs(&fixture.root()), before);
    session.delete().unwrap();
    assert_eq!(blobs(&fixture.root()), before);
    let again = fixture.create(&key);
    assert_eq!(fs::read(workspace(&again).join("a")).unwrap(), b"one");
}

// STO-4, H22: each field of a saved state is compared, named, and changes nothing.
#[test]
fn sto_4_a_saved_state_that_differs_is_refused_by_field() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let other_key = fixture.prewarm(&[("a", "y")]);
    let (one, two) = (fixture.create(&key), fixture.create(&other_key));
    let (saved, other) = (one.saved_state(), two.saved_state());
    one.release();
    two.release();
    let before = fixture.snapshot();
    let elsewhere = BackendName::new("elsewhere").unwrap();
    let cases = [
        (
            backend(),
            SavedState {
                backend: elsewhere.clone(),
                ..saved.clone()
            },
            "backend",
        ),
        (elsewhere.clone(), saved.clone(), "backend"),
        (
            elsewhere.clone(),
            SavedState {
                backend: elsewhere,
                ..saved.clone()
            },
            "backend",
        ),
        (
            backend(),
            SavedState {
                template_key: other_key,
                ..saved.clone()
            },
            "template key",
        ),
        (
            backend(),
            SavedState {
                session_id: other.session_id,
                ..saved.clone()
            },
            "template key",
        ),
    ];
    for (backend, saved, field) in cases {
        assert_code(
            fixture.store.reconnect(&backend, &saved, "me"),
            ErrorCode::StateMismatch,
            &[field, "nothing was changed"],
        );
        assert_eq!(fixture.snapshot(), before);
    }
    fixture.store.reconnect(&backend(), &saved, "me").unwrap();
}

// STO-4: a record that was swapped for another session's is a mismatch, too.
#[test]
fn sto_4_a_record_of_another_session_is_a_mismatch() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let (one, two) = (fixture.create(&key), fixture.create(&key));
    fs::copy(two.path().join("state.json"), one.path().join("state.json")).unwrap();
    let saved = one.saved_state();
    one.release();
    assert_code(
        fixture.store.reconnect(&backend(), &saved, "me"),
        ErrorCode::StateMismatch,
        &["session id"],
    );
}

// STO-4: a template belongs to one backend.
#[test]
fn sto_4_another_backends_template_is_refused() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let elsewhere = BackendName::new("elsewhere").unwrap();
    assert_code(
        fixture
            .store
            .create(&elsewhere, &key, &SessionOptions::default()),
        ErrorCode::StateMismatch,
        &["backend", "elsewhere"],
    );
    assert_code(
        fixture.store.create(
            &backend(),
            &TemplateKey::from_bytes([7; 32]),
            &SessionOptions::default(),
        ),
        ErrorCode::NotFound,
        &[&"07".repeat(32)],
    );
    fixture.assert_no_leftovers();
}

// STC-35, STO-6, H21: a gap or a changed blob is found before anything starts.
#[test]
fn stc_35_a_damaged_template_starts_nothing() {
    type Damage = fn(&Path);
    let damage: [(&str, Damage); 4] = [
        ("missing", |blob| fs::remove_file(blob).unwrap()),
        ("another length", |blob| {
            chmod(blob, 0o600);
            fs::write(blob, "longer than it was").unwrap();
        }),
        ("written to", |blob| {
            chmod(blob, 0o600);
            fs::write(blob, "y").unwrap();
        }),
        ("another length or was written to", |blob| {
            fs::remove_file(blob).unwrap();
            fs::create_dir(blob).unwrap();
        }),
    ];
    for (says, damage) in damage {
        let fixture = Fixture::new();
        let key = fixture.prewarm(&[("a", "x")]);
        let blob = blobs(&fixture.root()).into_keys().next().unwrap();
        let blob = fixture
            .root()
            .join("blobs")
            .join(String::from_utf8(blob).unwrap());
        damage(&blob);
        let error = fixture
            .store
            .create(&backend(), &key, &SessionOptions::default());
        assert_code(error, ErrorCode::Storage, &["damaged", says]);
        fixture.assert_no_leftovers();
        // STC-50: the content given again heals it.
        let files = text_files(&[("a", "x")]);
        assert!(
            fixture
                .store
                .prewarm(&backend(), &id("t"), &files)
                .unwrap()
                .reused
        );
        fixture.create(&key);
    }
}

// STC-35: the same after the store had found it whole: each file is looked at when copied.
#[test]
fn stc_35_later_damage_is_found_too() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    fixture.create(&key).delete().unwrap();
    let blob = blobs(&fixture.root()).into_keys().next().unwrap();
    fs::remove_file(
        fixture
            .root()
            .join("blobs")
            .join(String::from_utf8(blob).unwrap()),
    )
    .unwrap();
    let error = fixture
        .store
        .create(&backend(), &key, &SessionOptions::default());
    assert_code(error, ErrorCode::Storage, &["damaged", "missing"]);
    fixture.assert_no_leftovers();
}

// STC-46, H21: a template that is not what its name says is never used; it is put aside
// and made again, and what was there is kept.
#[test]
fn stc_46_a_damaged_template_is_quarantined() {
    let damage: [fn(&Path); 6] = [
        |template| fs::write(template.join("manifest"), "").unwrap(),
        |template| {
            let mut bytes = fs::read(template.join("manifest")).unwrap();
            bytes[40] ^= 1;
            fs::write(template.join("manifest"), bytes).unwrap();
        },
        |template| fs::remove_file(template.join("manifest")).unwrap(),
        |template| fs::remove_file(template.join("meta.json")).unwrap(),
        |template| fs::write(template.join("meta.json"), "{}").unwrap(),
        |template| {
            // Whole in itself, but another template's.
            let meta = fs::read_to_string(template.join("meta.json")).unwrap();
            let meta = meta.replace("\"templateId\": \"t\"", "\"templateId\": \"u\"");
            fs::write(template.join("meta.json"), meta).unwrap();
        },
    ];
    for damage in damage {
        let fixture = Fixture::new();
        let files = text_files(&[("a", "x")]);
        let key = fixture.prewarm(&[("a", "x")]);
        damage(&fixture.root().join(format!("templates/{key}")));
        let error = fixture
            .store
            .create(&backend(), &key, &SessionOptions::default());
        assert_code(error, ErrorCode::Storage, &["damaged", &key.to_string()]);
        fixture.assert_no_leftovers();
        let again = fixture.store.prewarm(&backend(), &id("t"), &files).unwrap();
        assert_eq!((again.template_key, again.reused), (key, false));
        assert_eq!(fixture.names("quarantine").len(), 1);
        fixture.create(&key);
    }
}

// Section 4.3: a folder of the right name that is no template.
#[test]
fn a_foreign_folder_is_quarantined() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let template = fixture.root().join(format!("templates/{key}"));
    fs::remove_dir_all(&template).unwrap();
    write(&template.join("thesis.txt"), "words");
    fixture.prewarm(&[("a", "x")]);
    let [aside] = &*fixture.names("quarantine") else {
        panic!("one entry")
    };
    let kept = fixture
        .root()
        .join("quarantine")
        .join(aside)
        .join("thesis.txt");
    assert_eq!(fs::read(kept).unwrap(), b"words");
    fixture.create(&key);
}

// H23, STC-46: whatever stands in the place of the record, the answer comes at once.
#[test]
fn h23_odd_session_records_are_refused_at_once() {
    let fifo = |at: &Path| {
        let path = CString::new(at.to_str().unwrap()).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    };
    type Replace<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Replace<'_>); 8] = [
        ("link", &|at| symlink("/etc/passwd", at).unwrap()),
        ("FIFO", &fifo),
        ("directory", &|at| fs::create_dir(at).unwrap()),
        ("bytes", &|at| {
            fs::File::create(at).unwrap().set_len(1 << 30).unwrap();
        }),
        ("empty", &|at| fs::write(at, "").unwrap()),
        ("damaged", &|at| fs::write(at, "{\"format\": 1,").unwrap()),
        ("format is 2", &|at| {
            let from = at.with_file_name("state.old");
            let text = fs::read_to_string(from).unwrap();
            fs::write(at, text.replace("\"format\": 1", "\"format\": 2")).unwrap();
        }),
        ("missing", &|_| {}),
    ];
    for (says, replace) in cases {
        let fixture = Fixture::new();
        let key = fixture.prewarm(&[("a", "x")]);
        let session = fixture.create(&key);
        let saved = session.saved_state();
        let record = session.path().join("state.json");
        session.release();
        fs::rename(&record, record.with_file_name("state.old")).unwrap();
        replace(&record);
        let start = Instant::now();
        assert_code(
            fixture.store.reconnect(&backend(), &saved, "me"),
            ErrorCode::Storage,
            &["state.json", says],
        );
        assert!(
            start.elapsed() < Duration::from_millis(100),
            "{:?}",
            start.elapsed()
        );
        // Listed as damaged, and removable.
        let [info] = &*fixture.store.list_sessions().unwrap() else {
            panic!("one session")
        };
        assert!(matches!(&info.details, Details::Damaged(why) if why.contains(says)));
        fixture.store.delete_session(&saved.session_id).unwrap();
        fixture.assert_no_leftovers();
    }
}

// STO-6: a failed reconnect leaves the session as it was, and its lease free.
#[test]
fn sto_6_a_failed_reconnect_changes_nothing() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let session = fixture.create(&key);
    let saved = session.saved_state();
    session.release();
    let record = fixture
        .root()
        .join(format!("sessions/{}/state.json", saved.session_id));
    let good = fs::read(&record).unwrap();
    fs::write(&record, "{}").unwrap();
    let before = fixture.snapshot();
    assert_code(
        fixture.store.reconnect(&backend(), &saved, "me"),
        ErrorCode::Storage,
        &["state.json"],
    );
    assert_eq!(fixture.snapshot(), before);
    fs::write(&record, good).unwrap();
    fixture.store.reconnect(&backend(), &saved, "me").unwrap();
}

// STO-4: reconnecting needs no template; only the list of changes does.
#[test]
fn sto_4_a_session_outlives_its_template() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let session = fixture.create(&key);
    let saved = session.saved_state();
    session.release();
    fs::remove_dir_all(fixture.root().join(format!("templates/{key}"))).unwrap();
    let session = fixture.store.reconnect(&backend(), &saved, "me").unwrap();
    assert_code(session.changes(), ErrorCode::NotFound, &[&key.to_string()]);
    session.delete().unwrap();
}

// The policy record and the mark of a live writer.
#[test]
fn records_of_a_session_are_kept() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let mut options = SessionOptions::default();
    options.policy = Some(b"\"deny-all\"".to_vec());
    let session = fixture.store.create(&backend(), &key, &options).unwrap();
    assert_eq!(session.read_policy().unwrap().unwrap(), b"\"deny-all\"");
    session.write_policy(b"\"other\"").unwrap();
    assert_eq!(session.read_policy().unwrap().unwrap(), b"\"other\"");
    assert!(!session.is_dirty().unwrap());
    session.mark_dirty().unwrap();
    session.mark_dirty().unwrap();
    let saved = session.saved_state();
    session.release();
    assert!(fixture.store.list_sessions().unwrap()[0].dirty);
    let session = fixture.store.reconnect(&backend(), &saved, "me").unwrap();
    assert!(session.is_dirty().unwrap());
    session.clear_dirty().unwrap();
    session.clear_dirty().unwrap();
    assert!(!session.is_dirty().unwrap());
    fs::remove_file(session.path().join("policy.json")).unwrap();
    symlink("/etc/passwd", session.path().join("policy.json")).unwrap();
    assert_code(
        session.read_policy(),
        ErrorCode::Storage,
        &["policy.json", "link"],
    );
}

// What lists show.
#[test]
fn lists_show_sessions_and_templates() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "xyz"), ("b/c", "")]);
    let name = sandbox_storage::RefName::new("mine").unwrap();
    fixture.store.set_ref(&name, &key, None).unwrap();
    let session = fixture.create(&key);
    let [info] = &*fixture.store.list_sessions().unwrap() else {
        panic!("one session")
    };
    assert_eq!(
        (info.session_id, info.held, info.dirty),
        (session.id(), true, false)
    );
    let Details::Known {
        template_id,
        expires,
        created,
        ..
    } = &info.details
    else {
        panic!("{info:?}")
    };
    assert_eq!(template_id.as_str(), "t");
    assert_eq!(expires.unwrap() - created, 7 * 24 * 60 * 60);
    let [template] = &*fixture.store.list_templates().unwrap() else {
        panic!("one template")
    };
    assert_eq!(
        (template.template_key, template.entries, template.bytes),
        (key, 3, 3)
    );
    assert_eq!(template.refs, ["mine"]);
    assert_code(
        fixture.store.remove_template(&key),
        ErrorCode::Busy,
        &["session"],
    );
    session.delete().unwrap();
    fixture.store.remove_template(&key).unwrap();
    fixture.store.remove_template(&key).unwrap();
    assert!(fixture.store.list_templates().unwrap().is_empty());
}

// STO-7, STC-53, H01, H05: whatever a command left, it goes.
#[test]
fn stc_53_hostile_trees_are_erased() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let session = fixture.create(&key);
    let root = workspace(&session);
    for folder in ["shut", "read-only", "write-only"] {
        write(&root.join(folder).join("deep/inside/file"), "x");
    }
    chmod(&root.join("shut/deep/inside"), 0);
    chmod(&root.join("shut/deep"), 0);
    chmod(&root.join("shut"), 0);
    chmod(&root.join("read-only/deep"), 0o500);
    chmod(&root.join("read-only"), 0o400);
    chmod(&root.join("write-only"), 0o200);
    chmod(&root, 0o500);
    session.delete().unwrap();
    fixture.assert_no_leftovers();
}

// STC-53, H01: depth costs neither stack nor descriptors.
#[test]
fn h01_three_thousand_levels_are_erased() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let session = fixture.create(&key);
    make_deep(&workspace(&session), 3000);
    let start = Instant::now();
    session.delete().unwrap();
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    fixture.assert_no_leftovers();
}

/// Makes folders in one another, with a file in each.
pub(crate) fn make_deep(root: &Path, levels: usize) {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    let mut folder = fs::File::open(root).unwrap();
    for _ in 0..levels {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        openat(&folder, "f", flags, Mode::from_raw_mode(0o644)).unwrap();
        mkdirat(&folder, "d", Mode::from_raw_mode(0o755)).unwrap();
        let next = openat(&folder, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        folder = fs::File::from(next);
    }
}

// STC-54: what links in a session lead to is as it was.
#[test]
fn stc_54_links_are_erased_not_followed() {
    let fixture = Fixture::new();
    let outside = fixture.beside("outside");
    write(&outside.join("precious/file"), "kept");
    let before = tree(&outside);
    let inode = outside.metadata().unwrap().ino();
    let key = fixture.prewarm(&[("a", "x")]);
    let session = fixture.create(&key);
    let root = workspace(&session);
    symlink(&outside, root.join("folder")).unwrap();
    symlink(outside.join("precious/file"), root.join("file")).unwrap();
    fs::hard_link(outside.join("precious/file"), root.join("hard")).unwrap();
    session.delete().unwrap();
    assert_eq!(
        (tree(&outside), outside.metadata().unwrap().ino()),
        (before, inode)
    );
    fixture.assert_no_leftovers();
}

// STC-52 is a unit test: the link limit needs the shim. H20: a hundred thousand files.
#[test]
fn h20_a_template_of_many_files_is_fine() {
    const FILES: usize = 20_000;
    let fixture = Fixture::new();
    let files = (0..FILES)
        .map(|number| TemplateFile::file(path(&format!("d{}/f{number}", number % 100)), "same"))
        .collect();
    let files = TemplateFiles::new(files).unwrap();
    let prewarmed = fixture.store.prewarm(&backend(), &id("t"), &files).unwrap();
    let session = fixture.create(&prewarmed.template_key);
    assert_eq!(tree(&workspace(&session)).len(), FILES + 100);
    assert_eq!(blobs(&fixture.root()).len(), 1);
    session.delete().unwrap();
}

// A durable session is the same session.
#[test]
fn durable_sessions_are_the_same() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x"), ("b/c", "y")]);
    let mut options = SessionOptions::default();
    options.durable = true;
    let durable = fixture.store.create(&backend(), &key, &options).unwrap();
    let plain = fixture.create(&key);
    assert_eq!(tree(&workspace(&durable)), tree(&workspace(&plain)));
    // Root or not, the workspace belongs to whoever made it.
    assert_eq!(
        workspace(&durable).metadata().unwrap().uid() == 0,
        is_root()
    );
}

//! The list of changes against the template.

use std::fs;
use std::os::unix::fs::symlink;

use sandbox_core::{FileKind, Mode, TemplateFile, TemplateFiles};
use sandbox_storage::{ChangeKind, Session};

use crate::support::{Fixture, backend, chmod, id, path, set_time, workspace, write};

use ChangeKind::{Added, Mode as ModeChanged, Modified, Removed, SymlinkTarget, TypeChanged};

/// A session of a template with a bit of everything.
fn session(fixture: &Fixture) -> Session {
    let files = vec![
        TemplateFile::file(path("a"), "one"),
        TemplateFile::file(path("a-b"), "two"),
        TemplateFile::file(path("d/one"), "1"),
        TemplateFile::file(path("d/two"), "2"),
        TemplateFile::file(path("d/sub/three"), "3"),
        TemplateFile::file(path("empty"), ""),
        TemplateFile::symlink(path("link"), "a"),
        TemplateFile {
            mode: Mode::from_bits_truncate(0o555),
            ..TemplateFile::directory(path("read-only"))
        },
    ];
    let files = TemplateFiles::new(files).unwrap();
    let prewarmed = fixture.store.prewarm(&backend(), &id("t"), &files).unwrap();
    fixture.create(&prewarmed.template_key)
}

fn changes(session: &Session) -> Vec<(String, ChangeKind, FileKind)> {
    session
        .changes()
        .unwrap()
        .into_iter()
        .map(|change| (change.path.to_string(), change.kind, change.entry))
        .collect()
}

fn item(path: &str, kind: ChangeKind, entry: FileKind) -> (String, ChangeKind, FileKind) {
    (path.to_owned(), kind, entry)
}

// I6: an untouched session has no changes; times alone are none.
#[test]
fn i6_an_untouched_session_has_no_changes() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    assert_eq!(changes(&session), []);
    let root = workspace(&session);
    set_time(&root.join("a"), 5, 5);
    fs::write(root.join("a-b"), "two").unwrap();
    fs::read(root.join("d/one")).unwrap();
    assert_eq!(changes(&session), []);
}

// Every kind once, in byte order.
#[test]
fn every_kind_is_told_apart() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    let root = workspace(&session);
    fs::write(root.join("a"), "longer").unwrap();
    // The same size, other bytes: and its time put back, as tools do.
    fs::write(root.join("a-b"), "owt").unwrap();
    set_time(&root.join("a-b"), 315_532_800, 0);
    chmod(&root.join("d/one"), 0o600);
    fs::remove_file(root.join("d/two")).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    symlink("elsewhere", root.join("link")).unwrap();
    write(&root.join("new/file"), "");
    fs::remove_file(root.join("empty")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    chmod(&root.join("read-only"), 0o700);
    assert_eq!(
        changes(&session),
        [
            item("a", Modified, FileKind::File),
            item("a-b", Modified, FileKind::File),
            item("d/one", ModeChanged, FileKind::File),
            item("d/two", Removed, FileKind::File),
            item("empty", TypeChanged, FileKind::Directory),
            item("link", SymlinkTarget, FileKind::Symlink),
            item("new", Added, FileKind::Directory),
            item("new/file", Added, FileKind::File),
            item("read-only", ModeChanged, FileKind::Directory),
        ]
    );
}

// STC-30: chmod alone is a change of mode and nothing else, also to a mode that shuts the
// owner out, which it has afterwards as before.
#[test]
fn stc_30_chmod_is_a_change_of_mode_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let session = session(&fixture);
    let root = workspace(&session);
    chmod(&root.join("a"), 0o755);
    chmod(&root.join("a-b"), 0);
    chmod(&root.join("d/sub"), 0);
    chmod(&root.join("d"), 0o200);
    assert_eq!(
        changes(&session),
        [
            item("a", ModeChanged, FileKind::File),
            item("a-b", ModeChanged, FileKind::File),
            item("d", ModeChanged, FileKind::Directory),
            item("d/sub", ModeChanged, FileKind::Directory),
        ]
    );
    for (name, mode) in [("a-b", 0), ("d", 0o200)] {
        let now = root.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(now, mode, "{name}");
    }
    chmod(&root.join("d"), 0o700);
    assert_eq!(
        root.join("d/sub").metadata().unwrap().permissions().mode() & 0o777,
        0
    );
    chmod(&root.join("d/sub"), 0o700);
}

// STC-31: removed and made again: each once.
#[test]
fn stc_31_a_folder_made_again_lists_each_entry_once() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    let root = workspace(&session);
    fs::remove_dir_all(root.join("d")).unwrap();
    write(&root.join("d/other"), "x");
    chmod(&root.join("d"), 0o755);
    assert_eq!(
        changes(&session),
        [
            item("d/one", Removed, FileKind::File),
            item("d/other", Added, FileKind::File),
            item("d/sub", Removed, FileKind::Directory),
            item("d/sub/three", Removed, FileKind::File),
            item("d/two", Removed, FileKind::File),
        ]
    );
}

// STC-32: a folder that became a file or a link, a file that became a folder.
#[test]
fn stc_32_changes_of_type_show_what_was_below() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    let root = workspace(&session);
    fs::remove_dir_all(root.join("d/sub")).unwrap();
    fs::write(root.join("d/sub"), "").unwrap();
    fs::remove_file(root.join("a")).unwrap();
    write(&root.join("a/inner"), "");
    fs::remove_file(root.join("a-b")).unwrap();
    symlink("d", root.join("a-b")).unwrap();
    assert_eq!(
        changes(&session),
        [
            item("a", TypeChanged, FileKind::Directory),
            item("a-b", TypeChanged, FileKind::Symlink),
            item("a/inner", Added, FileKind::File),
            item("d/sub", TypeChanged, FileKind::File),
            item("d/sub/three", Removed, FileKind::File),
        ]
    );
}

// Special files are listed, and neither opened nor waited for.
#[test]
fn special_files_are_listed_as_added() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    let root = workspace(&session);
    for name in ["fifo", "a"] {
        let _ = fs::remove_file(root.join(name));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join(name),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
    }
    let _socket = crate::support::socket(&root, "socket");
    assert_eq!(
        changes(&session),
        [
            item("a", TypeChanged, FileKind::Fifo),
            item("fifo", Added, FileKind::Fifo),
            item("socket", Added, FileKind::Socket),
        ]
    );
}

// Links are not followed: what they lead to is no part of the workspace.
#[test]
fn links_are_not_followed() {
    let fixture = Fixture::new();
    let outside = fixture.beside("outside");
    write(&outside.join("file"), "x");
    let session = session(&fixture);
    let root = workspace(&session);
    symlink(&outside, root.join("out")).unwrap();
    fs::remove_dir_all(root.join("d")).unwrap();
    symlink(&outside, root.join("d")).unwrap();
    let found = changes(&session);
    assert!(found.contains(&item("out", Added, FileKind::Symlink)));
    assert!(found.contains(&item("d", TypeChanged, FileKind::Symlink)));
    assert!(
        found.iter().all(|(path, ..)| !path.ends_with("file")),
        "{found:?}"
    );
}

// A write that no stat shows but ctime, right after the session was made, is seen.
#[test]
fn a_write_in_the_first_moment_is_seen() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    let root = workspace(&session);
    fs::write(root.join("a"), "eno").unwrap();
    set_time(&root.join("a"), 315_532_800, 0);
    assert_eq!(changes(&session), [item("a", Modified, FileKind::File)]);
    fs::write(root.join("a"), "one").unwrap();
    assert_eq!(changes(&session), []);
}

// STC-15, PATH-5: below three thousand levels, and by names of any bytes.
#[test]
fn stc_15_deep_changes_are_found() {
    let fixture = Fixture::new();
    let session = session(&fixture);
    let new = workspace(&session).join("new");
    fs::create_dir(&new).unwrap();
    crate::sessions::make_deep(&new, 3000);
    let found = session.changes().unwrap();
    assert_eq!(found.len(), 1 + 2 * 3000);
    let longest = found
        .iter()
        .map(|change| change.path.as_bytes().len())
        .max()
        .unwrap();
    assert_eq!(longest, "new".len() + "/d".len() * 3000);
    session.delete().unwrap();
    fixture.assert_no_leftovers();
}

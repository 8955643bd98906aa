//! Opening: what is made, and what is refused.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use sandbox_core::ErrorCode;
use sandbox_storage::{Options, Store};

use crate::support::{Fixture, Tree, assert_code, chmod, is_root, open, tree, write};

// STO-8: made where missing, parents too; the real path; closed to others.
#[test]
fn sto_8_folders_are_0700_and_records_0600() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a/b", "x")]);
    let session = fixture.create(&key);
    session.write_policy(b"{}").unwrap();
    session.mark_dirty().unwrap();
    let workspace = session.path().join("workspace");
    let mut waiting = vec![fixture.root()];
    while let Some(folder) = waiting.pop() {
        assert_eq!(mode(&folder), 0o700, "{folder:?}");
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path == workspace {
                continue;
            }
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let is_blob = path.starts_with(fixture.root().join("blobs"));
            assert_eq!(mode(&path), if is_blob { 0o400 } else { 0o600 }, "{path:?}");
        }
    }
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

// STO-8: a link is resolved once; the store is where it led.
#[test]
fn sto_8_the_path_is_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, folder.path().join("link")).unwrap();
    let store = open(&folder.path().join("link/state")).unwrap();
    assert_eq!(store.root(), real.canonicalize().unwrap().join("state"));
    let again = open(&real.join("state")).unwrap();
    assert_eq!(again.id(), store.id());
}

// STO-8: missing parents are made, closed like the store.
#[test]
fn sto_8_parents_are_made() {
    let folder = tempfile::tempdir().unwrap();
    open(&folder.path().join("a/b/state")).unwrap();
    assert_eq!(mode(&folder.path().join("a")), 0o700);
}

// STO-8, H24: one that others can write to is refused, and says how to mend it.
#[test]
fn sto_8_writable_by_others_is_refused() {
    for bits in [0o770, 0o702, 0o777] {
        let fixture = Fixture::new();
        chmod(&fixture.root(), bits);
        let error = assert_code(
            open(&fixture.root()),
            ErrorCode::Storage,
            &[&*fixture.root().to_string_lossy(), "others can write"],
        );
        assert!(error.hint().unwrap().contains("chmod 700"), "{error:?}");
    }
}

// STO-8, H24: so is one below a folder that others can write to, sticky ones apart.
#[test]
fn sto_8_a_parent_writable_by_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().join("open");
    fs::create_dir(&parent).unwrap();
    chmod(&parent, 0o777);
    let error = assert_code(
        open(&parent.join("state")),
        ErrorCode::Storage,
        &["others can write to", "open"],
    );
    assert!(error.hint().unwrap().contains("chmod go-w"), "{error:?}");
    chmod(&parent, 0o1777);
    open(&parent.join("state")).unwrap();
}

// H24: one of the store's own folders that others can write to.
#[test]
fn h24_an_open_folder_inside_is_refused() {
    let fixture = Fixture::new();
    chmod(&fixture.root().join("templates"), 0o777);
    assert_code(open(&fixture.root()), ErrorCode::Storage, &["templates"]);
}

// STO-8: only readable by others is closed, not refused; a set-gid bit goes (STC-37).
#[test]
fn stc_37_looser_modes_are_tightened() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    chmod(&state, 0o2755);
    open(&state).unwrap();
    assert_eq!(mode(&state), 0o700);
}

// STC-37: below a set-gid folder the store still belongs to the caller's group.
#[test]
fn stc_37_a_set_gid_parent_gives_no_foreign_group() {
    let folder = tempfile::tempdir().unwrap();
    let parent = folder.path().join("shared");
    fs::create_dir(&parent).unwrap();
    if is_root() {
        std::os::unix::fs::chown(&parent, None, Some(54321)).unwrap();
    }
    chmod(&parent, 0o2755);
    let store = open(&parent.join("state")).unwrap();
    let own = rustix::process::getegid().as_raw();
    for name in ["", "sessions", "blobs", "FORMAT"] {
        let path = store.root().join(name);
        assert_eq!(path.metadata().unwrap().gid(), own, "{path:?}");
    }
}

// H24: someone else's folder.
#[test]
fn h24_a_foreign_owner_is_refused() {
    if is_root() {
        let fixture = Fixture::new();
        std::os::unix::fs::chown(fixture.root(), Some(54321), Some(54321)).unwrap();
        assert_code(
            open(&fixture.root()),
            ErrorCode::Storage,
            &["belongs to uid 54321"],
        );
    } else {
        assert_code(
            open(Path::new("/usr")),
            ErrorCode::Storage,
            &["belongs to uid"],
        );
    }
}

// H24: a link that someone else made may lead elsewhere tomorrow.
#[test]
fn h24_a_foreign_link_on_the_way_is_refused() {
    if !is_root() {
        // Only root can make a link that belongs to someone else.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    let link = folder.path().join("link");
    symlink("real", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(54321), Some(54321)).unwrap();
    assert_code(open(&link.join("state")), ErrorCode::Storage, &["link"]);
    assert!(!folder.path().join("real/state/FORMAT").exists());
}

// H24: what is no folder.
#[test]
fn h24_a_file_in_its_place_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    write(&file, "x");
    assert_code(open(&file), ErrorCode::Storage, &["file"]);
    assert_code(open(&file.join("state")), ErrorCode::Storage, &["file"]);
    symlink("nowhere", folder.path().join("dangling")).unwrap();
    assert_code(
        open(&folder.path().join("dangling")),
        ErrorCode::Storage,
        &["dangling"],
    );
    assert_eq!(fs::read(&file).unwrap(), b"x");
}

// STC-46: named, and nothing is rewritten.
#[test]
fn stc_46_format_missing_newer_or_odd_is_refused() {
    let cases: [(Option<&str>, &str); 7] = [
        (None, "no FORMAT"),
        (Some(""), "empty"),
        (Some("{\"format\":1"), "damaged"),
        (Some(r#"{"format":2,"other":true}"#), "FORMAT is 2"),
        (
            Some(
                r#"{"format":1,"hash":"blake3","features":{"compat":[],"ro_compat":[],"incompat":[]},"store_id":"x"}"#,
            ),
            "blake3",
        ),
        (
            Some(
                r#"{"format":1,"hash":"sha256","features":{"compat":[],"ro_compat":[],"incompat":["chunks"]},"store_id":"x"}"#,
            ),
            "chunks",
        ),
        (
            Some(
                r#"{"format":1,"hash":"sha256","features":{"compat":[],"ro_compat":["log"],"incompat":[]},"store_id":"x"}"#,
            ),
            "log",
        ),
    ];
    for (content, says) in cases {
        let fixture = Fixture::new();
        fixture.prewarm(&[("a", "x")]);
        let format = fixture.root().join("FORMAT");
        match content {
            None => fs::remove_file(&format).unwrap(),
            Some(content) => fs::write(&format, content).unwrap(),
        }
        let before = tree(&fixture.root());
        assert_code(open(&fixture.root()), ErrorCode::Storage, &["FORMAT", says]);
        assert_eq!(tree(&fixture.root()), before, "{says}");
    }
}

// STC-46: features that may be ignored are.
#[test]
fn stc_46_a_compatible_feature_is_accepted() {
    let fixture = Fixture::new();
    let format = fixture.root().join("FORMAT");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(
        &format,
        text.replace("\"compat\": []", "\"compat\": [\"log\"]"),
    )
    .unwrap();
    open(&fixture.root()).unwrap();
}

// A store whose making was interrupted is made to its end; a folder with files is no store.
#[test]
fn an_unfinished_store_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    for part in ["lock", "blobs", "templates"] {
        fs::create_dir_all(state.join(part)).unwrap();
    }
    write(&state.join("lock/store"), "");
    write(&state.join("FORMAT.new"), "{");
    chmod(&state, 0o700);
    for part in ["lock", "blobs", "templates"] {
        chmod(&state.join(part), 0o700);
    }
    open(&state).unwrap();

    let other = folder.path().join("documents");
    write(&other.join("thesis.txt"), "words");
    chmod(&other, 0o700);
    let before: Tree = tree(&other);
    assert_code(open(&other), ErrorCode::Storage, &["documents", "no store"]);
    assert_eq!(tree(&other), before);
}

// Several programs that make one store at once agree on it.
#[test]
fn racing_makers_make_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let ids: Vec<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| open(&state).unwrap().id().to_owned()))
            .collect();
        makers
            .into_iter()
            .map(|maker| maker.join().unwrap())
            .collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

// The store is worked on by descriptor: moved away, it is the same; what takes its path
// is nobody's.
#[test]
fn a_store_that_is_moved_stays_the_same() {
    let fixture = Fixture::new();
    let key = fixture.prewarm(&[("a", "x")]);
    let moved = fixture.folder.path().join("moved");
    fs::rename(fixture.root(), &moved).unwrap();
    symlink("/etc", fixture.root()).unwrap();
    let session = fixture.create(&key);
    let id = session.id();
    assert_eq!(
        fs::read(moved.join(format!("sessions/{id}/workspace/a"))).unwrap(),
        b"x"
    );
    session.delete().unwrap();
}

// STC-36: any path will do.
#[test]
fn stc_36_odd_store_paths_work() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("a:b,c\\d e\nf");
    let store = open(&state).unwrap();
    let files = crate::support::text_files(&[("a", "x")]);
    let backend = crate::support::backend();
    let prewarmed = store
        .prewarm(&backend, &crate::support::id("t"), &files)
        .unwrap();
    let session = store
        .create(&backend, &prewarmed.template_key, &Default::default())
        .unwrap();
    assert!(session.changes().unwrap().is_empty());
    session.delete().unwrap();
}

// The dedicated owner of a root caller: everything belongs to it, and what is above the
// store may be closed to it.
#[test]
fn a_root_caller_owns_nothing_in_the_store() {
    const OWNER: u32 = 54321;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("private/state");
    let mut options = Options::default();
    options.owner = Some((OWNER, OWNER));
    if !is_root() {
        assert_code(
            Store::open(&state, &options),
            ErrorCode::Storage,
            &["state"],
        );
        return;
    }
    let store = Store::open(&state, &options).unwrap();
    let project = folder.path().join("project");
    write(&project.join("src/main.rs"), "fn main() {}");
    chmod(&project, 0o700);
    let backend = crate::support::backend();
    let host = sandbox_storage::HostFolder::open(&project).unwrap();
    let ingested = store
        .ingest(
            &backend,
            &crate::support::id("t"),
            &host,
            &Default::default(),
        )
        .unwrap();
    let key = ingested.prewarmed.template_key;
    let session = store.create(&backend, &key, &Default::default()).unwrap();
    session.write_policy(b"{}").unwrap();
    let mut waiting = vec![store.root().to_owned()];
    while let Some(path) = waiting.pop() {
        let stat = path.symlink_metadata().unwrap();
        assert_eq!((stat.uid(), stat.gid()), (OWNER, OWNER), "{path:?}");
        if stat.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    assert_eq!(folder.path().join("private").metadata().unwrap().uid(), 0);
    // This thread is itself again.
    let own = folder.path().join("own");
    fs::write(&own, "").unwrap();
    assert_eq!(own.metadata().unwrap().uid(), 0);
    // H05: shut folders of that owner's are opened by name, not by root's rights.
    let work = session.path().join("workspace");
    write(&work.join("shut/deep/file"), "x");
    for path in ["shut/deep/file", "shut/deep", "shut"] {
        std::os::unix::fs::chown(work.join(path), Some(OWNER), Some(OWNER)).unwrap();
        chmod(&work.join(path), 0);
    }
    assert_eq!(session.changes().unwrap().len(), 3);
    session.delete().unwrap();
    assert!(crate::support::names(&store.root().join("trash")).is_empty());
    // Opened without the owner it is someone else's.
    assert_code(open(&state), ErrorCode::Storage, &["belongs to uid 54321"]);
}

//! Properties over trees in memory with hostile names.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use crate::support::{Fixture, Thing, Tree, chmod, set_time, times, tree, workspace};

/// Names that are prefixes of one another, odd, not UTF-8, or as long as they get.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::sample::select(vec![
            b"a".to_vec(), b"a-b".to_vec(), b"a.b".to_vec(), b"ab".to_vec(), b"b".to_vec(),
            b".git".to_vec(), b"..a".to_vec(), b" ".to_vec(), b"-rf".to_vec(), b"*".to_vec(),
            b"new\nline".to_vec(), b"back\\slash".to_vec(), b"\xff\xfe".to_vec(),
            "e\u{301}".into(), "\u{e9}".into(), "\u{202e}".into(),
        ]),
        1 => Just(vec![b'x'; 255]),
        1 => prop::collection::vec(
            any::<u8>().prop_filter("no slash or NUL", |byte| !matches!(byte, b'/' | 0)),
            1..20,
        )
        .prop_filter("no dots", |name| name != b"." && name != b".."),
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        Vec::new(),
        vec![0],
        b"same".to_vec(),
        b"same beginning".to_vec(),
        vec![b'p'; 4096],
        vec![0; 70_000],
    ])
}

/// What can stand at a path; modes leave the owner enough to read it back.
fn thing() -> impl Strategy<Value = Thing> {
    let mode = (0_u32..0o1000).prop_map(|mode| mode | 0o400);
    prop_oneof![
        2 => (0_u32..0o1000).prop_map(|mode| Thing::Folder(mode | 0o700)),
        4 => (mode, content()).prop_map(|(mode, content)| Thing::File(mode, content)),
        1 => prop::sample::select(vec!["a", "/etc/passwd", "..", "../../x", "\u{fffd}"])
            .prop_map(|target| Thing::Link(target.as_bytes().to_vec())),
    ]
}

/// A tree: entries below folders only.
fn trees() -> impl Strategy<Value = Tree> {
    let entry = (prop::collection::vec(name(), 1..4), thing());
    prop::collection::vec(entry, 0..20).prop_map(|entries| {
        let mut tree = BTreeMap::new();
        for (names, thing) in entries {
            let mut path = Vec::new();
            let mut fits = true;
            for name in &names[..names.len() - 1] {
                path = join(&path, name);
                let above = tree.entry(path.clone()).or_insert(Thing::Folder(0o755));
                fits &= matches!(above, Thing::Folder(_));
                if !fits {
                    break;
                }
            }
            if fits {
                tree.entry(join(&path, &names[names.len() - 1]))
                    .or_insert(thing);
            }
        }
        tree
    })
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        name.to_vec()
    } else {
        [path, b"/", name].concat()
    }
}

/// Writes a tree, with times that tell its entries apart.
fn make(root: &Path, tree: &Tree) {
    let full = |path: &[u8]| root.join(OsStr::from_bytes(path));
    for (path, thing) in tree {
        match thing {
            Thing::Folder(_) => fs::create_dir(full(path)).unwrap(),
            Thing::File(mode, content) => {
                fs::write(full(path), content).unwrap();
                chmod(&full(path), *mode);
            }
            Thing::Link(target) => symlink(OsStr::from_bytes(target), full(path)).unwrap(),
            Thing::Other => unreachable!("no strategy gives one"),
        }
    }
    for (number, (path, thing)) in tree.iter().enumerate().rev() {
        if let Thing::Folder(mode) = thing {
            chmod(&full(path), *mode);
        }
        set_time(
            &full(path),
            1_000_000 + i64::try_from(number).unwrap(),
            999_999_999,
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    // I1, I2, I6: the session is the folder, times included; ingested again it is the same
    // template; untouched it has no changes.
    #[test]
    fn i2_materialise_of_ingest_is_the_tree(wanted in trees()) {
        let fixture = Fixture::new();
        let project = fixture.beside("project");
        make(&project, &wanted);
        let first = fixture.ingest(&project);
        let session = fixture.create(&first.prewarmed.template_key);
        prop_assert_eq!(tree(&workspace(&session)), wanted);
        prop_assert_eq!(times(&workspace(&session)), times(&project));
        prop_assert_eq!(session.changes().unwrap(), []);
        let again = fixture.ingest(&workspace_copy(&session));
        prop_assert_eq!(again.prewarmed.template_key, first.prewarmed.template_key);
        prop_assert!(again.prewarmed.reused);
    }

    // I6: what the list says is what differs, both ways.
    #[test]
    fn i6_changes_are_the_difference(base in trees(), now in trees()) {
        let fixture = Fixture::new();
        let project = fixture.beside("project");
        make(&project, &base);
        let session = fixture.create(&fixture.ingest(&project).prewarmed.template_key);
        let root = workspace(&session);
        for entry in fs::read_dir(&root).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        make(&root, &now);
        let mut found: Vec<Vec<u8>> = session
            .changes()
            .unwrap()
            .into_iter()
            .map(|change| change.path.as_bytes().to_vec())
            .collect();
        let mut wanted: Vec<Vec<u8>> = base
            .keys()
            .chain(now.keys())
            .filter(|path| base.get(*path) != now.get(*path))
            .cloned()
            .collect();
        wanted.sort();
        wanted.dedup();
        prop_assert!(found.is_sorted());
        found.sort();
        prop_assert_eq!(found, wanted);
    }
}

/// A session's workspace where an ingest may read it: outside the store.
fn workspace_copy(session: &sandbox_storage::Session) -> std::path::PathBuf {
    let outside = session.path().ancestors().nth(3).unwrap().join("copy");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(workspace(session))
        .arg(&outside)
        .status()
        .unwrap();
    assert!(copied.success());
    outside
}

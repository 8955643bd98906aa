//! Keys: what they depend on, and that they never change.

use std::fs;
use std::os::unix::fs::symlink;

use sandbox_core::{
    ErrorCode, Mode, Prewarmed, TemplateFile, TemplateFiles, TemplateId, TemplateKey,
};
use sandbox_storage::HostFolder;

use crate::support::{
    Fixture, Thing, assert_code, backend, chmod, id, path, set_time, text_files, tree, workspace,
    write,
};

fn key(hex: &str) -> TemplateKey {
    hex.parse().unwrap()
}

/// The tree id of the one template that a store has.
fn tree_id(fixture: &Fixture) -> String {
    let [template] = &*fixture.store.list_templates().unwrap() else {
        panic!("one template")
    };
    template.tree_id.to_string()
}

// STO-1: vectors from another implementation of the encoding, tests/golden.py.
#[test]
fn sto_1_golden_vectors_of_bytes() {
    let fixture = Fixture::new();
    let empty = fixture
        .store
        .prewarm(&backend(), &id("t"), &TemplateFiles::default())
        .unwrap();
    assert_eq!(
        empty,
        Prewarmed {
            template_key: key("107282bc8ae0c84bb56004d992f384decb4b15ce6a1dd833fc2d1aea44c062c8"),
            reused: false
        }
    );
    assert_eq!(
        tree_id(&fixture),
        "1d65fe8b0c2f802bf2caad31a163a6dc89942ee82ecfcd76f654e1034dc8e07c"
    );

    let fixture = Fixture::new();
    let with_mode = |mode, mut file: TemplateFile| {
        file.mode = Mode::from_bits_truncate(mode);
        file
    };
    let files = vec![
        TemplateFile::file(path("README"), "hello\n"),
        // Its folder is left out and added with the default mode.
        TemplateFile::executable(path("bin/run"), "#!/bin/sh\n"),
        with_mode(0o600, TemplateFile::file(path("bin-x"), "")),
        TemplateFile::symlink(path("link"), "/nowhere/../at all"),
        with_mode(0o700, TemplateFile::directory(path("empty"))),
    ];
    let prewarmed = fixture
        .store
        .prewarm(
            &sandbox_core::BackendName::new("bubblewrap").unwrap(),
            &TemplateId::new("café").unwrap(),
            &TemplateFiles::new(files).unwrap(),
        )
        .unwrap();
    assert_eq!(
        prewarmed.template_key,
        key("6860e8ba09924fb843eea9b1f58d51d861c170cf80d3bf98829ffb8d8cce926e")
    );
    assert_eq!(
        tree_id(&fixture),
        "cc4a2754f114f69efd7e3bfa817a86e2f9d2c5b15c8093a33935498a7d7bb1f4"
    );
}

// STO-1: the same, of a folder with times, odd names and hard links.
#[test]
fn sto_1_golden_vectors_of_a_folder() {
    use std::os::unix::ffi::OsStrExt as _;
    let fixture = Fixture::new();
    let root = fixture.beside("project");
    let odd = root.join("a").join(std::ffi::OsStr::from_bytes(b"\xff\n"));
    write(&odd, "odd name");
    write(&root.join("a/one"), "twice");
    symlink(std::ffi::OsStr::from_bytes(b"\xfe"), root.join("a/to")).unwrap();
    write(&root.join("a-"), "");
    fs::hard_link(root.join("a/one"), root.join("two")).unwrap();
    for (path, mode, time) in [
        (odd, 0o640, (1_600_000_000, 123_456_789)),
        (root.join("a/one"), 0o644, (-5, 999_999_999)),
        (root.join("a-"), 0o444, (0, 0)),
        (root.join("a"), 0o750, (1_700_000_000, 1)),
    ] {
        chmod(&path, mode);
        set_time(&path, time.0, time.1);
    }
    set_time(&root.join("a/to"), 1, 2);
    set_time(&root.join("a"), 1_700_000_000, 1);
    let folder = HostFolder::open(&root).unwrap();
    let ingested = fixture
        .store
        .ingest(&backend(), &id("folder"), &folder, &Default::default())
        .unwrap();
    assert_eq!(
        ingested.prewarmed.template_key,
        key("9aa77af8cd7ebac66be5dfa21fe58eb01d7dff2d431312c437058adcbe12ce83")
    );
    assert_eq!(
        tree_id(&fixture),
        "20e6f6bc1c01901fef4b145270fad96fcd2e95138781bfbda1b0d338cf9aa570"
    );
}

// STC-01, STO-1: order says nothing.
#[test]
fn stc_01_every_order_gives_one_key() {
    let fixture = Fixture::new();
    let mut files: Vec<TemplateFile> = ["a", "a-b", "a.b", "ab/c", "ab/d"]
        .map(|name| TemplateFile::file(path(name), name))
        .to_vec();
    let mut keys = Vec::new();
    for round in 0..files.len() {
        files.rotate_left(1);
        if round % 2 == 1 {
            files.swap(0, 3);
        }
        let template = TemplateFiles::new(files.clone()).unwrap();
        let prewarmed = fixture
            .store
            .prewarm(&backend(), &id("t"), &template)
            .unwrap();
        assert_eq!(prewarmed.reused, round > 0);
        keys.push(prewarmed.template_key);
    }
    keys.dedup();
    assert_eq!(keys.len(), 1);
}

// STC-02: forms of Unicode are different names, and no locale says otherwise.
#[test]
fn stc_02_unicode_forms_are_two_files() {
    let fixture = Fixture::new();
    let (nfc, nfd) = ("caf\u{e9}", "cafe\u{301}");
    let one = fixture.prewarm(&[(nfc, "1"), (nfd, "2")]);
    let other = fixture.prewarm(&[(nfd, "2"), (nfc, "1")]);
    assert_eq!(one, other);
    let session = fixture.create(&one);
    assert_eq!(tree(&workspace(&session)).len(), 2);
}

// STC-03: names of any bytes come back as they were, in the listing's text form, too.
#[test]
fn stc_03_odd_names_are_kept_byte_for_byte() {
    use std::os::unix::ffi::OsStrExt as _;
    let fixture = Fixture::new();
    let root = fixture.beside("project");
    let long = [b'x'; 255];
    let names: [&[u8]; 6] = [
        b"new\nline",
        b"tab\t",
        b"quote\"'",
        b"\xff\xfe",
        b"back\\slash",
        &long,
    ];
    for name in names {
        write(&root.join(std::ffi::OsStr::from_bytes(name)), name);
    }
    let ingested = fixture.ingest(&root);
    let session = fixture.create(&ingested.prewarmed.template_key);
    assert_eq!(tree(&workspace(&session)), tree(&root));
    for name in names {
        fs::write(
            workspace(&session).join(std::ffi::OsStr::from_bytes(name)),
            "other",
        )
        .unwrap();
    }
    let changes = session.changes().unwrap();
    let json = serde_json::to_string(&changes).unwrap();
    let read: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let mut back: Vec<Vec<u8>> = read
        .iter()
        .map(|change| {
            let text = change["path"].as_str().unwrap();
            text.parse::<sandbox_core::EntryName>()
                .unwrap()
                .as_bytes()
                .to_vec()
        })
        .collect();
    back.sort();
    let mut wanted: Vec<Vec<u8>> = names.iter().map(|name| name.to_vec()).collect();
    wanted.sort();
    assert_eq!(back, wanted);
}

// STC-04, STO-2, H20: refused before the first write.
#[test]
fn stc_04_clashes_leave_the_store_as_it_was() {
    let fixture = Fixture::new();
    let before = fixture.snapshot();
    let clash = vec![
        TemplateFile::file(path("a"), ""),
        TemplateFile::file(path("a/b"), ""),
    ];
    assert_code(
        TemplateFiles::new(clash),
        ErrorCode::Invalid,
        &["/workspace/a"],
    );
    let twice = vec![
        TemplateFile::file(path("/workspace/a"), ""),
        TemplateFile::file(path("a"), ""),
    ];
    assert_code(TemplateFiles::new(twice), ErrorCode::Invalid, &["twice"]);
    assert_eq!(fixture.snapshot(), before);
}

// STC-05: the mode is part of the key, the bytes are stored once.
#[test]
fn stc_05_one_bit_makes_another_key_of_the_same_blobs() {
    let fixture = Fixture::new();
    let plain = TemplateFiles::new(vec![TemplateFile::file(path("a"), "x")]).unwrap();
    let executable = TemplateFiles::new(vec![TemplateFile::executable(path("a"), "x")]).unwrap();
    let one = fixture.store.prewarm(&backend(), &id("t"), &plain).unwrap();
    let blobs = crate::support::blobs(&fixture.root());
    let other = fixture
        .store
        .prewarm(&backend(), &id("t"), &executable)
        .unwrap();
    assert_ne!(one.template_key, other.template_key);
    assert_eq!(crate::support::blobs(&fixture.root()), blobs);
}

// STC-06: kept verbatim, none followed.
#[test]
fn stc_06_empty_things_and_links_are_kept() {
    let fixture = Fixture::new();
    let root = fixture.beside("project");
    fs::create_dir(root.join("empty")).unwrap();
    write(&root.join("nothing"), "");
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    symlink("itself", root.join("itself")).unwrap();
    symlink("..", root.join("up")).unwrap();
    let ingested = fixture.ingest(&root);
    let session = fixture.create(&ingested.prewarmed.template_key);
    let made = tree(&workspace(&session));
    assert_eq!(made, tree(&root));
    assert_eq!(made[&b"absolute"[..]], Thing::Link(b"/etc/passwd".to_vec()));
}

// STC-07: the border between backend and template id counts.
#[test]
fn stc_07_backend_and_id_do_not_run_together() {
    let fixture = Fixture::new();
    let files = text_files(&[("a", "x")]);
    let key = |backend: &str, id: &str| {
        let backend = sandbox_core::BackendName::new(backend).unwrap();
        let id = TemplateId::new(id).unwrap();
        fixture
            .store
            .prewarm(&backend, &id, &files)
            .unwrap()
            .template_key
    };
    assert_ne!(key("ab", "c"), key("a", "bc"));
}

// STC-08, STO-1: times are kept, and are no part of the key; the first ones stay.
#[test]
fn stc_08_times_change_no_key() {
    let fixture = Fixture::new();
    let root = fixture.beside("project");
    write(&root.join("a"), "x");
    set_time(&root.join("a"), 1000, 7);
    let first = fixture.ingest(&root);
    set_time(&root.join("a"), 2000, 8);
    let second = fixture.ingest(&root);
    assert_eq!(first.prewarmed.template_key, second.prewarmed.template_key);
    assert!(second.prewarmed.reused);
    let session = fixture.create(&first.prewarmed.template_key);
    let times = crate::support::times(&workspace(&session));
    assert_eq!(times[&b"a"[..]], (1000, 7));
}

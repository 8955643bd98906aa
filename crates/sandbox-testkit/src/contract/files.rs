//! Files, as the host reads and writes them in a session.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use sandbox_core::{
    Backend, EntryName, ErrorCode, FileKind, FileLimits, ReadOptions, SandboxError, SessionLimits,
    WriteOptions,
};

use super::place::{Place, code, drained, stream_of, within};
use super::script;

/// Paths that are none.
const REFUSED_PATHS: [&str; 10] = [
    "",
    "/",
    "/etc/passwd",
    "..",
    "../a",
    "a/../b",
    "./a",
    "a//b",
    "a/",
    "a\\b",
];

fn limited(files: FileLimits) -> SessionLimits {
    SessionLimits {
        files,
        ..SessionLimits::default()
    }
}

/// PATH-1: both spellings name the same place.
pub async fn path_1_both_spellings_name_the_same_place(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    session.write_text("one/two", "x").await.unwrap();
    assert_eq!(session.read_text("/workspace/one/two").await.unwrap(), "x");
    assert_eq!(
        session.list(".").await.unwrap(),
        session.list("/workspace").await.unwrap()
    );
    assert_eq!(
        session.resolve_path("one/two").unwrap().to_string(),
        "/workspace/one/two"
    );
    place.delete().await;
}

/// PATH-2, SES-7: every operation refuses what is no canonical path.
pub async fn path_2_every_operation_refuses_odd_paths(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    for path in REFUSED_PATHS {
        let codes = [
            code(session.stat(path).await),
            code(session.list(path).await),
            code(session.read_binary(path).await),
            code(session.read_stream(path).await.map(drop)),
            code(session.write_text(path, "x").await),
            code(
                session
                    .write_stream(path, stream_of(Vec::new()), WriteOptions::default())
                    .await,
            ),
            code(session.make_dir(path).await),
            code(session.rename(path, "new").await),
            code(session.rename("greeting", path).await),
            code(session.remove(path).await),
            code(session.pack(path).await.map(drop)),
            code(session.unpack(path, stream_of(Vec::new())).await),
        ];
        assert_eq!(codes, [ErrorCode::Path; 12], "{path:?}");
    }
    assert_eq!(session.read_text("greeting").await.unwrap(), "hello");
    place.delete().await;
}

/// PATH-5: a tree may hold any name; listings show it in a form that reads back.
pub async fn path_5_odd_names_are_listed_packed_and_removed(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    session.make_dir("odd").await.unwrap();
    let command = script::builder(script::ODD_NAMES, &[])
        .cwd("odd")
        .build()
        .unwrap();
    place.run_with(command, Default::default()).await.unwrap();
    let names: Vec<EntryName> = session
        .list("odd")
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let expected = [&b"a\xff\nz"[..], b"b\\"].map(EntryName::from_bytes);
    assert_eq!(names, expected);
    let shown = names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown, [r"a\xff\x0az", r"b\\"]);

    let archive = drained(session.pack("odd").await.unwrap()).await.unwrap();
    session
        .unpack("copy", stream_of(vec![Ok(archive.into())]))
        .await
        .unwrap();
    let copied: Vec<EntryName> = session
        .list("copy/odd")
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    assert_eq!(copied, expected);
    session.remove("odd").await.unwrap();
    assert!(!place.is_there("odd").await);
    place.delete().await;
}

/// SES-2: what is written is read, by both sides.
pub async fn ses_2_host_and_commands_see_the_same_files(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    let bytes: Vec<u8> = (0..=255).collect();
    session.write_binary("all", bytes.clone()).await.unwrap();
    assert_eq!(session.read_binary("all").await.unwrap(), bytes);
    session.write_text("here", "from the host").await.unwrap();
    assert_eq!(place.text(script::HERE, &[]).await, "from the host");
    place.text(script::TOUCH, &[]).await;
    assert_eq!(session.read_text("started").await.unwrap(), "x");
    session.write_text("here", "").await.unwrap();
    assert_eq!(session.read_text("here").await.unwrap(), "");
    place.delete().await;
}

/// SES-2: bytes that are no text are an error, not a replacement.
pub async fn ses_2_text_that_is_not_utf_8_is_refused(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    session.write_binary("bad", &b"ok\xff"[..]).await.unwrap();
    assert_eq!(code(session.read_text("bad").await), ErrorCode::Invalid);
    assert_eq!(session.read_binary("bad").await.unwrap(), &b"ok\xff"[..]);
    assert_eq!(
        code(session.read_text("missing").await),
        ErrorCode::NotFound
    );
    place.delete().await;
}

/// SES-2: a remove takes all that is below, and may find nothing.
pub async fn ses_2_remove_is_recursive_and_repeatable(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    session.write_text("deep/a/b/c", "x").await.unwrap();
    for _ in 0..2 {
        session.remove("deep").await.unwrap();
        assert!(!place.is_there("deep").await);
    }
    session.remove("no/such/folder").await.unwrap();
    session.remove("greeting").await.unwrap();
    session.remove("empty").await.unwrap();
    let left: Vec<String> = session
        .list(".")
        .await
        .unwrap()
        .iter()
        .map(|entry| entry.name.to_string())
        .collect();
    assert_eq!(left, ["inner", "sub"]);
    place.delete().await;
}

/// SES-3: the workspace itself is never removed, replaced or renamed.
pub async fn ses_3_the_root_stays(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    let before = session.list(".").await.unwrap();
    for root in [".", "/workspace"] {
        let codes = [
            code(session.remove(root).await),
            code(session.write_text(root, "x").await),
            code(session.rename(root, "new").await),
            code(session.rename("empty", root).await),
        ];
        assert_eq!(codes, [ErrorCode::Path; 4]);
    }
    assert_eq!(session.list(".").await.unwrap(), before);
    place.delete().await;
}

/// SES-4: a write makes missing folders.
pub async fn ses_4_a_write_makes_missing_parents(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    session.write_text("a/b/c/d", "deep").await.unwrap();
    assert_eq!(session.read_text("a/b/c/d").await.unwrap(), "deep");
    assert_eq!(session.stat("a/b").await.unwrap().kind, FileKind::Directory);
    // A file can't become a folder by being written below.
    assert_eq!(
        code(session.write_text("greeting/x", "x").await),
        ErrorCode::Invalid
    );
    assert_eq!(session.read_text("greeting").await.unwrap(), "hello");
    place.delete().await;
}

/// SES-4: a reader sees the old bytes or the new ones, never a part.
pub async fn ses_4_a_replacement_is_atomic_under_readers(backend: &dyn Backend) {
    const ROUNDS: usize = 40;
    let place = Place::new(backend).await;
    let contents = [b'a', b'b'].map(|byte| Bytes::from(vec![byte; 200_000]));
    place
        .session
        .write_binary("shared", contents[0].clone())
        .await
        .unwrap();
    let written = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (session, written) = (Arc::clone(&place.session), Arc::clone(&written));
            let contents = contents.clone();
            tokio::spawn(async move {
                while !written.load(Ordering::SeqCst) {
                    let read = session.read_binary("shared").await.unwrap();
                    assert!(
                        contents.contains(&read),
                        "a part of a write: {} bytes",
                        read.len()
                    );
                }
            })
        })
        .collect();
    for round in 0..ROUNDS {
        place
            .session
            .write_binary("shared", contents[round % 2].clone())
            .await
            .unwrap();
    }
    written.store(true, Ordering::SeqCst);
    for reader in readers {
        within("a reader", reader).await.unwrap();
    }
    let names = place.session.list(".").await.unwrap();
    assert_eq!(names.len(), 5, "a draft was left behind: {names:?}");
    place.delete().await;
}

/// SES-4: an existing file keeps its mode, a new one is plain.
pub async fn ses_4_a_write_keeps_the_mode(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    let mode = async |path| session.stat(path).await.unwrap().mode;
    session.write_text("sub/run", "#!/bin/sh\n").await.unwrap();
    assert_eq!(mode("sub/run").await, 0o755);
    place.text(script::CHMOD, &["600", "greeting"]).await;
    session.write_text("greeting", "changed").await.unwrap();
    assert_eq!(mode("greeting").await, 0o600);
    session.write_text("new", "x").await.unwrap();
    assert_eq!(mode("new").await, 0o644);
    place.delete().await;
}

/// SES-4: what is too large is refused before anything is touched.
pub async fn ses_4_a_write_over_the_limit_touches_nothing(backend: &dyn Backend) {
    let limits = limited(FileLimits {
        max_write_bytes: 10,
        ..FileLimits::default()
    });
    let place = Place::with(backend, limits).await;
    let session = &place.session;
    session.write_text("greeting", "0123456789").await.unwrap();
    let error = session
        .write_text("greeting", "0123456789a")
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert!(error.to_string().contains("11 bytes"), "{error}");
    assert_eq!(session.read_text("greeting").await.unwrap(), "0123456789");
    assert_eq!(
        code(session.write_text("fresh/file", "0123456789a").await),
        ErrorCode::Limit
    );
    assert!(!place.is_there("fresh").await);
    place.delete().await;
}

/// SES-5: a read over the limit names the size; parts are read.
pub async fn ses_5_a_read_over_the_limit_names_the_size(backend: &dyn Backend) {
    let limits = limited(FileLimits {
        max_read_bytes: 10,
        ..FileLimits::default()
    });
    let place = Place::with(backend, limits).await;
    let session = &place.session;
    session.write_text("ten", "0123456789").await.unwrap();
    session.write_text("more", "0123456789a").await.unwrap();
    assert_eq!(session.read_text("ten").await.unwrap(), "0123456789");
    let error = session.read_binary("more").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert!(error.to_string().contains("11"), "{error}");

    let part = |offset, length| ReadOptions {
        offset,
        length: NonZeroU64::new(length),
    };
    assert_eq!(session.read("more", part(8, 10)).await.unwrap(), "89a");
    assert_eq!(session.read("more", part(1, 3)).await.unwrap(), "123");
    assert_eq!(session.read("more", part(100, 3)).await.unwrap(), "");
    assert_eq!(
        session.read("more", part(1, 0)).await.unwrap(),
        "123456789a"
    );
    assert_eq!(
        code(session.read("more", part(0, 11)).await),
        ErrorCode::Limit
    );
    place.delete().await;
}

/// SES-5: a folder or a FIFO is refused at once, whoever waits at its other end.
pub async fn ses_5_folders_and_fifos_are_refused_at_once(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    place.text(script::FIFO, &["pipe"]).await;
    assert_eq!(session.stat("pipe").await.unwrap().kind, FileKind::Fifo);
    for path in ["sub", "pipe", "."] {
        let read = within("a read", session.read_binary(path)).await;
        assert_eq!(code(read), ErrorCode::Invalid, "{path}");
        let stream = within("a stream", session.read_stream(path)).await;
        assert_eq!(code(stream.map(drop)), ErrorCode::Invalid, "{path}");
    }
    for path in ["sub", "pipe"] {
        let written = within("a write", session.write_text(path, "x")).await;
        assert_eq!(code(written), ErrorCode::Invalid, "{path}");
    }
    for path in ["greeting", "pipe"] {
        let listed = within("a list", session.list(path)).await;
        assert_eq!(code(listed), ErrorCode::Invalid, "{path}");
    }
    session.remove("pipe").await.unwrap();
    place.delete().await;
}

/// SES-6: a link that leads out is refused, whatever goes over it.
pub async fn ses_6_a_link_out_is_refused(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    for (target, link) in [
        ("/etc/passwd", "absolute"),
        ("../../../../../../../../etc/passwd", "above"),
        ("/etc", "folder"),
        ("../..", "folder-above"),
        ("absolute", "twice"),
    ] {
        place.text(script::LINK, &[target, link]).await;
    }
    let files = [
        "absolute",
        "above",
        "twice",
        "folder/passwd",
        "folder-above/x",
    ];
    for path in files {
        let codes = [
            code(session.read_binary(path).await),
            code(session.read_stream(path).await.map(drop)),
            code(session.write_text(path, "x").await),
        ];
        assert_eq!(codes, [ErrorCode::Path; 3], "{path}");
    }
    for path in ["folder", "folder-above"] {
        let codes = [
            code(session.list(path).await),
            code(session.make_dir(&format!("{path}/new")).await),
            code(session.remove(&format!("{path}/passwd")).await),
            code(session.stat(&format!("{path}/passwd")).await),
            code(session.rename("greeting", &format!("{path}/new")).await),
            code(
                session
                    .unpack(&format!("{path}/new"), stream_of(Vec::new()))
                    .await,
            ),
        ];
        assert_eq!(codes, [ErrorCode::Path; 6], "{path}");
    }
    assert_eq!(session.read_text("greeting").await.unwrap(), "hello");
    place.delete().await;
}

/// SES-6: a link is removed and described itself, never what it leads to.
pub async fn ses_6_a_link_is_removed_not_followed(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    place.text(script::LINK, &["sub", "to-sub"]).await;
    place.text(script::LINK, &["/etc", "out"]).await;
    for link in ["to-sub", "out", "inner"] {
        assert_eq!(session.stat(link).await.unwrap().kind, FileKind::Symlink);
    }
    for link in ["to-sub", "out"] {
        session.remove(link).await.unwrap();
        assert!(!place.is_there(link).await);
    }
    assert_eq!(session.read_text("sub/here").await.unwrap(), "there");
    place.delete().await;
}

/// SES-6: a link that stays inside is followed, to read and to write.
pub async fn ses_6_a_link_that_stays_inside_is_followed(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    assert_eq!(session.read_text("inner").await.unwrap(), "there");
    session.write_text("inner", "changed").await.unwrap();
    assert_eq!(session.read_text("inner").await.unwrap(), "changed");
    place.text(script::LINK, &["loop", "loop"]).await;
    assert_eq!(code(session.read_binary("loop").await), ErrorCode::Path);
    place.delete().await;
}

/// SES-8: a listing has every entry once, in byte order, with what it is.
pub async fn ses_8_a_list_is_whole_and_in_byte_order(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    for name in ["é", "Z", "a b", "-rf"] {
        session.write_text(name, name).await.unwrap();
    }
    let listed: Vec<(String, FileKind, u32)> = session
        .list(".")
        .await
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name.to_string(), entry.stat.kind, entry.stat.mode))
        .collect();
    let expected = [
        ("-rf", FileKind::File, 0o644),
        ("Z", FileKind::File, 0o644),
        ("a b", FileKind::File, 0o644),
        ("empty", FileKind::Directory, 0o755),
        ("greeting", FileKind::File, 0o644),
        ("inner", FileKind::Symlink, 0o777),
        ("sub", FileKind::Directory, 0o755),
        ("é", FileKind::File, 0o644),
    ]
    .map(|(name, kind, mode)| (name.to_owned(), kind, mode));
    assert_eq!(listed, expected);
    assert_eq!(session.stat("greeting").await.unwrap().size, 5);
    assert_eq!(code(session.list("missing").await), ErrorCode::NotFound);
    assert_eq!(code(session.stat("missing").await), ErrorCode::NotFound);
    place.delete().await;
}

/// SES-8: more entries than the limit are refused, not cut.
pub async fn ses_8_a_list_over_the_limit_is_refused(backend: &dyn Backend) {
    let limits = limited(FileLimits {
        max_entries: 4,
        ..FileLimits::default()
    });
    let place = Place::with(backend, limits).await;
    let session = &place.session;
    assert_eq!(session.list(".").await.unwrap().len(), 4);
    session.write_text("fifth", "x").await.unwrap();
    assert_eq!(code(session.list(".").await), ErrorCode::Limit);
    place.delete().await;
}

/// SES-8: folders are made with their parents, and may be there.
pub async fn ses_8_make_dir_makes_parents(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    for _ in 0..2 {
        session.make_dir("x/y/z").await.unwrap();
    }
    assert_eq!(
        session.stat("x/y/z").await.unwrap().kind,
        FileKind::Directory
    );
    session.make_dir(".").await.unwrap();
    for taken in ["greeting", "greeting/below"] {
        assert_eq!(code(session.make_dir(taken).await), ErrorCode::Invalid);
    }
    place.delete().await;
}

/// SES-8: a rename replaces its like and nothing else.
pub async fn ses_8_rename_replaces_its_like(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    session.write_text("new", "new").await.unwrap();
    session.rename("new", "greeting").await.unwrap();
    assert_eq!(session.read_text("greeting").await.unwrap(), "new");
    assert!(!place.is_there("new").await);
    session.rename("sub", "empty").await.unwrap();
    assert_eq!(session.read_text("empty/here").await.unwrap(), "there");
    session.make_dir("full/of").await.unwrap();
    let codes = [
        code(session.rename("missing", "x").await),
        code(session.rename("greeting", "no/folder").await),
        code(session.rename("greeting", "empty").await),
        code(session.rename("empty", "greeting").await),
        code(session.rename("empty", "full").await),
        code(session.rename("full", "full/of/itself").await),
    ];
    let expected = [ErrorCode::NotFound, ErrorCode::NotFound]
        .into_iter()
        .chain([ErrorCode::Invalid; 4]);
    assert!(codes.into_iter().eq(expected), "{codes:?}");
    place.delete().await;
}

/// SES-8: what is larger than a buffer is streamed both ways.
pub async fn ses_8_large_files_are_streamed(backend: &dyn Backend) {
    const PIECE: usize = 100_000;
    let place = Place::new(backend).await;
    let session = &place.session;
    let pieces: Vec<Bytes> = (0..30_u8).map(|byte| vec![byte; PIECE].into()).collect();
    session
        .write_stream(
            "big/file",
            stream_of(pieces.iter().cloned().map(Ok).collect()),
            WriteOptions { durable: true },
        )
        .await
        .unwrap();
    assert_eq!(
        code(session.read_binary("big/file").await),
        ErrorCode::Limit
    );
    let read = drained(session.read_stream("big/file").await.unwrap())
        .await
        .unwrap();
    assert!(read == pieces.concat(), "{} bytes", read.len());
    place.delete().await;
}

/// SES-4, SES-8: a stream that fails or is too long leaves the old file.
pub async fn ses_8_a_failed_stream_changes_nothing(backend: &dyn Backend) {
    let limits = limited(FileLimits {
        max_stream_bytes: 10,
        ..FileLimits::default()
    });
    let place = Place::with(backend, limits).await;
    let session = &place.session;
    let write = async |pieces| {
        session
            .write_stream("greeting", stream_of(pieces), WriteOptions::default())
            .await
    };
    let piece = || Ok(Bytes::from_static(b"01234"));
    let broken = SandboxError::new(ErrorCode::Cancelled, "the sender is gone");
    let error = write(vec![piece(), Err(broken)]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(
        code(write(vec![piece(), piece(), piece()]).await),
        ErrorCode::Limit
    );
    assert_eq!(session.read_text("greeting").await.unwrap(), "hello");
    write(vec![piece(), piece()]).await.unwrap();
    assert_eq!(session.read_text("greeting").await.unwrap(), "0123401234");
    assert_eq!(session.list(".").await.unwrap().len(), 4);
    place.delete().await;
}

/// SES-8: what is packed unpacks to the same tree.
pub async fn ses_8_pack_and_unpack_round_trip(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    let archive = drained(session.pack("sub").await.unwrap()).await.unwrap();
    session
        .unpack("copy/of", stream_of(vec![Ok(archive.into())]))
        .await
        .unwrap();
    assert_eq!(
        session.read_text("copy/of/sub/here").await.unwrap(),
        "there"
    );
    assert_eq!(session.stat("copy/of/sub/run").await.unwrap().mode, 0o755);

    // The root packs what is in it, an entry alone itself.
    let archive = drained(session.pack(".").await.unwrap()).await.unwrap();
    let names = names_of(&archive);
    assert!(names.contains(&"greeting".to_owned()), "{names:?}");
    assert!(names.contains(&"inner".to_owned()), "{names:?}");
    let archive = drained(session.pack("sub/here").await.unwrap())
        .await
        .unwrap();
    assert_eq!(names_of(&archive), ["here"]);
    assert_eq!(
        code(session.pack("missing").await.map(drop)),
        ErrorCode::NotFound
    );
    place.delete().await;
}

fn names_of(archive: &[u8]) -> Vec<String> {
    let mut archive = tar::Archive::new(archive);
    let mut names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            String::from_utf8(entry.path_bytes().into_owned()).unwrap()
        })
        .map(|name| name.trim_end_matches('/').to_owned())
        .collect();
    names.sort_unstable();
    names
}

/// SES-6, SES-8: no entry of an archive lands outside, and a damaged one is refused.
pub async fn ses_8_a_hostile_archive_stays_inside(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let session = &place.session;
    let unpack = async |archive: Vec<u8>| {
        session
            .unpack("target", stream_of(vec![Ok(archive.into())]))
            .await
    };
    for name in ["../escaped", "a/../../escaped", "/escaped"] {
        assert_eq!(
            code(unpack(hostile(name, None)).await),
            ErrorCode::Path,
            "{name}"
        );
    }
    // Through a link that the archive itself brings.
    let mut archive = hostile("out", Some(".."));
    archive.truncate(512);
    archive.extend(hostile("out/escaped", None));
    assert_eq!(code(unpack(archive).await), ErrorCode::Path);
    assert!(!place.is_there("escaped").await);
    assert_eq!(code(unpack(vec![b'x'; 1024]).await), ErrorCode::Invalid);
    let mut cut = hostile("file", None);
    cut.truncate(515);
    assert_eq!(code(unpack(cut).await), ErrorCode::Invalid);
    place.delete().await;
}

/// An archive of one file or link, with a name that the writer of archives would refuse.
fn hostile(name: &str, link: Option<&str>) -> Vec<u8> {
    let content = if link.is_some() { &b""[..] } else { b"content" };
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_entry_type(tar::EntryType::Regular);
    if let Some(target) = link {
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_link_name(target).unwrap();
    }
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, content).unwrap();
    archive.into_inner().unwrap()
}

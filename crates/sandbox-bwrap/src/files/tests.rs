//! The file rules under attack, over a plain folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use sandbox_core::FileKind;
use tempfile::TempDir;

use super::*;

/// A workspace beside a folder that nothing may reach.
struct Place {
    root: TempDir,
    files: Files,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("workspace")).unwrap();
        fs::create_dir(root.path().join("outside")).unwrap();
        fs::write(root.path().join("outside/secret"), "secret").unwrap();
        let folder = fs::File::open(root.path().join("workspace")).unwrap();
        Self {
            files: Files::of_host(folder.into()),
            root,
        }
    }

    fn inside(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join("workspace").join(path)
    }
}

fn path(written: &str) -> WorkspacePath {
    WorkspacePath::parse(written).unwrap()
}

async fn read(files: &Files, written: &str) -> Result<Bytes> {
    files
        .read(&path(written), ReadOptions::default(), 1 << 20)
        .await
}

async fn write(files: &Files, written: &str, content: &'static str) -> Result<()> {
    files
        .write(
            &path(written),
            Bytes::from_static(content.as_bytes()),
            WriteOptions::default(),
        )
        .await
}

async fn next(stream: &mut ByteStream) -> Option<Result<Bytes>> {
    std::future::poll_fn(|context| Pin::as_mut(stream).poll_next(context)).await
}

// SES-6, A03, H11: a link that leads out is refused, one that stays inside is followed.
#[tokio::test]
async fn ses_6_links_that_lead_out_are_refused() {
    let place = Place::new();
    for (name, target) in [
        ("up", "../outside/secret"),
        ("absolute", "/etc/passwd"),
        ("magic", "/proc/self/root/etc/passwd"),
    ] {
        symlink(target, place.inside(name)).unwrap();
        assert_eq!(
            read(&place.files, name).await.unwrap_err().code(),
            ErrorCode::Path,
            "{name}"
        );
        assert_eq!(
            write(&place.files, name, "x").await.unwrap_err().code(),
            ErrorCode::Path,
            "{name}"
        );
    }
    symlink("../outside", place.inside("folder")).unwrap();
    assert_eq!(
        write(&place.files, "folder/new", "x")
            .await
            .unwrap_err()
            .code(),
        ErrorCode::Path
    );
    assert_eq!(
        fs::read_dir(place.root.path().join("outside"))
            .unwrap()
            .count(),
        1
    );

    fs::create_dir(place.inside("real")).unwrap();
    symlink("real/file", place.inside("link")).unwrap();
    write(&place.files, "link", "through").await.unwrap();
    assert_eq!(
        fs::read_to_string(place.inside("real/file")).unwrap(),
        "through"
    );
    assert!(place.inside("link").is_symlink());
}

// SES-5, H02: what is no file is refused at once.
#[tokio::test]
async fn ses_5_nothing_waits_for_a_fifo() {
    let place = Place::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.inside("fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.inside("socket")).unwrap();
    let started = Instant::now();
    for name in ["fifo", "socket", "."] {
        assert_eq!(
            read(&place.files, name).await.unwrap_err().code(),
            ErrorCode::Invalid,
            "{name}"
        );
    }
    for name in ["fifo", "socket"] {
        assert_eq!(
            write(&place.files, name, "x").await.unwrap_err().code(),
            ErrorCode::Invalid,
            "{name}"
        );
    }
    assert!(started.elapsed().as_secs() < 5);
    let kinds: Vec<FileKind> = place
        .files
        .list(&path("."), 10)
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.stat.kind)
        .collect();
    assert_eq!(kinds, [FileKind::Fifo, FileKind::Socket]);
}

// SES-4: parents are made, a mode is kept, no draft is left.
#[tokio::test]
async fn ses_4_a_write_keeps_the_mode_and_leaves_nothing_else() {
    let place = Place::new();
    write(&place.files, "a/b/script", "one").await.unwrap();
    fs::set_permissions(place.inside("a/b/script"), Permissions::from_mode(0o755)).unwrap();
    write(&place.files, "a/b/script", "two").await.unwrap();
    assert_eq!(
        fs::metadata(place.inside("a/b/script"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o755
    );
    assert_eq!(fs::read_dir(place.inside("a/b")).unwrap().count(), 1);
    assert_eq!(
        write(&place.files, "a/b", "x").await.unwrap_err().code(),
        ErrorCode::Invalid
    );
}

// SES-5, H04: the limit is of what is there, and its refusal names the size.
#[tokio::test]
async fn ses_5_a_read_past_its_limit_names_the_size() {
    let place = Place::new();
    fs::File::create(place.inside("sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let error = read(&place.files, "sparse").await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit);
    assert!(
        error.to_string().contains(&(1_u64 << 40).to_string()),
        "{error}"
    );
    let options = ReadOptions {
        offset: 1 << 39,
        length: std::num::NonZeroU64::new(3),
    };
    let part = place
        .files
        .read(&path("sparse"), options, 1 << 20)
        .await
        .unwrap();
    assert_eq!(part, vec![0; 3]);
}

// H01, H05: whatever a command leaves there can be removed.
#[tokio::test]
async fn h01_deep_and_closed_trees_are_removed() {
    let place = Place::new();
    let mut folder =
        rustix::fs::open(place.inside("."), rustix::fs::OFlags::PATH, 0.into()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&folder, "deep", 0o700.into()).unwrap();
        folder = rustix::fs::openat(&folder, "deep", rustix::fs::OFlags::PATH, 0.into()).unwrap();
    }
    fs::create_dir_all(place.inside("closed/inner")).unwrap();
    fs::write(place.inside("closed/inner/file"), "x").unwrap();
    fs::set_permissions(place.inside("closed/inner"), Permissions::from_mode(0o000)).unwrap();
    for name in ["deep", "closed", "missing"] {
        place.files.remove(&path(name)).await.unwrap();
    }
    assert_eq!(fs::read_dir(place.inside(".")).unwrap().count(), 0);
}

// H06: a folder that is swapped for a link meanwhile never leads out.
#[tokio::test(flavor = "multi_thread")]
async fn h06_a_swapped_folder_never_leads_out() {
    let place = Place::new();
    fs::create_dir(place.inside("a")).unwrap();
    fs::write(place.inside("a/secret"), "ours").unwrap();
    symlink("../outside", place.inside("b")).unwrap();
    let stop = AtomicBool::new(false);
    let swapped = |path: &Path| {
        let (a, b) = (path.join("a"), path.join("b"));
        while !stop.load(Ordering::Relaxed) {
            let _ = rustix::fs::renameat_with(
                rustix::fs::CWD,
                &a,
                rustix::fs::CWD,
                &b,
                rustix::fs::RenameFlags::EXCHANGE,
            );
        }
    };
    let folder = place.inside(".");
    std::thread::scope(|scope| {
        scope.spawn(|| swapped(&folder));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for _ in 0..3000 {
                    if let Ok(bytes) = read(&place.files, "a/secret").await {
                        assert_eq!(bytes, "ours");
                    }
                    let _ = write(&place.files, "a/new", "x").await;
                    let _ = place.files.remove(&path("a/new")).await;
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
    });
    let outside: Vec<_> = fs::read_dir(place.root.path().join("outside"))
        .unwrap()
        .collect();
    assert_eq!(outside.len(), 1, "{outside:?}");
}

// SES-8: a tree comes back as it was packed.
#[tokio::test]
async fn ses_8_pack_and_unpack_round_trip() {
    let place = Place::new();
    fs::create_dir_all(place.inside("tree/inner")).unwrap();
    fs::write(place.inside("tree/inner/script"), "run").unwrap();
    fs::set_permissions(
        place.inside("tree/inner/script"),
        Permissions::from_mode(0o750),
    )
    .unwrap();
    symlink("inner/script", place.inside("tree/link")).unwrap();
    fs::hard_link(
        place.inside("tree/inner/script"),
        place.inside("tree/other"),
    )
    .unwrap();
    let limits = FileLimits::default();
    let packed = place.files.pack(&path("tree"), limits).await.unwrap();
    place
        .files
        .unpack(&path("copy"), packed, limits)
        .await
        .unwrap();
    assert_eq!(
        fs::read_to_string(place.inside("copy/tree/inner/script")).unwrap(),
        "run"
    );
    assert_eq!(
        fs::metadata(place.inside("copy/tree/inner/script"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o750
    );
    assert_eq!(
        fs::read_link(place.inside("copy/tree/link")).unwrap(),
        Path::new("inner/script")
    );
    assert_eq!(
        fs::read_to_string(place.inside("copy/tree/other")).unwrap(),
        "run"
    );
}

// FI-33: a held stream is closed by a stop, and says so.
#[tokio::test]
async fn fi_33_a_held_stream_lets_go_of_the_workspace() {
    let place = Place::new();
    fs::File::create(place.inside("big"))
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let mut stream = place
        .files
        .read_stream(&path("big"), 1 << 30)
        .await
        .unwrap();
    assert!(next(&mut stream).await.unwrap().is_ok());
    let held = Arc::downgrade(&place.files.workspace().unwrap());
    place.files.close_all();
    while held.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
    let mut last = None;
    while let Some(piece) = next(&mut stream).await {
        last = Some(piece);
    }
    assert_eq!(last.unwrap().unwrap_err().code(), ErrorCode::Stopped);
    assert_eq!(
        read(&place.files, "big").await.unwrap_err().code(),
        ErrorCode::Stopped
    );
}

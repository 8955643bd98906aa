//! Folders of the host, as they are and as somebody hostile would have them.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sandbox_core::{EntryName, ErrorCode};
use sandbox_storage::{
    HostFolder, IngestOptions, Ingested, SkipReason, Skipped, Stripped, Unreadable,
};

use crate::child::{Other, Task};
use crate::support::{Fixture, assert_code, chmod, is_root, tree, workspace, write};

fn skipped(path: &str, why: SkipReason) -> Skipped {
    Skipped {
        path: EntryName::from_bytes(path.as_bytes()),
        why,
    }
}

/// The paths of a template, read back through a session.
fn paths(fixture: &Fixture, ingested: &Ingested) -> Vec<String> {
    let session = fixture.create(&ingested.prewarmed.template_key);
    let paths = tree(&workspace(&session))
        .into_keys()
        .map(|path| String::from_utf8(path).unwrap())
        .collect();
    session.delete().unwrap();
    paths
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
}

fn git(folder: &Path, arguments: &[&str]) {
    let status = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .status()
        .unwrap();
    assert!(status.success(), "{arguments:?}");
}

// STG-2: everything goes in by default: `.git`, ignored files, empty folders.
#[test]
fn stg_2_all_of_a_folder_goes_in() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join(".gitignore"), "target\n");
    write(&project.join(".git/HEAD"), "ref: refs/heads/main\n");
    write(&project.join("target/debug/app"), "binary");
    write(&project.join("src/main.rs"), "fn main() {}");
    fs::create_dir(project.join("empty")).unwrap();
    let ingested = fixture.ingest(&project);
    let session = fixture.create(&ingested.prewarmed.template_key);
    assert_eq!(tree(&workspace(&session)), tree(&project));
    let stats = ingested.stats;
    assert_eq!((stats.files, stats.directories, stats.skipped), (4, 5, 0));
    assert_eq!(ingested.skipped, []);
}

// STC-10, STG-7: special files are skipped and reported, and nothing hangs.
#[test]
fn stc_10_special_files_are_skipped() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("file"), "x");
    fifo(&project.join("fifo"));
    let _socket = crate::support::socket(&project, "socket");
    let mut wanted = vec![
        skipped("fifo", SkipReason::Fifo),
        skipped("socket", SkipReason::Socket),
    ];
    if is_root() {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            project.join("device"),
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from_raw_mode(0o644),
            rustix::fs::makedev(1, 5),
        )
        .unwrap();
        wanted.insert(0, skipped("device", SkipReason::Device));
    }
    let start = Instant::now();
    let ingested = fixture.ingest(&project);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(ingested.skipped, wanted);
    assert_eq!(paths(&fixture, &ingested), ["file"]);
}

// STC-10: a folder whose files claim to be empty and are not.
#[test]
fn stc_10_files_without_a_size_are_skipped() {
    let fixture = Fixture::new();
    let start = Instant::now();
    let ingested = fixture.ingest(Path::new("/proc/sys/kernel/random"));
    assert!(
        ingested
            .skipped
            .iter()
            .any(|skipped| skipped.why == SkipReason::Endless),
        "{ingested:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(1));
}

// STC-11: what may not be read is reported, or refused; never left out in silence.
#[test]
fn stc_11_unreadable_entries_are_reported() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("file"), "x");
    write(&project.join("shut/inside"), "x");
    write(&project.join("secret"), "x");
    write(&project.join("listable/inside"), "x");
    chmod(&project.join("shut"), 0);
    chmod(&project.join("secret"), 0);
    chmod(&project.join("listable"), 0o444);
    let ingested = fixture.ingest(&project);
    let mut refuse = IngestOptions::default();
    refuse.unreadable = Unreadable::Refuse;
    let refused = fixture.ingest_with(&project, &refuse);
    chmod(&project.join("shut"), 0o755);
    chmod(&project.join("listable"), 0o755);
    if is_root() {
        // Root may read all of it.
        assert_eq!(ingested.skipped, []);
        assert_eq!(paths(&fixture, &ingested).len(), 6);
        refused.unwrap();
        return;
    }
    assert_eq!(
        ingested.skipped,
        [
            skipped("listable/inside", SkipReason::Unreadable),
            skipped("secret", SkipReason::Unreadable),
            skipped("shut", SkipReason::Unreadable),
        ]
    );
    assert_code(refused, ErrorCode::Storage, &["failed"]);
}

/// A folder with rules of every kind.
fn with_rules(project: &Path) {
    write(
        &project.join(".gitignore"),
        "*.log\nbuild/\n/top\n!keep.log\n.*cache\n",
    );
    write(
        &project.join("sub/.gitignore"),
        "!important.log\nlocal\n# comment\n\\#hash\n",
    );
    write(
        &project.join("sub/deeper/.gitignore"),
        "*\n!.gitignore\n!kept/\n!kept/**\n",
    );
    for file in [
        "a.log",
        "keep.log",
        "top",
        "sub/top",
        "sub/important.log",
        "sub/other.log",
        "sub/local",
        "local",
        "sub/#hash",
        "build/out",
        "build/keep.log",
        "sub/build/x",
        "src/build.rs",
        "sub/deeper/gone",
        "sub/deeper/kept/file",
        "info.ignored",
        "globally.ignored",
        ".mypycache/x",
        "normal",
    ] {
        write(&project.join(file), file);
    }
}

// STC-12: left out is what git itself would leave out, rule by rule.
#[test]
fn stc_12_ignore_rules_are_gits() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    git(&project, &["init", "-q"]);
    with_rules(&project);
    fs::write(project.join(".git/info/exclude"), "info.ignored\n!top\n").unwrap();
    // Tracked though a rule ignores them.
    write(&project.join("build/tracked"), "x");
    write(&project.join("forced.log"), "x");
    git(&project, &["add", "-f", "build/tracked", "forced.log"]);
    let mut options = IngestOptions::default();
    options.respect_ignore = true;
    let ingested = fixture.ingest_with(&project, &options).unwrap();
    let mut found: Vec<String> = paths(&fixture, &ingested)
        .into_iter()
        .filter(|path| !path.starts_with(".git/") && path != ".git")
        .filter(|path| !project.join(path).is_dir())
        .collect();
    found.sort();
    let listed = Command::new("git")
        .current_dir(&project)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    let mut wanted: Vec<String> = String::from_utf8(listed.stdout)
        .unwrap()
        .split_terminator('\0')
        .map(str::to_owned)
        .collect();
    wanted.sort();
    assert!(wanted.contains(&"build/tracked".to_owned()), "{wanted:?}");
    assert_eq!(found, wanted);
    assert!(ingested.stats.ignored > 5, "{:?}", ingested.stats);
}

// STC-12: the person's own global rules have no say.
#[test]
fn stc_12_global_rules_are_not_read() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("globally.ignored"), "x");
    write(&fixture.beside("home/git").join("ignore"), "*.ignored\n");
    let mut options = IngestOptions::default();
    options.respect_ignore = true;
    let ingested = fixture.ingest_with(&project, &options).unwrap();
    assert_eq!(paths(&fixture, &ingested), ["globally.ignored"]);
}

// STC-12: rules of an outer repository end at an inner one.
#[test]
fn stc_12_an_inner_repository_has_its_own_rules() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    git(&project, &["init", "-q"]);
    write(&project.join(".gitignore"), "*.log\n");
    write(&project.join("inner/a.log"), "x");
    write(&project.join("inner/b.tmp"), "x");
    write(&project.join("inner/.gitignore"), "*.tmp\n");
    git(&project.join("inner"), &["init", "-q"]);
    let mut options = IngestOptions::default();
    options.respect_ignore = true;
    let ingested = fixture.ingest_with(&project, &options).unwrap();
    let found = paths(&fixture, &ingested);
    assert!(found.contains(&"inner/a.log".to_owned()));
    assert!(!found.contains(&"inner/b.tmp".to_owned()));
}

// STC-13: a worktree's or submodule's `.git` file is kept like a folder, and not followed.
#[test]
fn stc_13_git_files_are_kept_and_not_followed() {
    let fixture = Fixture::new();
    let elsewhere = fixture.beside("elsewhere");
    write(&elsewhere.join("info/exclude"), "*\n");
    let project = fixture.beside("project");
    let pointer = format!("gitdir: {}\n", elsewhere.display());
    write(&project.join(".git"), &pointer);
    write(&project.join("sub/.git"), &pointer);
    write(&project.join("sub/file"), "x");
    for respect_ignore in [false, true] {
        let mut options = IngestOptions::default();
        options.respect_ignore = respect_ignore;
        let ingested = fixture.ingest_with(&project, &options).unwrap();
        assert_eq!(
            paths(&fixture, &ingested),
            [".git", "sub", "sub/.git", "sub/file"]
        );
    }
}

// The caller's patterns, in the language that people know.
#[test]
fn patterns_leave_out_what_they_match() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    for file in [
        "target/x",
        "src/target",
        "a.o",
        "src/b.o",
        "src/keep.o",
        "docs/c",
    ] {
        write(&project.join(file), "x");
    }
    let mut options = IngestOptions::default();
    options.exclude = ["/target", "*.o", "!keep.o", "docs/"]
        .map(str::to_owned)
        .to_vec();
    let ingested = fixture.ingest_with(&project, &options).unwrap();
    assert_eq!(
        paths(&fixture, &ingested),
        ["src", "src/keep.o", "src/target"]
    );
    assert_eq!(ingested.stats.excluded, 4);
    for refused in ["", "  ", "a\\"] {
        options.exclude = vec![refused.to_owned()];
        assert_code(
            fixture.ingest_with(&project, &options),
            ErrorCode::Invalid,
            &["pattern"],
        );
    }
}

// STC-14: several names of one file stay several names of one file.
#[test]
fn stc_14_hard_links_are_kept() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("a/one"), "linked");
    fs::hard_link(project.join("a/one"), project.join("two")).unwrap();
    fs::hard_link(project.join("a/one"), project.join("a/three")).unwrap();
    write(&project.join("alone"), "linked");
    let outside = fixture.beside("outside").join("other name");
    fs::hard_link(project.join("alone"), &outside).unwrap();
    let ingested = fixture.ingest(&project);
    assert_eq!(ingested.stats.bytes, 12);
    assert_eq!(crate::support::blobs(&fixture.root()).len(), 1);
    let session = fixture.create(&ingested.prewarmed.template_key);
    let stat = |name: &str| workspace(&session).join(name).metadata().unwrap();
    assert_eq!(stat("a/one").ino(), stat("two").ino());
    assert_eq!(stat("a/one").ino(), stat("a/three").ino());
    assert_eq!((stat("two").nlink(), stat("alone").nlink()), (3, 1));
    assert_eq!(session.changes().unwrap(), []);
}

// STC-15: depth beyond PATH_MAX, with the limit raised and without.
#[test]
fn stc_15_three_thousand_levels_go_in_and_out() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    crate::sessions::make_deep(&project, 3000);
    assert_code(
        fixture.ingest_with(&project, &IngestOptions::default()),
        ErrorCode::Limit,
        &["max_depth", "256"],
    );
    let mut options = IngestOptions::default();
    options.limits.max_depth = 4000;
    let ingested = fixture.ingest_with(&project, &options).unwrap();
    assert_eq!(
        (ingested.stats.directories, ingested.stats.files),
        (3000, 3000)
    );
    let session = fixture.create(&ingested.prewarmed.template_key);
    assert_eq!(session.changes().unwrap(), []);
    session.delete().unwrap();
    fixture.assert_no_leftovers();
    // For the temporary folder's own clean-up, which follows paths.
    let removed = Command::new("rm")
        .arg("-rf")
        .arg(&project)
        .status()
        .unwrap();
    assert!(removed.success());
}

// STC-16: many files in one folder.
#[test]
fn stc_16_a_wide_folder_goes_in() {
    const FILES: usize = 100_000;
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("first"), "x");
    for number in 1..FILES {
        // Names of few inodes: links cost little, and each is an entry.
        let from = if number % 30_000 == 0 {
            write(&project.join(format!("f{number}")), "x");
            continue;
        } else {
            match number / 30_000 {
                0 => "first".to_owned(),
                group => format!("f{}", group * 30_000),
            }
        };
        fs::hard_link(project.join(from), project.join(format!("f{number}"))).unwrap();
    }
    let task = Task::Measure {
        project: project.to_str().unwrap().to_owned(),
    };
    let mut other = Other::start(&fixture.root(), &task);
    let said = other.says();
    let (peak, _) = said.split_once(' ').unwrap();
    // 10 MiB of the program itself, and about 200 bytes an entry each time it is held.
    assert!(peak.parse::<u64>().unwrap() < 128 * 1024, "{peak} KiB");
    other.finish();
}

// STC-09: a sparse file of more than 4 GiB streams through in little memory.
#[test]
fn stc_09_a_huge_sparse_file_streams_through() {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};
    const SIZE: u64 = (4 << 30) + 4097;
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    let file = fs::File::create(project.join("sparse")).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(b"middle", 3 << 30).unwrap();
    file.write_all_at(b"end", SIZE - 3).unwrap();
    drop(file);
    let task = Task::Measure {
        project: project.to_str().unwrap().to_owned(),
    };
    let mut other = Other::start(&fixture.root(), &task);
    let said = other.says();
    let (peak, key) = said.split_once(' ').unwrap();
    assert!(peak.parse::<u64>().unwrap() < 64 * 1024, "{peak} KiB");
    other.finish();
    let session = fixture.create(&key.parse().unwrap());
    let made = workspace(&session).join("sparse");
    let stat = made.metadata().unwrap();
    assert_eq!(stat.size(), SIZE);
    assert!(stat.blocks() * 512 < 16 << 20, "{} blocks", stat.blocks());
    let made = fs::File::open(made).unwrap();
    let mut bytes = [0; 6];
    made.read_exact_at(&mut bytes, 3 << 30).unwrap();
    assert_eq!(&bytes, b"middle");
}

// STC-18: bits and attributes that no template carries.
#[test]
fn stc_18_set_id_bits_and_attributes_are_dropped_and_reported() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("tool"), "x");
    write(&project.join("shared/file"), "x");
    chmod(&project.join("tool"), 0o6755);
    chmod(&project.join("shared"), 0o1777);
    rustix::fs::setxattr(
        project.join("shared/file"),
        "user.overlay.opaque",
        b"y",
        rustix::fs::XattrFlags::CREATE,
    )
    .unwrap();
    let stripped = |path: &str, what: &str| Stripped {
        path: EntryName::from_bytes(path.as_bytes()),
        what: EntryName::from_bytes(what.as_bytes()),
    };
    let ingested = fixture.ingest(&project);
    assert_eq!(
        ingested.stripped,
        [
            stripped("shared", "sticky"),
            stripped("shared/file", "user.overlay.opaque"),
            stripped("tool", "setgid"),
            stripped("tool", "setuid"),
        ]
    );
    let session = fixture.create(&ingested.prewarmed.template_key);
    let mode = |name: &str| {
        workspace(&session)
            .join(name)
            .metadata()
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!((mode("tool"), mode("shared")), (0o755, 0o777));
    let mut names = [0_u8; 256];
    let made = workspace(&session).join("shared/file");
    let length = rustix::fs::listxattr(&made, &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    assert!(!names.contains("overlay"), "{names}");
}

// STC-19: files that change under the reader give one consistent content or BUSY.
#[test]
fn stc_19_changing_files_are_consistent_or_busy() {
    use std::os::unix::fs::FileExt as _;
    const SIZE: usize = 3 << 20;
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    let file = project.join("state");
    // Each state is one letter throughout: as long as the one before, or not.
    let state = |number: usize, size: usize| vec![b'a' + (number % 20) as u8; size];
    fs::write(&file, state(0, SIZE)).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (stop, file) = (Arc::clone(&stop), file.clone());
        move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                match number % 4 {
                    0 => fs::write(&file, state(number, SIZE - number % 20)).unwrap(),
                    1 => {
                        let new = file.with_extension("new");
                        fs::write(&new, state(number, SIZE)).unwrap();
                        fs::rename(&new, &file).unwrap();
                    }
                    _ => {
                        let open = fs::OpenOptions::new().write(true).open(&file).unwrap();
                        open.write_all_at(&state(number, SIZE), 0).unwrap();
                    }
                }
                std::thread::sleep(Duration::from_millis(number as u64 % 5));
            }
        }
    });
    let mut read = 0;
    for _ in 0..30 {
        match fixture.ingest_with(&project, &IngestOptions::default()) {
            Ok(_) => read += 1,
            Err(error) => assert_eq!(error.code(), ErrorCode::Busy, "{error:?}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    // Whatever was stored the file once was: one state, or the beginning of one over the
    // one before, while it was being written. A torn reading has the older one first.
    for (path, (thing, _)) in crate::support::blobs(&fixture.root()) {
        let crate::support::Thing::File(0o400, bytes) = thing else {
            panic!("{path:?}")
        };
        let borders: Vec<(u8, u8)> = bytes
            .windows(2)
            .filter(|pair| pair[0] != pair[1])
            .map(|pair| (pair[0] - b'a', pair[1] - b'a'))
            .collect();
        match *borders {
            [] => {}
            [(new, old)] => assert_eq!(new, (old + 1) % 20, "a torn reading"),
            _ => panic!("a torn reading: {borders:?}"),
        }
    }
    assert!(read > 0 || fixture.store.list_templates().unwrap().is_empty());
}

// STC-20: each limit by name and value, and nothing published.
#[test]
fn stc_20_limits_are_named_and_nothing_is_published() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    for number in 0..20 {
        write(&project.join(format!("a/b/{number}")), "0123456789");
    }
    let before = fixture.snapshot();
    type Set = fn(&mut IngestOptions);
    let cases: [(&str, &str, Set); 4] = [
        ("max_entries", "10", |options| {
            options.limits.max_entries = 10;
        }),
        ("max_bytes", "150", |options| options.limits.max_bytes = 150),
        ("max_file_bytes", "9", |options| {
            options.limits.max_file_bytes = 9;
        }),
        ("max_depth", "2", |options| options.limits.max_depth = 2),
    ];
    for (name, value, set) in cases {
        let mut options = IngestOptions::default();
        set(&mut options);
        assert_code(
            fixture.ingest_with(&project, &options),
            ErrorCode::Limit,
            &[name, value],
        );
        assert_eq!(fixture.snapshot(), before, "{name}");
    }
    // What exactly fits goes in.
    let mut options = IngestOptions::default();
    options.limits.max_entries = 22;
    options.limits.max_bytes = 200;
    options.limits.max_file_bytes = 10;
    options.limits.max_depth = 3;
    fixture.ingest_with(&project, &options).unwrap();
}

// STC-21: the root is resolved once; what takes its name later is not read.
#[test]
fn stc_21_the_root_is_resolved_once() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("right"), "x");
    let link = fixture.folder.path().join("link");
    symlink(&project, &link).unwrap();
    let folder = HostFolder::open(&link).unwrap();
    assert_eq!(folder.path(), project.canonicalize().unwrap());
    fs::rename(&project, fixture.folder.path().join("moved")).unwrap();
    write(&project.join("wrong"), "x");
    fs::remove_file(&link).unwrap();
    let ingested = fixture
        .store
        .ingest(
            &crate::support::backend(),
            &crate::support::id("t"),
            &folder,
            &IngestOptions::default(),
        )
        .unwrap();
    assert_eq!(paths(&fixture, &ingested), ["right"]);
}

// STC-21, STG-7: folders swapped for links during the walk: nothing outside is read.
#[test]
fn stg_7_swaps_during_the_walk_read_nothing_outside() {
    let fixture = Fixture::new();
    let (outside, project) = (fixture.beside("outside"), fixture.beside("project"));
    for number in 0..20 {
        write(&outside.join(format!("d{number}/file")), "secret");
        write(&project.join(format!("way/d{number}/file")), "public");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (stop, project) = (Arc::clone(&stop), project.clone());
        move || {
            let (way, aside) = (project.join("way"), project.join("aside"));
            while !stop.load(Ordering::Relaxed) {
                fs::rename(&way, &aside).unwrap();
                symlink("../outside", &way).unwrap();
                std::thread::yield_now();
                fs::remove_file(&way).unwrap();
                fs::rename(&aside, &way).unwrap();
                std::thread::yield_now();
            }
        }
    });
    for _ in 0..200 {
        match fixture.ingest_with(&project, &IngestOptions::default()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.code(), ErrorCode::Busy, "{error:?}"),
        }
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    let secret = crate::support::blobs(&fixture.root())
        .into_values()
        .any(|(thing, _)| thing == crate::support::Thing::File(0o400, b"secret".to_vec()));
    assert!(!secret);
}

// STC-22: a folder that contains the store.
#[test]
fn stc_22_the_store_is_left_out() {
    let fixture = Fixture::new();
    fixture.prewarm(&[("a", "x")]);
    write(&fixture.folder.path().join("file"), "y");
    let ingested = fixture.ingest(fixture.folder.path());
    assert_eq!(ingested.skipped, [skipped("state", SkipReason::Store)]);
    assert_eq!(paths(&fixture, &ingested), ["file"]);
    for inside in ["", "blobs"] {
        assert_code(
            fixture.ingest_with(&fixture.root().join(inside), &IngestOptions::default()),
            ErrorCode::Invalid,
            &["part of the store"],
        );
    }
}

// Files that look like credentials go in, and are named.
#[test]
fn credentials_are_named() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    for file in [
        ".env",
        "config/.env.local",
        "deploy/server.pem",
        "src/main.rs",
        ".env.example",
    ] {
        write(&project.join(file), "x");
    }
    let ingested = fixture.ingest(&project);
    let named: Vec<String> = ingested
        .credential_like
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(named, [".env", "config/.env.local", "deploy/server.pem"]);
    assert_eq!(ingested.stats.credential_like, 3);
    assert_eq!(ingested.stats.files, 5);
}

// Progress is told, and may end it.
#[test]
fn progress_may_stop_an_ingest() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    for number in 0..200 {
        write(&project.join(number.to_string()), number.to_string());
    }
    let mut options = IngestOptions::default();
    options.progress = Some(Arc::new(|_| {
        std::thread::sleep(Duration::from_millis(1));
        ControlFlow::Break(())
    }));
    // The first word comes a tenth of a second after the start at the earliest.
    let big = fs::File::create(project.join("big")).unwrap();
    big.set_len(2 << 30).unwrap();
    let result = fixture.ingest_with(&project, &options);
    assert_code(result, ErrorCode::Cancelled, &["stopped"]);
    assert!(fixture.store.list_templates().unwrap().is_empty());
    fixture.assert_no_leftovers();
}

// What is no folder.
#[test]
fn what_is_no_folder_is_refused() {
    let fixture = Fixture::new();
    let file = fixture.beside("project").join("file");
    write(&file, "x");
    assert_code(HostFolder::open(&file), ErrorCode::Invalid, &["file"]);
    let missing = fixture.folder.path().join("missing");
    assert_code(
        HostFolder::open(&missing),
        ErrorCode::NotFound,
        &["missing"],
    );
}

// The second ingest of an unchanged folder with large files finds them without writing.
#[test]
fn a_folder_ingested_again_is_reused() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    write(&project.join("large"), &large);
    let first = fixture.ingest(&project);
    let name = sandbox_storage::RefName::for_folder(&project.canonicalize().unwrap());
    fixture
        .store
        .set_ref(&name, &first.prewarmed.template_key, None)
        .unwrap();
    assert!(fixture.ingest(&project).prewarmed.reused);
    // Changed at the same size: the hint is only a hint.
    let mut other = large;
    other[5_000_000] ^= 1;
    write(&project.join("large"), &other);
    let third = fixture.ingest(&project);
    assert!(!third.prewarmed.reused);
    let session = fixture.create(&third.prewarmed.template_key);
    assert!(fs::read(workspace(&session).join("large")).unwrap() == other);
}

//! Mounts, in a mount namespace of their own: a disk that runs full, and what must not be entered.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::child::{Other, Task};
use crate::support::{Fixture, is_root, write};

/// A command that mounts a small tmpfs where the store will be and starts what follows.
fn on_a_small_disk(folder: &std::path::Path, options: &str) -> Command {
    let script = r#"mount -t tmpfs -o "$2" tmpfs "$1" && shift 2 && exec "$@""#;
    let mut command = Command::new("unshare");
    // An ordinary user may mount in a user namespace of their own.
    command.arg(if is_root() { "-m" } else { "-Urm" });
    command
        .args(["sh", "-c", script, "sh"])
        .arg(folder)
        .arg(options);
    command.arg(std::env::current_exe().unwrap());
    command
}

/// What an ingest of so many files of so many bytes says on a disk of these options.
fn ingest_on(options: &str, files: usize, bytes: usize) -> String {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    std::fs::set_permissions(&project, std::fs::Permissions::from_mode(0o755)).unwrap();
    for number in 0..files {
        let text = format!("{number} {}", "x".repeat(bytes));
        write(&project.join(format!("file {number}")), text);
    }
    let disk = fixture.beside("disk");
    let task = Task::Fill {
        project: project.to_str().unwrap().to_owned(),
    };
    let command = on_a_small_disk(&disk, options);
    let mut other = Other::start_under(&disk.join("state"), &task, command);
    let said = other.says();
    other.finish();
    said
}

// STC-47: out of bytes.
#[test]
fn stc_47_a_full_disk_is_a_storage_error() {
    let said = ingest_on("size=1m,mode=0700", 100, 40_000);
    assert!(said.starts_with("SANDBOX_STORAGE"), "{said}");
    assert!(
        said.contains("No space left") || said.contains("must stay free"),
        "{said}"
    );
}

// STC-47: out of inodes.
#[test]
fn stc_47_a_disk_without_inodes_is_a_storage_error() {
    let said = ingest_on("size=16m,nr_inodes=60,mode=0700", 100, 10);
    assert!(said.starts_with("SANDBOX_STORAGE"), "{said}");
}

// The same folder on a disk that is large enough: the refusals above are about space.
#[test]
fn stc_47_a_large_enough_disk_takes_it() {
    assert_eq!(ingest_on("size=64m,mode=0700", 100, 40_000), "fits");
}

/// A command that may mount, and starts what follows.
fn with_mounts() -> Command {
    let mut command = Command::new("unshare");
    command.arg(if is_root() { "-m" } else { "-Urm" });
    command.arg(std::env::current_exe().unwrap());
    command
}

// STC-17: a mount in the folder is neither entered nor forgotten; a mounted file, too.
#[test]
fn stc_17_mounts_in_a_folder_are_skipped_and_reported() {
    let fixture = Fixture::new();
    let project = fixture.beside("project");
    write(&project.join("file"), "x");
    write(&project.join("mounted file"), "below");
    std::fs::create_dir(project.join("mount")).unwrap();
    let task = Task::IngestAroundMounts {
        project: project.to_str().unwrap().to_owned(),
    };
    let mut other = Other::start_under(&fixture.root(), &task, with_mounts());
    assert_eq!(
        other.says(),
        r#"[{"path":"mount","why":"mount"},{"path":"mounted file","why":"mount"}] 1"#
    );
    other.finish();
}

// STC-54: a mount in a session that is erased: what is mounted is as it was, the rest goes.
#[test]
fn stc_54_a_mount_in_a_session_is_not_erased() {
    let fixture = Fixture::new();
    let mut other = Other::start_under(&fixture.root(), &Task::DeleteAroundMount, with_mounts());
    assert_eq!(other.says(), "SANDBOX_STORAGE kept");
    other.finish();
    // Without the mount, the next one to look finishes the work.
    crate::support::open(&fixture.root()).unwrap();
    fixture.assert_no_leftovers();
}

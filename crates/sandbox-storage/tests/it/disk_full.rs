//! A disk that runs full: a small tmpfs in a mount namespace of its own.

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

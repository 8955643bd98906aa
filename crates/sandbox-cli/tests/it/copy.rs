//! `session cp`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::place::{Place, text};

/// A session in which a script has run.
fn session_after(place: &Place, script: &str) -> String {
    let id = place.session();
    let output = place.run(&["session", "exec", &id, "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    id
}

/// The names in the project, with nothing left over by a copy.
fn names(place: &Place) -> Vec<OsString> {
    let mut names: Vec<OsString> = fs::read_dir(place.project())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    names
}

// CLI-2: modes come out, set-id bits don't.
#[test]
fn cli_2_modes_come_out_without_set_id_bits() {
    let place = Place::new();
    let script = "echo x > tool; chmod 4755 tool; mkdir d; cp tool d/tool; chmod 2711 d/tool";
    let id = session_after(&place, script);
    for from in ["tool", "d"] {
        let output = place.run(&["session", "cp", &format!("{id}:{from}"), "."]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let mode = |name: &str| {
        let metadata = fs::metadata(place.project().join(name)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!((mode("tool"), mode("d/tool")), (0o755, 0o711));
}

// CLI-2, H08: names that are not UTF-8 come out; FIFOs and sockets stay and are named.
#[test]
fn cli_2_folders_come_out_whole_but_for_special_files() {
    let place = Place::new();
    let script =
        "mkdir -p d/e; echo x > \"d/e/$(printf 'odd\\377')\"; mkfifo d/pipe; ln -s e d/link";
    let id = session_after(&place, script);
    let output = place.run(&["session", "cp", &format!("{id}:d"), "."]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let odd = OsString::from_vec(b"odd\xff".to_vec());
    assert_eq!(
        fs::read_to_string(place.project().join("d/e").join(odd)).unwrap(),
        "x\n"
    );
    assert_eq!(
        fs::read_link(place.project().join("d/link"))
            .unwrap()
            .as_os_str(),
        "e"
    );
    assert!(!place.project().join("d/pipe").exists());
    let words = text(&output.stderr);
    assert!(words.contains("left out (1): d/pipe"), "{words}");
    let refused = place.run(&["session", "cp", &format!("{id}:d/pipe"), "."]);
    assert_eq!(refused.status.code(), Some(125));
}

// CLI-2: nothing is written through a link at the copy's place.
#[test]
fn cli_2_a_link_at_the_place_is_replaced_and_not_followed() {
    let place = Place::new();
    let id = session_after(&place, "mkdir d; echo x > d/file");
    let victim = place.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, place.project().join("link")).unwrap();
    let from = format!("{id}:greeting");
    let refused = place.run(&["session", "cp", &from, "link"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(text(&refused.stderr).contains("--force"));
    let forced = place.run(&["session", "cp", "--force", &from, "link"]);
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    let link = place.project().join("link");
    assert!(fs::symlink_metadata(&link).unwrap().is_file());

    // A folder in a file's place, and a file in a folder's.
    let forced = place.run(&["session", "cp", "--force", &format!("{id}:d"), "link"]);
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert_eq!(fs::read_to_string(link.join("file")).unwrap(), "x\n");
    assert_eq!(names(&place), ["greeting", "link"]);
}

// CLI-2: a link that leads out of the folder is refused, and nothing of it is left.
#[test]
fn cli_2_a_folder_whose_link_leads_out_is_refused() {
    let place = Place::new();
    let id = session_after(&place, "mkdir d; echo x > d/a; ln -s /etc/passwd d/link");
    let output = place.run(&["session", "cp", &format!("{id}:d"), "."]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("link"));
    assert_eq!(names(&place), ["greeting"]);
}

// CLI-2: the whole workspace comes out, under a name of its own.
#[test]
fn cli_2_the_top_folder_comes_out() {
    let place = Place::new();
    let id = session_after(&place, "echo new > made");
    let output = place.run(&["session", "cp", &format!("{id}:"), "copy"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        fs::read_to_string(place.project().join("copy/made")).unwrap(),
        "new\n"
    );
    assert_eq!(names(&place), ["copy", "greeting"]);
}

// CLI-2: in, by the name that was given, and never over what is there.
#[test]
fn cli_2_files_and_folders_go_in() {
    let place = Place::new();
    let id = session_after(&place, "mkdir d");
    fs::write(place.project().join("tool"), "tool\n").unwrap();
    fs::set_permissions(
        place.project().join("tool"),
        fs::Permissions::from_mode(0o4755),
    )
    .unwrap();
    symlink("tool", place.project().join("alias")).unwrap();
    fs::create_dir(place.project().join("tree")).unwrap();
    fs::write(place.project().join("tree/leaf"), "leaf\n").unwrap();
    let fifo = place.project().join("tree/pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    for (from, to) in [("tool", "new/name"), ("alias", "d"), ("tree", "")] {
        let output = place.run(&["session", "cp", from, &format!("{id}:{to}")]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let words = text(&output.stderr);
        assert_eq!(words.contains("pipe"), from == "tree", "{words}");
    }
    let refused = place.run(&["session", "cp", "tool", &format!("{id}:greeting")]);
    assert_eq!(refused.status.code(), Some(125));
    let forced = [
        "session",
        "cp",
        "--force",
        "tool",
        &format!("{id}:greeting"),
    ];
    assert!(place.run(&forced).status.success());
    let script = "cat new/name d/alias tree/leaf greeting; stat -c %a new/name; ls -A";
    let output = place.run(&["session", "exec", &id, "--", "sh", "-c", script]);
    assert_eq!(
        text(&output.stdout),
        "tool\ntool\nleaf\ntool\n755\nd\ngreeting\nnew\ntree\n"
    );
}

// CLI-2: exactly one side is a session's.
#[test]
fn cli_2_one_side_is_a_session() {
    let place = Place::new();
    for (from, to) in [("a", "b"), ("abcd:a", "abcd:b")] {
        let output = place.run(&["session", "cp", from, to]);
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).contains("ID:PATH"));
    }
}

//! Broken wires: what is no message of ours is refused, with no hang and nothing left (FI-19,
//! FI-25).

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox_helper::Step;
use sandbox_helper::wire::{self, BUILD_ID, Body, Failure, Message, PROTOCOL};

/// A helper at the other end of a socket, and nobody's keeper yet.
struct Raw {
    socket: OwnedFd,
    child: Child,
}

impl Raw {
    fn start() -> Self {
        let (socket, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let child = Command::new(sandbox_testkit::helper::path())
            .arg("keeper")
            .stdin(Stdio::from(theirs))
            .spawn()
            .unwrap();
        Self { socket, child }
    }

    /// Its answer to this, and its end.
    fn answer(mut self, bytes: &[u8], descriptors: usize) -> Option<Body> {
        let null = std::fs::File::open("/dev/null").unwrap();
        let passed = vec![null.as_fd(); descriptors];
        wire::send(&self.socket, bytes, &passed).unwrap();
        let answer = wire::receive(&self.socket).unwrap();
        let body = (!answer.bytes.is_empty()).then(|| Message::decode(&answer.bytes).unwrap().body);
        if body.is_some() {
            assert!(
                wire::receive(&self.socket).unwrap().bytes.is_empty(),
                "it goes on"
            );
        }
        assert!(!self.child.wait().unwrap().success());
        body
    }
}

fn hello(build: &str) -> Vec<u8> {
    let build = build.as_bytes().to_vec();
    Message::new(0, Body::Configure { build }).encode()
}

// FI-19: another build is told both names before anything else is read.
#[test]
fn fi_19_another_build_is_told_apart() {
    let mismatch = Some(Body::Mismatch {
        protocol: PROTOCOL,
        build: BUILD_ID.as_bytes().to_vec(),
    });
    assert_eq!(Raw::start().answer(&hello("0.0.0-other"), 0), mismatch);
    let mut other_protocol = hello("9.0.0-other");
    other_protocol[4..6].copy_from_slice(&9_u16.to_le_bytes());
    assert_eq!(Raw::start().answer(&other_protocol, 4), mismatch);
}

// FI-25
#[test]
fn fi_25_broken_first_messages_are_refused() {
    let refused = Some(Body::Failed(Failure {
        step: Step::Configuration,
        errno: libc::EPROTO,
    }));
    let spawn = Message::new(1, Body::Spawn).encode();
    for (bytes, descriptors) in [
        (b"GET / HTTP/1.1\r\n\r\n".as_slice(), 0),
        (&hello(BUILD_ID)[..10], 0),
        (&spawn, 3),
        // Missing descriptors.
        (&hello(BUILD_ID), 0),
        (&hello(BUILD_ID), 3),
        // A configuration that is none: an empty file.
        (&hello(BUILD_ID), 4),
    ] {
        assert_eq!(
            Raw::start().answer(bytes, descriptors),
            refused,
            "{bytes:?}"
        );
    }
}

// FI-25: a host that goes away before it said anything.
#[test]
fn fi_25_a_silent_host_leaves_no_helper() {
    let Raw { socket, mut child } = Raw::start();
    drop(socket);
    assert!(!child.wait().unwrap().success());
}

// DESIGN: it is started by the sandbox and by nobody else.
#[test]
fn by_hand_the_helper_says_what_it_is() {
    for arguments in [&[][..], &["init"], &["keeper", "x"]] {
        let output = Command::new(sandbox_testkit::helper::path())
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(
            said,
            "sandbox-helper is started by the sandbox, not by hand\n"
        );
    }
}

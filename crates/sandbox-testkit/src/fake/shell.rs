//! The scripts of the contract, as the fake runs them.

use std::time::Duration;

use bytes::Bytes;
use sandbox_core::{Command, Exit, OutputStream, Signal, WorkspacePath};

use super::command::{Workspace, echo, zeros};
use super::lock;
use super::process::Io;
use super::tree::Node;
use crate::contract::script;

/// Signals that end nothing unless a program says so: CHLD, CONT, URG, WINCH (signal(7)).
const IGNORED: [i32; 4] = [17, 18, 23, 28];

/// The script of `-c SCRIPT sh ARGUMENTS`, if it is one of the contract's.
pub(super) fn known(arguments: &[String]) -> Option<&'static str> {
    match arguments {
        [dash_c, text, ..] if dash_c == "-c" => by_text(text.as_bytes()),
        _ => None,
    }
}

/// The script with this text.
pub(super) fn by_text(text: &[u8]) -> Option<&'static str> {
    script::ALL
        .into_iter()
        .find(|script| script.as_bytes() == text)
}

/// Runs a script until it ends or a signal ends it.
pub(super) async fn run(
    script: &'static str,
    command: &Command,
    workspace: &Workspace,
    mut io: Io,
) -> Exit {
    if script == script::TRAP {
        return trap(io).await;
    }
    let (_, hearing) = tokio::sync::mpsc::unbounded_channel();
    let mut signals = std::mem::replace(&mut io.signals, hearing);
    let deadly = async {
        while let Some(signal) = signals.recv().await {
            if !IGNORED.contains(&signal.number()) {
                return signal;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        signal = deadly => Exit::Signalled(signal.number()),
        exit = act(script, command, workspace, io) => exit,
    }
}

async fn act(script: &str, command: &Command, workspace: &Workspace, mut io: Io) -> Exit {
    let argument = |index: usize| command.args().get(index + 2).map_or("", String::as_str);
    let number = |index: usize| argument(index).parse().unwrap_or(0);
    let begun = Bytes::from_static(b"begun");
    let out = OutputStream::Stdout;
    match script {
        script::ECHO => {
            io.write(out, Bytes::copy_from_slice(argument(1).as_bytes()))
                .await;
        }
        script::BOTH => {
            io.write(out, Bytes::from_static(b"out")).await;
            io.write(OutputStream::Stderr, Bytes::from_static(b"err"))
                .await;
        }
        script::EXIT => return Exit::Exited(argument(1).parse().unwrap_or(2)),
        script::KILL_SELF => return Exit::Signalled(argument(1).parse().unwrap_or(9)),
        script::CAT => echo(&mut io).await,
        script::LINES => lines(&mut io).await,
        script::DEAF => {
            io.close_input();
            io.write(out, begun).await;
            std::future::pending::<()>().await;
        }
        script::SLEEP => {
            io.write(out, begun).await;
            std::future::pending::<()>().await;
        }
        // The child that is left behind ends with its command: there is none to leave.
        script::ORPHAN => io.write(out, begun).await,
        script::PAUSE => tokio::time::sleep(Duration::from_millis(200)).await,
        script::ZEROS => {
            zeros(&io, out, number(1)).await;
            zeros(&io, OutputStream::Stderr, number(2)).await;
        }
        script::ZEROS_THEN_FILE => {
            zeros(&io, out, number(1)).await;
            return touch(workspace, "done");
        }
        script::TOUCH => return touch(workspace, "started"),
        script::RAN => io.write(out, Bytes::from_static(b"ran")).await,
        script::ENVIRONMENT => {
            let given = command.environment().get("GIVEN");
            let text = format!("{} none", given.map_or("none", String::as_str));
            io.write(out, text.into()).await;
        }
        script::HERE => {
            let read = command
                .cwd()
                .join("here")
                .and_then(|path| lock(&workspace.tree).read(&path));
            match read {
                Ok(content) => io.write(out, content).await,
                Err(_) => return Exit::Exited(1),
            }
        }
        script::WATCH => {
            io.write(out, begun).await;
            let mut alive = workspace.alive.subscribe();
            // Its sender lives as long as the workspace: it can't fail.
            let _ = alive
                .wait_for(|alive| alive.ever && alive.holders == 0)
                .await;
        }
        script::HOLD => {
            let _holder = Holder::new(workspace);
            io.write(out, begun).await;
            std::future::pending::<()>().await;
        }
        script::FIFO => {
            return make(
                command,
                workspace,
                argument(1).as_bytes(),
                Node::Fifo,
                0o644,
            );
        }
        script::LINK => {
            let target = Bytes::copy_from_slice(argument(1).as_bytes());
            let name = argument(2).as_bytes();
            return make(command, workspace, name, Node::Link(target), 0o777);
        }
        script::ODD_NAMES => {
            for name in [&b"a\xff\nz"[..], b"b\\"] {
                make(command, workspace, name, Node::File("odd".into()), 0o644);
            }
        }
        script::CHMOD => {
            let mode = u32::from_str_radix(argument(1), 8).unwrap_or(0);
            let changed = WorkspacePath::parse(argument(2))
                .and_then(|path| lock(&workspace.tree).chmod(&path, mode));
            return Exit::Exited(i32::from(changed.is_err()));
        }
        _ => {}
    }
    Exit::Exited(0)
}

/// Answers signal 15, and is ended by any other.
async fn trap(mut io: Io) -> Exit {
    io.write(OutputStream::Stdout, Bytes::from_static(b"begun"))
        .await;
    while let Some(signal) = io.signals.recv().await {
        if signal == Signal::TERM {
            io.write(OutputStream::Stdout, Bytes::from_static(b"caught"))
                .await;
            return Exit::Exited(3);
        }
        if !IGNORED.contains(&signal.number()) {
            return Exit::Signalled(signal.number());
        }
    }
    std::future::pending().await
}

/// Writes each line once it is whole; a last one without its end is dropped, as `read` does.
async fn lines(io: &mut Io) {
    let mut waiting = Vec::new();
    while let Some(bytes) = io.read().await {
        waiting.extend_from_slice(&bytes);
        while let Some(end) = waiting.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = waiting.drain(..=end).collect();
            io.write(OutputStream::Stdout, line.into()).await;
        }
    }
}

fn touch(workspace: &Workspace, name: &str) -> Exit {
    let written = WorkspacePath::parse(name)
        .and_then(|path| lock(&workspace.tree).write(&path, Bytes::from_static(b"x")));
    Exit::Exited(i32::from(written.is_err()))
}

/// Puts something into the working directory, where nothing may stand.
fn make(command: &Command, workspace: &Workspace, name: &[u8], node: Node, mode: u32) -> Exit {
    let mut tree = lock(&workspace.tree);
    let Ok(mut at) = tree.follow(command.cwd()) else {
        return Exit::Exited(1);
    };
    at.push(name.to_vec());
    if tree.node(&at).is_some() {
        return Exit::Exited(1);
    }
    tree.put(&at, node, mode);
    Exit::Exited(0)
}

/// One who holds the FIFO open, until it is dropped.
struct Holder<'a>(&'a Workspace);

impl<'a> Holder<'a> {
    fn new(workspace: &'a Workspace) -> Self {
        workspace.alive.send_modify(|alive| {
            alive.holders += 1;
            alive.ever = true;
        });
        Self(workspace)
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.0.alive.send_modify(|alive| alive.holders -= 1);
    }
}

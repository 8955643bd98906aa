//! What a command of the fake does: looked up before it starts, then run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sandbox_core::{Command, ErrorCode, Exit, OutputStream, Result, SandboxError, shown};
use tokio::sync::watch;

use super::lock;
use super::process::Io;
use super::program::{Program, Step};
use super::shell;
use super::tree::{Entity, Node, Tree};

/// What the commands of a session share.
#[derive(Debug)]
pub(super) struct Workspace {
    pub(super) tree: Mutex<Tree>,
    /// Who holds the FIFO of the contract open.
    pub(super) alive: watch::Sender<Alive>,
}

/// How many hold a FIFO open, and whether anybody ever has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alive {
    pub(super) holders: usize,
    pub(super) ever: bool,
}

impl Workspace {
    pub(super) fn new(tree: Tree) -> Self {
        Self {
            tree: Mutex::new(tree),
            alive: watch::Sender::new(Alive::default()),
        }
    }
}

/// What runs once it is found.
#[derive(Debug)]
pub(super) enum Found {
    /// It can't be started, which is a result.
    Nothing(Exit),
    Program(Program),
    Script(&'static str),
}

/// Looks a command up, as an init inside would: first where it starts, then what.
pub(super) fn find(
    command: &Command,
    workspace: &Workspace,
    installed: &BTreeMap<String, Program>,
) -> Result<Found> {
    let tree = lock(&workspace.tree);
    let bad_cwd = |why: &str| Ok(Found::Nothing(Exit::BadCwd(why.to_owned())));
    match tree.follow(command.cwd()) {
        Err(error) => return bad_cwd(&error.to_string()),
        Ok(at) => match tree.node(&at).map(|entity| &entity.node) {
            Some(Node::Folder(_)) => {}
            Some(_) => return bad_cwd("it is no folder"),
            None => return bad_cwd("it is not there"),
        },
    }
    if let Some(program) = installed.get(command.executable()) {
        return Ok(Found::Program(program.clone()));
    }
    if command.executable() == "/bin/sh" {
        return shell::known(command.args()).map(Found::Script).ok_or_else(|| {
            SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "the fake knows no script {}: those of the contract, and programs that are installed, are accepted",
                    shown(command.args().get(1).map_or("", String::as_str))
                ),
            )
        });
    }
    Ok(in_workspace(command, &tree))
}

/// A file of the workspace, by its path.
fn in_workspace(command: &Command, tree: &Tree) -> Found {
    let Some(relative) = command.executable().strip_prefix("./") else {
        return Found::Nothing(Exit::NotFound);
    };
    let entity = command
        .cwd()
        .join(relative)
        .and_then(|path| tree.follow(&path))
        .map(|at| tree.node(&at));
    match entity {
        Ok(Some(Entity {
            node: Node::File(content),
            mode,
            ..
        })) if mode & 0o100 != 0 => {
            let script = content
                .strip_prefix(b"#!/bin/sh\n")
                .and_then(shell::by_text);
            script.map_or_else(
                || Found::Nothing(Exit::NotExecutable("the fake can't run it".to_owned())),
                Found::Script,
            )
        }
        Ok(Some(_)) => Found::Nothing(Exit::NotExecutable("permission denied".to_owned())),
        Ok(None) | Err(_) => Found::Nothing(Exit::NotFound),
    }
}

/// Runs what was found.
pub(super) async fn run(
    found: Found,
    command: Command,
    workspace: Arc<Workspace>,
    mut io: Io,
) -> Exit {
    tokio::task::yield_now().await;
    match found {
        Found::Nothing(exit) => exit,
        Found::Script(script) => shell::run(script, &command, &workspace, io).await,
        Found::Program(program) => {
            for step in program.steps {
                take(step, &workspace, &mut io).await;
            }
            program.exit
        }
    }
}

async fn take(step: Step, workspace: &Workspace, io: &mut Io) {
    match step {
        Step::Write(stream, bytes) => io.write(stream, bytes).await,
        Step::Echo => echo(io).await,
        Step::File(path, content) => {
            // As a program would: what can't be written is its own affair.
            let _ = lock(&workspace.tree).write(&path, content);
        }
        Step::Sleep(duration) => tokio::time::sleep(duration).await,
        Step::Hang => std::future::pending().await,
    }
}

/// Writes what is read.
pub(super) async fn echo(io: &mut Io) {
    while let Some(bytes) = io.read().await {
        io.write(OutputStream::Stdout, bytes).await;
    }
}

/// Zero bytes to a stream, never all of them in memory.
pub(super) async fn zeros(io: &Io, stream: OutputStream, mut length: usize) {
    static PIECE: [u8; 64 * 1024] = [0; 64 * 1024];
    while length > 0 {
        let piece = length.min(PIECE.len());
        io.write(stream, Bytes::from_static(&PIECE[..piece])).await;
        length -= piece;
    }
}

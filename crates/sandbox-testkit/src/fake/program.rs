//! Commands that a test makes up.

use std::time::Duration;

use bytes::Bytes;
use sandbox_core::{Exit, OutputStream, WorkspacePath};

/// One step of a [`Program`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Step {
    /// Writes these bytes.
    Write(OutputStream, Bytes),
    /// Writes what it reads, to its end.
    Echo,
    /// Writes a file of the workspace.
    File(WorkspacePath, Bytes),
    /// Takes so long.
    Sleep(Duration),
    /// Never ends by itself.
    Hang,
}

/// What an executable of the fake does, whatever its arguments are.
///
/// ```
/// use sandbox_core::Exit;
/// use sandbox_testkit::fake::{FakeBackend, Program};
///
/// let backend = FakeBackend::new();
/// let tests = Program::new(Exit::Exited(1)).prints("1 test failed\n");
/// backend.install("cargo", tests);
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) exit: Exit,
}

impl Program {
    /// A program that does nothing and ends like this.
    #[must_use]
    pub fn new(exit: Exit) -> Self {
        Self {
            steps: Vec::new(),
            exit,
        }
    }

    /// The same with one more step before its end.
    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The same, which then writes to standard output.
    #[must_use]
    pub fn prints(self, text: impl Into<Bytes>) -> Self {
        self.then(Step::Write(OutputStream::Stdout, text.into()))
    }
}

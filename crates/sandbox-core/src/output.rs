//! What a command wrote, and how it ended.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::refusal::Refusal;

/// Which of a command's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// A piece of output; pieces of one stream come in the order they were written.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The stream it was written to.
    pub stream: OutputStream,
    /// The bytes; never empty.
    pub bytes: Bytes,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a command writes may hold anything: a length is enough for a log.
        write!(f, "Chunk({:?}, {} bytes)", self.stream, self.bytes.len())
    }
}

/// What a command wrote, whole or up to where it was cut.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// What it wrote to descriptor 1.
    pub stdout: Bytes,
    /// What it wrote to descriptor 2.
    pub stderr: Bytes,
}

impl Captured {
    /// Standard output as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn stdout_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// Standard error as text; bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn stderr_lossy(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Captured(stdout {} bytes, stderr {} bytes)",
            self.stdout.len(),
            self.stderr.len()
        )
    }
}

/// How a command ended. The five never share a number with one another. SPEC CMD-4, PROC-7.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It returned this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// There is no such executable inside.
    NotFound,
    /// The executable is there and can't be run; the text says why.
    NotExecutable(String),
    /// The working directory can't be entered; the text says why.
    BadCwd(String),
}

impl Exit {
    /// The number a shell would show: the code, 128 plus the signal, 127, 126;
    /// 125 for a working directory that can't be entered (SPEC CLI-1).
    #[must_use]
    pub fn shell_code(&self) -> i32 {
        match self {
            Self::Exited(code) => *code,
            Self::Signalled(signal) => 128 + signal,
            Self::NotFound => 127,
            Self::NotExecutable(_) => 126,
            Self::BadCwd(_) => 125,
        }
    }

    /// Whether it returned 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == Self::Exited(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signalled(signal) => write!(f, "ended by signal {signal}"),
            Self::NotFound => f.write_str("the executable was not found"),
            Self::NotExecutable(why) => write!(f, "the executable can't be run: {why}"),
            Self::BadCwd(why) => write!(f, "the working directory can't be entered: {why}"),
        }
    }
}

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// From its start to its end, by a monotonic clock.
    pub wall: Duration,
    /// What the broker refused it; empty without a broker.
    pub denials: Vec<Refusal>,
}

impl Finished {
    /// An end without denials.
    #[must_use]
    pub fn new(exit: Exit, wall: Duration) -> Self {
        Self {
            exit,
            wall,
            denials: Vec::new(),
        }
    }
}

/// A finished command with all it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// How it ended.
    pub finished: Finished,
    /// What it wrote.
    pub captured: Captured,
}

impl Output {
    /// Joins the two.
    #[must_use]
    pub fn new(finished: Finished, captured: Captured) -> Self {
        Self { finished, captured }
    }
}

/// How much more a command may write, over both streams.
///
/// The accounting of SPEC PROC-3, once for every driver: what fits is kept, and the
/// first byte too many says so.
///
/// ```
/// use sandbox_core::OutputBudget;
///
/// let mut budget = OutputBudget::new(Some(4));
/// assert_eq!(budget.take(3), 3);
/// assert!(!budget.is_exceeded());
/// assert_eq!(budget.take(3), 1);
/// assert!(budget.is_exceeded());
/// ```
#[derive(Clone, Debug)]
pub struct OutputBudget {
    left: Option<u64>,
    exceeded: bool,
}

impl OutputBudget {
    /// A budget of this many bytes; none is no bound.
    #[must_use]
    pub fn new(bytes: Option<u64>) -> Self {
        Self {
            left: bytes,
            exceeded: false,
        }
    }

    /// Takes up to `wanted` bytes and says how many of them may be kept.
    pub fn take(&mut self, wanted: usize) -> usize {
        let Some(left) = &mut self.left else {
            return wanted;
        };
        let kept = usize::try_from(*left).map_or(wanted, |left| left.min(wanted));
        *left -= kept as u64;
        self.exceeded |= kept < wanted;
        kept
    }

    /// Whether more was written than the budget allows.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // PROC-3: exactly the limit is fine, one byte more is not, and what fits is kept.
    #[test]
    fn proc_3_the_budget_counts_both_streams_to_the_byte() {
        let mut budget = OutputBudget::new(Some(10));
        assert_eq!((budget.take(4), budget.take(6)), (4, 6));
        assert!(!budget.is_exceeded());
        assert_eq!(budget.take(1), 0);
        assert!(budget.is_exceeded());
        let mut unbounded = OutputBudget::new(None);
        assert_eq!(unbounded.take(usize::MAX), usize::MAX);
        assert!(!unbounded.is_exceeded());
    }

    // CMD-4
    #[test]
    fn cmd_4_outcomes_have_the_numbers_of_a_shell() {
        let codes = [
            Exit::Exited(3),
            Exit::Signalled(9),
            Exit::NotFound,
            Exit::NotExecutable("permission denied".into()),
            Exit::BadCwd("not a directory".into()),
        ]
        .map(|exit| exit.shell_code());
        assert_eq!(codes, [3, 137, 127, 126, 125]);
    }
}

//! The one place that writes: results to standard output, words to standard error.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use sandbox_core::{ErrorCode, OutputStream, Result, SandboxError};
use serde::Serialize;
use serde_json::{Value, json};

/// Whether a write to standard output, and one to standard error, is under way.
static BUSY: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// Whether writes that are under way are waited for no longer.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// How results are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// A result: the value as JSON, or its text for a person.
    pub(crate) fn result(
        self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.json {
            self.event(value)
        } else {
            written(write(OutputStream::Stdout, text().as_bytes()))
        }
    }

    /// One line of JSON.
    pub(crate) fn event(self, value: &impl Serialize) -> Result<()> {
        let line = serde_json::to_vec(value).map_err(|error| {
            SandboxError::new(ErrorCode::Invalid, "a result can't be written as JSON")
                .with_source(error)
        });
        let mut line = line?;
        line.push(b'\n');
        written(write(OutputStream::Stdout, &line))
    }

    /// A word to the person; a program gets the same in its JSON.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            tell(&format!("{text}\n"));
        }
    }

    /// A failure, for the person: what, why, and what to do.
    pub(crate) fn error(self, error: &SandboxError) {
        let mut text = format!("sandbox: {}: {error}\n", error.code());
        for cause in causes(error) {
            text += &format!("  cause: {cause}\n");
        }
        if let Some(hint) = error.hint() {
            text += &format!("  try: {hint}\n");
        }
        tell(&text);
    }
}

/// A failure, for a program: the refusal record, and what lies below it.
pub(crate) fn failure(error: &SandboxError) -> Value {
    json!({ "error": error.refusal(), "causes": causes(error) })
}

/// What lies below an error, the nearest first.
fn causes(error: &SandboxError) -> Vec<String> {
    let mut causes = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    causes
}

/// Tells the person. One who has closed standard error wants no words.
pub(crate) fn tell(text: &str) {
    let _ = write(OutputStream::Stderr, printable(text).as_bytes());
}

/// A terminal obeys control characters, and a cause may repeat what a command wrote (ERR-3).
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && character != '\n' {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}

/// A reader that has gone has all it wanted; every other failure is one.
pub(crate) fn written(outcome: io::Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(unwritable(error)),
        _ => Ok(()),
    }
}

/// Where output goes can't take it: a full disk, say.
pub(crate) fn unwritable(error: io::Error) -> SandboxError {
    SandboxError::new(ErrorCode::Storage, "the output can't be written").with_source(error)
}

/// Writes bytes as they are, and returns once they are out.
pub(crate) fn write(stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
    let busy = &BUSY[usize::from(stream == OutputStream::Stderr)];
    if ABANDONED.load(Ordering::SeqCst) && busy.load(Ordering::SeqCst) {
        // Whoever waits in that write holds the stream's lock for good.
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    busy.store(true, Ordering::SeqCst);
    let outcome = match stream {
        OutputStream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        OutputStream::Stderr => io::stderr().lock().write_all(bytes),
    };
    busy.store(false, Ordering::SeqCst);
    outcome
}

/// Gives up on a stream that nobody reads, if a write to it is under way now: the end of
/// the program waits for it no longer.
pub(crate) fn abandon() {
    ABANDONED.store(true, Ordering::SeqCst);
}

/// Sends the libraries' log to standard error.
pub(crate) fn log_to_stderr(is_verbose: bool) {
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::util::SubscriberInitExt as _;
    let level = if is_verbose {
        LevelFilter::DEBUG
    } else {
        LevelFilter::ERROR
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Log)
        .without_time()
        .finish();
    // There is no other one in this process.
    let _ = log.try_init();
}

/// The log's way to standard error.
struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(OutputStream::Stderr, bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ERR-3
    #[test]
    fn err_3_no_control_character_reaches_a_terminal() {
        assert_eq!(printable("a\u{1b}[31m\rb\n"), "a\\u{1b}[31m\\rb\n");
    }

    // CLI-4
    #[test]
    fn cli_4_a_program_gets_the_record_and_the_causes() {
        let error = SandboxError::new(ErrorCode::Busy, "the session is in use")
            .with_source(io::Error::other("locked"))
            .with_hint("wait");
        assert_eq!(
            failure(&error),
            json!({
                "error": {
                    "code": "SANDBOX_BUSY",
                    "what": "the session is in use",
                    "hint": "wait",
                    "retryable": true
                },
                "causes": ["locked"]
            })
        );
    }

    // CLI-3: a pipeline that has ended is no failure; a full disk is one.
    #[test]
    fn cli_3_only_a_reader_that_has_gone_is_no_failure() {
        assert!(written(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        let full = written(Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert_eq!(full.code(), ErrorCode::Storage);
    }
}

//! The one place that writes: results to standard output, words to standard error.

use std::io::{self, Write};

use sandbox_core::SandboxError;
use serde::Serialize;

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
    pub(crate) fn result(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        if self.json {
            self.event(value);
        } else {
            raw(false, text().as_bytes());
        }
    }

    /// One line of JSON.
    pub(crate) fn event(self, value: &impl Serialize) {
        // Every type that is written here has string keys: it always serialises.
        if let Ok(mut line) = serde_json::to_vec(value) {
            line.push(b'\n');
            raw(false, &line);
        }
    }

    /// A word to the person, on standard error.
    pub(crate) fn note(self, text: &str) {
        raw(true, format!("{text}\n").as_bytes());
    }

    /// A failure: what, why, and what to do; as a record where JSON was asked for.
    pub(crate) fn error(self, error: &SandboxError) {
        if self.json {
            self.event(&serde_json::json!({ "event": "error", "error": error.refusal(), "causes": causes(error) }));
        }
        let mut text = format!("sandbox: {}: {error}\n", error.code());
        for cause in causes(error) {
            text += &format!("  cause: {cause}\n");
        }
        if let Some(hint) = error.hint() {
            text += &format!("  try: {hint}\n");
        }
        raw(true, text.as_bytes());
    }
}

/// What lies below an error, the nearest first.
pub(crate) fn causes(error: &SandboxError) -> Vec<String> {
    let mut causes = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    causes
}

/// Writes bytes as they are. A reader that has gone has all it wanted: no failure.
pub(crate) fn raw(to_stderr: bool, bytes: &[u8]) {
    let _ = write(to_stderr, bytes);
}

/// Writes bytes as they are, and says when nobody reads them.
pub(crate) fn write(to_stderr: bool, bytes: &[u8]) -> io::Result<()> {
    if to_stderr {
        let mut stderr = io::stderr().lock();
        stderr.write_all(bytes)?;
        stderr.flush()
    } else {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}

/// Sends the libraries' log to standard error.
pub(crate) fn log_to_stderr(level: &str) {
    let level = level
        .parse()
        .unwrap_or(tracing_subscriber::filter::LevelFilter::ERROR);
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .without_time()
        .finish();
    use tracing_subscriber::util::SubscriberInitExt;
    // A second one in the same process: the first stays.
    let _ = log.try_init();
}

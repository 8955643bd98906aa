//! Measuring a session from inside (SPEC CON-4, BAK-3).
//!
//! The helper's `probe` role looks around as a command would; what its lines mean is
//! decided here, by pure functions. What nothing measured stays `unknown`.

mod report;

use std::ffi::CString;
use std::time::Duration;

use sandbox_core::{ErrorCode, Posture, Result, SandboxError, shown};
use sandbox_helper::wire::Request;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;

use crate::keeper::Keeper;
use crate::launch::{Launcher, no_pipe};
use crate::supervise::Child;
use report::Report;

/// How long looking around may take; it takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// The longest report.
const MAX_REPORT_BYTES: u64 = 64 * 1024;

/// Runs the probe as a command of the session and says what it found.
pub(crate) async fn measure(keeper: &Keeper, launcher: &Launcher) -> Result<Posture> {
    let text = tokio::time::timeout(DEADLINE, run(keeper, launcher))
        .await
        .map_err(|_| unproved("the probe did not end within 10 seconds"))??;
    let report = Report::parse(&text);
    Ok(Posture::new(report.findings(&launcher.environment_names())))
}

async fn run(keeper: &Keeper, launcher: &Launcher) -> Result<String> {
    let request = Request {
        executable: constant("/run/init"),
        arguments: vec![constant("/run/init"), constant("probe")],
        ..launcher.bare_request()?
    };
    let (stdin, stdin_inside) = pipe::pipe().map_err(no_pipe)?;
    let (stdout_inside, stdout) = pipe::pipe().map_err(no_pipe)?;
    let (stderr_inside, stderr) = pipe::pipe().map_err(no_pipe)?;
    drop(stdin);
    let stdio = [
        stdin_inside.into_blocking_fd().map_err(no_pipe)?,
        stdout_inside.into_blocking_fd().map_err(no_pipe)?,
        stderr_inside.into_blocking_fd().map_err(no_pipe)?,
    ];
    let mut child = keeper.spawn(&request, stdio).await?;
    let (exit, report, words) = tokio::join!(child.ended(), read(stdout), read(stderr));
    let exit = exit?;
    if exit.is_success() {
        Ok(report)
    } else {
        Err(unproved(&format!(
            "the probe {exit} inside and said {}",
            shown(words)
        )))
    }
}

async fn read(pipe: impl AsyncRead + Unpin) -> String {
    let mut bytes = Vec::new();
    // What can't be read is missing from the report, and so is `unknown`.
    let _ = pipe.take(MAX_REPORT_BYTES).read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

fn constant(text: &str) -> CString {
    CString::new(text).expect("the constants hold no NUL")
}

fn unproved(message: &str) -> SandboxError {
    SandboxError::new(
        ErrorCode::Unavailable,
        format!("the isolation could not be proved: {message}"),
    )
    .with_hint("`sandbox doctor` looks at each part of it")
}

//! A command in a session, with this program's streams and signals.

use std::io::Read;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sandbox_core::{
    Chunk, Command, Deadline, ErrorCode, Finished, OutputLimit, OutputStream, Process, Result,
    SandboxError, Session, Signal, SpawnOptions, Stdin, shown,
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::arguments::Bounds;
use crate::output::{self, Output};
use crate::signals::Signals;

/// How long a command has to end by itself after the first signal.
const GRACE: Duration = Duration::from_secs(2);

/// The size of one read of standard input.
const INPUT_BYTES: usize = 64 * 1024;

/// What a broken pipe means to a program in a shell's pipeline.
const SIGPIPE: i32 = 13;

/// The command of the arguments: no deadline and no output cap unless asked for (CLI-1).
pub(crate) fn command(bounds: &Bounds, line: &[String]) -> Result<Command> {
    let (executable, arguments) = line
        .split_first()
        .ok_or_else(|| SandboxError::new(ErrorCode::Invalid, "a command is needed after `--`"))?;
    let mut builder = Command::builder(executable)
        .args(arguments)
        .deadline(bounds.timeout.map_or(Deadline::Unlimited, Deadline::After))
        .max_output(match bounds.max_output {
            None => OutputLimit::Unlimited,
            Some(bytes) => OutputLimit::Bytes(NonZeroU64::new(bytes).ok_or_else(|| {
                SandboxError::new(
                    ErrorCode::Invalid,
                    "--max-output 0 is refused: at least 1 byte is accepted",
                )
            })?),
        });
    if let Some(cwd) = &bounds.cwd {
        builder = builder.cwd(cwd);
    }
    for name in &bounds.env {
        builder = builder.env(name, variable(name)?);
    }
    builder.build()
}

/// The value of a variable that is passed on by its name.
fn variable(name: &str) -> Result<String> {
    if let Some((name, _)) = name.split_once('=') {
        return Err(SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "--env {}=… is refused: a command line can be read by every user of this host",
                shown(name)
            ),
        )
        .with_hint(format!(
            "set the variable first, then pass it on by its name: `--env {}`",
            name.escape_default()
        )));
    }
    std::env::var(name).map_err(|error| {
        let what = match error {
            std::env::VarError::NotPresent => "is not set",
            std::env::VarError::NotUnicode(_) => "is not UTF-8",
        };
        SandboxError::new(
            ErrorCode::Invalid,
            format!("--env {}: the variable {what}", shown(name)),
        )
    })
}

/// Runs a command to its end. Output is shown as it comes, and is nobody's memory.
pub(crate) async fn drive(
    session: &dyn Session,
    command: Command,
    signals: &mut Signals,
    output: Output,
) -> Result<Finished> {
    signals.check()?;
    let options = SpawnOptions::default().stdin(Stdin::Piped);
    let process: Arc<dyn Process> = Arc::from(session.spawn(command, options).await?);
    let feeding = tokio::spawn(feed(Arc::clone(&process)));
    let ended = {
        let showing = show(&*process, output);
        tokio::pin!(showing);
        let outcome = async {
            let shown = (&mut showing).await;
            if shown.is_err() {
                process.stop().await?;
            }
            let finished = process.wait().await?;
            Ok(match shown {
                Ok(()) => finished,
                // Whoever read our output has gone: as in a pipeline, that ends the command.
                Err(_) => Finished::new(sandbox_core::Exit::Signalled(SIGPIPE), finished.wall),
            })
        };
        tokio::pin!(outcome);
        tokio::select! {
            outcome = &mut outcome => outcome,
            never = forward(&*process, signals) => match never {},
        }
    };
    feeding.abort();
    ended
}

/// Passes signals on; what does not end by itself is ended.
async fn forward(process: &dyn Process, signals: &mut Signals) -> std::convert::Infallible {
    let received = signals.more_than(0).await;
    if let Some(signal) = received.first.and_then(|number| Signal::new(number).ok()) {
        // One that has ended needs no signal.
        let _ = process.signal(signal).await;
    }
    tokio::select! {
        _ = signals.more_than(1) => {}
        () = tokio::time::sleep(GRACE) => {}
    }
    // Its outcome comes out of `wait`.
    let _ = process.stop().await;
    std::future::pending().await
}

/// Shows output as it comes; fails where nobody reads it.
async fn show(process: &dyn Process, output: Output) -> std::io::Result<()> {
    while let Some(Chunk { stream, bytes }) = process.next_output().await {
        let to_stderr = stream == OutputStream::Stderr;
        tokio::task::block_in_place(|| {
            if output.is_json() {
                output::write(false, &event(to_stderr, &bytes))
            } else {
                output::write(to_stderr, &bytes)
            }
        })?;
    }
    Ok(())
}

/// A line of JSON for a piece of output: as text where it is UTF-8, else in base64 (RFC 4648).
fn event(to_stderr: bool, bytes: &Bytes) -> Vec<u8> {
    let name = if to_stderr { "stderr" } else { "stdout" };
    let value = match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "event": name, "text": text }),
        Err(_) => json!({ "event": name, "base64": BASE64_STANDARD.encode(bytes) }),
    };
    format!("{value}\n").into_bytes()
}

/// Passes standard input on. The reading thread may wait for ever: nobody waits for it.
async fn feed(process: Arc<dyn Process>) {
    let (sender, mut pieces) = mpsc::channel::<Bytes>(1);
    let reading = std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let mut buffer = vec![0; INPUT_BYTES];
            let mut stdin = std::io::stdin().lock();
            loop {
                match stdin.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(length) => {
                        if sender
                            .blocking_send(Bytes::copy_from_slice(&buffer[..length]))
                            .is_err()
                        {
                            break;
                        }
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    // A closed descriptor is an empty input.
                    Err(_) => break,
                }
            }
        });
    if reading.is_ok() {
        while let Some(piece) = pieces.recv().await {
            if process.write_stdin(piece).await.is_err() {
                return;
            }
        }
    }
    // Closing what is closed is no error.
    let _ = process.close_stdin().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(env: &[&str]) -> Bounds {
        Bounds {
            timeout: None,
            max_output: None,
            env: env.iter().map(|&name| name.to_owned()).collect(),
            cwd: None,
        }
    }

    // CLI-1: values don't go on a command line.
    #[test]
    fn cli_1_env_takes_names_and_never_values() {
        let line = ["true".to_owned()];
        let error = command(&bounds(&["TOKEN=hunter2"]), &line).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Invalid);
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        assert!(command(&bounds(&["SURELY_NOT_SET_ANYWHERE"]), &line).is_err());
        let passed = command(&bounds(&["PATH"]), &line).unwrap();
        assert_eq!(passed.environment()["PATH"], std::env::var("PATH").unwrap());
    }

    // CLI-1: neither deadline nor cap unless asked for.
    #[test]
    fn cli_1_bounds_are_asked_for() {
        let line = ["true".to_owned(), "--".to_owned(), "-x".to_owned()];
        let command = command(&bounds(&[]), &line).unwrap();
        assert_eq!(command.deadline(), Deadline::Unlimited);
        assert_eq!(command.max_output(), OutputLimit::Unlimited);
        assert_eq!(command.args(), ["--", "-x"]);
    }

    // CLI-3: a line of JSON holds any bytes.
    #[test]
    fn cli_3_output_events_lose_nothing() {
        assert_eq!(
            event(false, &Bytes::from("a\n")),
            b"{\"event\":\"stdout\",\"text\":\"a\\n\"}\n"
        );
        assert_eq!(
            event(true, &Bytes::from(vec![0xff, 10])),
            b"{\"base64\":\"/wo=\",\"event\":\"stderr\"}\n"
        );
    }
}

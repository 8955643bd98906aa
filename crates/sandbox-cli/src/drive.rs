//! A command in a session, with this program's streams and signals.

use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use sandbox_core::{
    Command, Deadline, ErrorCode, Exit, Finished, OutputLimit, Process, Result, SandboxError,
    Session, Signal, SpawnOptions, Stdin, shown,
};

use crate::arguments::Bounds;
use crate::output::{self, Output};
use crate::show::show;
use crate::signals::Signals;
use crate::stdin;

/// How long a command has to end by itself after the first signal.
const GRACE: Duration = Duration::from_secs(2);

/// How long output that nobody reads holds up the end of a command that was ended.
const DRAIN_TIME: Duration = Duration::from_millis(500);

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
    let feeding = tokio::spawn(stdin::feed(Arc::clone(&process)));
    let ended = tokio::select! {
        ended = to_the_end(&*process, output) => ended,
        () = forward(&*process, signals) => {
            output::abandon();
            process.wait().await
        }
    };
    feeding.abort();
    ended
}

async fn to_the_end(process: &dyn Process, output: Output) -> Result<Finished> {
    let shown = show(process, output).await;
    if shown.is_err() {
        process.stop().await?;
    }
    let finished = process.wait().await;
    match shown {
        Ok(()) => finished,
        // Whoever read our output has gone: as in a pipeline, that ends the command.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            finished.map(|finished| Finished::new(Exit::Signalled(SIGPIPE), finished.wall))
        }
        Err(error) => Err(output::unwritable(error)),
    }
}

/// Passes the first signal on; returns once what did not end by itself was ended.
async fn forward(process: &dyn Process, signals: &mut Signals) {
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
    tokio::time::sleep(DRAIN_TIME).await;
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
        let free = command(&bounds(&[]), &line).unwrap();
        assert_eq!(free.deadline(), Deadline::Unlimited);
        assert_eq!(free.max_output(), OutputLimit::Unlimited);
        assert_eq!(free.args(), ["--", "-x"]);
        let nothing = Bounds {
            max_output: Some(0),
            ..bounds(&[])
        };
        assert_eq!(
            command(&nothing, &line).unwrap_err().code(),
            ErrorCode::Invalid
        );
    }
}

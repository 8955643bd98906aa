//! Exit codes. SPEC CLI-1.

use std::process::ExitCode;

use sandbox_core::{ErrorCode, Exit, Finished, OutputStream, Result, SandboxError};

use crate::output;

/// The sandbox itself failed.
pub(crate) const OURS: u8 = 125;

/// The deadline was passed.
const DEADLINE: u8 = 124;

/// A usage error is a failure of ours; help and version are none.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    if error.use_stderr() {
        output::tell(&text);
        return ExitCode::from(OURS);
    }
    match output::written(output::write(OutputStream::Stdout, text.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(OURS),
    }
}

/// Of a command that has ended, or of what failed before it; `signal` is what the program
/// got first.
///
/// A command that answers a signal by an exit of its own has the word. One that a signal
/// ended, ours or the one passed on, is shown as ended by the latter.
pub(crate) fn of_ended(ended: &Result<Finished>, signal: Option<i32>) -> u8 {
    let exit = match (ended, signal) {
        (
            Ok(Finished {
                exit: Exit::Signalled(_),
                ..
            })
            | Err(_),
            Some(signal),
        ) => &Exit::Signalled(signal),
        (Ok(finished), _) => &finished.exit,
        (Err(error), None) => return of_error(error),
    };
    u8::try_from(exit.shell_code()).unwrap_or(OURS)
}

/// Of everything else: the deadline is the one limit with a code of its own.
fn of_error(error: &SandboxError) -> u8 {
    let is_deadline =
        error.code() == ErrorCode::Limit && error.refusal().rule.as_deref() == Some("deadline");
    if is_deadline { DEADLINE } else { OURS }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ended(exit: Exit) -> Result<Finished> {
        Ok(Finished::new(exit, Duration::ZERO))
    }

    // CLI-1: one number for each outcome.
    #[test]
    fn cli_1_outcomes_have_their_codes() {
        let table = [
            (Exit::Exited(0), 0),
            (Exit::Exited(255), 255),
            (Exit::Signalled(15), 143),
            (Exit::NotFound, 127),
            (Exit::NotExecutable("closed".into()), 126),
            (Exit::BadCwd("gone".into()), 125),
        ];
        for (exit, code) in table {
            assert_eq!(of_ended(&ended(exit), None), code);
        }
        let limit = |rule: &str| {
            let error = SandboxError::new(ErrorCode::Limit, "too much");
            let mut refusal = error.refusal();
            refusal.rule = Some(rule.to_owned());
            of_error(&error.with_refusal(refusal))
        };
        assert_eq!((limit("deadline"), limit("output")), (124, 125));
        assert_eq!(
            of_error(&SandboxError::new(ErrorCode::Unavailable, "no bubblewrap")),
            125
        );
    }

    // CLI-1: the signal that the program got is what ended it, however hard the command died.
    #[test]
    fn cli_1_a_signal_shows_unless_the_command_answers_it() {
        assert_eq!(of_ended(&ended(Exit::Signalled(9)), Some(2)), 130);
        assert_eq!(of_ended(&ended(Exit::Exited(3)), Some(15)), 3);
        let early = Err(SandboxError::new(ErrorCode::Cancelled, "too early"));
        assert_eq!(of_ended(&early, Some(1)), 129);
    }
}

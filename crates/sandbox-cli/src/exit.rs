//! Exit codes. SPEC CLI-1.

use std::process::ExitCode;

use sandbox_core::{ErrorCode, Exit, SandboxError};

use crate::output;

/// The sandbox itself failed.
pub(crate) const OURS: u8 = 125;

/// The deadline was passed.
pub(crate) const DEADLINE: u8 = 124;

/// A usage error is a failure of ours; help and version are none.
pub(crate) fn of_usage(error: &clap::Error) -> ExitCode {
    output::raw(error.use_stderr(), error.render().to_string().as_bytes());
    if error.use_stderr() {
        ExitCode::from(OURS)
    } else {
        ExitCode::SUCCESS
    }
}

/// Of a command that came to an end of its own.
pub(crate) fn of_exit(exit: &Exit) -> u8 {
    u8::try_from(exit.shell_code()).unwrap_or(OURS)
}

/// Of everything else: the deadline is the one limit with a code of its own.
pub(crate) fn of_error(error: &SandboxError) -> u8 {
    let is_deadline =
        error.code() == ErrorCode::Limit && error.refusal().rule.as_deref() == Some("deadline");
    if is_deadline { DEADLINE } else { OURS }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(of_exit(&exit), code, "{exit:?}");
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
}

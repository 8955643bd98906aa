//! A running command, as the task that owns it wants it.

use std::io;

use rustix::io::Errno;
use sandbox_core::{Exit, Result, Signal};
use sandbox_helper::wire::{Record, Status};

use super::{Cause, Event, RunningCommand};
use crate::supervise::Child;

impl Child for RunningCommand {
    async fn ended(&mut self) -> Result<Exit> {
        loop {
            match self.event().await {
                Event::Record(record) => self.exit = Some(exit(record)),
                Event::Failed(error) => self.exit = Some(Err(error)),
                // Only now: with its pid 1 everything that it started is gone (SPEC PROC-5).
                Event::Gone => {
                    return self.exit.clone().unwrap_or_else(|| {
                        Err(Cause::Unexpected("an end without a cause").into())
                    });
                }
            }
        }
    }

    fn kill(&mut self) {
        self.hang_up();
    }

    fn kill_hard(&mut self) {
        self.end_by_signal();
    }

    fn signal(&mut self, signal: Signal) {
        self.try_signal(signal.number());
    }
}

/// The outcome of a record: what is a result for the caller, and what is a failed isolation
/// (SPEC CMD-4, PROC-7).
fn exit(record: Record) -> Result<Exit> {
    match record {
        Record::Ended(Status::Exited(code)) => Ok(Exit::Exited(code)),
        Record::Ended(Status::Signalled(signal)) => Ok(Exit::Signalled(signal)),
        Record::NotExecuted {
            errno,
            exists: false,
        } if errno == Errno::NOENT.raw_os_error() => Ok(Exit::NotFound),
        Record::NotExecuted { errno, .. } => Ok(Exit::NotExecutable(not_executable(errno))),
        Record::BadCwd(errno) => Ok(Exit::BadCwd(bad_cwd(errno))),
        Record::Failed(failure) => Err(Cause::SetUp(failure).into()),
    }
}

fn not_executable(errno: i32) -> String {
    let text = match Errno::from_raw_os_error(errno) {
        // The file is there: what is missing is what its first line names, or its loader.
        Errno::NOENT => "its interpreter is not there",
        Errno::ACCESS => "it is not executable, or a folder",
        Errno::NOEXEC => "it is no program of this machine, and no script with a #! line",
        Errno::TOOBIG => "its arguments and environment are too long",
        Errno::LOOP => "its links, or its interpreters, go on too long",
        Errno::TXTBSY => "it is being written",
        _ => return io::Error::from_raw_os_error(errno).to_string(),
    };
    text.to_owned()
}

fn bad_cwd(errno: i32) -> String {
    let text = match Errno::from_raw_os_error(errno) {
        Errno::NOENT => "it is not there",
        Errno::NOTDIR => "it is no folder",
        Errno::ACCESS => "it is closed to the command",
        Errno::XDEV => "it leads out of the workspace",
        Errno::LOOP => "its links go on too long",
        _ => return io::Error::from_raw_os_error(errno).to_string(),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use sandbox_core::ErrorCode;
    use sandbox_helper::Step;
    use sandbox_helper::wire::Failure;

    use super::*;

    // CMD-4, PROC-7: results and failures never meet.
    #[test]
    fn proc_7_records_become_results_or_failures() {
        let not_executed = |errno: Errno, exists| Record::NotExecuted {
            errno: errno.raw_os_error(),
            exists,
        };
        for (record, expected) in [
            (Record::Ended(Status::Exited(127)), Exit::Exited(127)),
            (Record::Ended(Status::Signalled(9)), Exit::Signalled(9)),
            (not_executed(Errno::NOENT, false), Exit::NotFound),
            (
                not_executed(Errno::NOENT, true),
                Exit::NotExecutable("its interpreter is not there".to_owned()),
            ),
            (
                not_executed(Errno::ACCESS, true),
                Exit::NotExecutable("it is not executable, or a folder".to_owned()),
            ),
            (
                Record::BadCwd(Errno::XDEV.raw_os_error()),
                Exit::BadCwd("it leads out of the workspace".to_owned()),
            ),
        ] {
            assert_eq!(exit(record).unwrap(), expected);
        }
        let failure = Failure {
            step: Step::Filter,
            errno: Errno::INVAL.raw_os_error(),
        };
        let error = exit(Record::Failed(failure)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable);
    }
}

//! How many tests passed and failed, counted from what libtest writes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;

/// How many tests passed and failed, over everything that was run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    /// Runs a test program, shows what it writes as it comes, and counts; whether it
    /// succeeded.
    pub(crate) fn tee(&mut self, command: &mut Command) -> Outcome<bool> {
        let program = command.get_program().to_owned();
        let failed = |error: std::io::Error| format!("{}: {error}", Path::new(&program).display());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let before = *self;
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line.map_err(failed)?;
                let line = String::from_utf8_lossy(&line);
                self.count(&line);
                println!("{line}");
            }
        }
        let success = child.wait().map_err(failed)?.success();
        // One that died before its closing line failed all the same.
        if !success && self.failed == before.failed {
            self.failed += 1;
        }
        Ok(success)
    }

    /// Counts a closing line of libtest; other lines count nothing.
    fn count(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let number = |what: &str| -> u64 {
            let (before, _) = counts.split_once(what).unwrap_or_default();
            let digits = before.trim_end().rsplit(' ').next();
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        self.passed += number("passed;");
        self.failed += number("failed;");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted_and_others_are_not() {
        let mut tally = Tally::default();
        for line in [
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.10s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
            "test a ... ok",
        ] {
            tally.count(line);
        }
        let expected = Tally {
            passed: 13,
            failed: 2,
        };
        assert_eq!(tally, expected);
    }

    #[test]
    fn a_program_that_dies_without_a_word_is_a_failure() {
        let mut tally = Tally::default();
        let script = "echo 'test result: ok. 3 passed; 0 failed;'; exit 1";
        let ok = tally
            .tee(Command::new("/bin/sh").args(["-c", script]))
            .unwrap();
        let expected = Tally {
            passed: 3,
            failed: 1,
        };
        assert_eq!((ok, tally), (false, expected));
    }
}

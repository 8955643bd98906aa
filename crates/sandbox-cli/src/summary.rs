//! How a command ended and what it left: for a person, and as JSON.

use sandbox_core::{Exit, Finished, Result, SessionId, shown};
use sandbox_storage::{Change, ChangeKind};
use serde_json::{Value, json};

use crate::config::Host;
use crate::output::{self, Output};
use crate::{exit, ids};

/// How many changes a person is shown, and a program is given.
const SHOWN_CHANGES: usize = 20;
const MAX_CHANGES: usize = 10_000;

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) session: SessionId,
    /// What was run.
    pub(crate) executable: &'a str,
    pub(crate) ended: &'a Result<Finished>,
    /// The first signal that the program got.
    pub(crate) signal: Option<i32>,
    pub(crate) kept: bool,
    /// What differs from the template, where that was looked at.
    pub(crate) changes: Option<&'a [Change]>,
}

impl Summary<'_> {
    /// Says it all, and gives the program's exit code.
    pub(crate) fn tell(&self, host: &Host, output: Output) -> Result<u8> {
        if output.is_json() {
            output.event(&self.to_json())?;
        } else if let Ok(finished) = self.ended
            && let Exit::BadCwd(_) | Exit::NotFound | Exit::NotExecutable(_) = finished.exit
        {
            output.note(&format!(
                "sandbox: {}: {}",
                shown(self.executable),
                finished.exit
            ));
        }
        if let Err(error) = self.ended {
            output.error(error);
        }
        if let Some(changes) = self.changes {
            output.note(&self.about(changes, host));
        }
        Ok(exit::of_ended(self.ended, self.signal))
    }

    fn to_json(&self) -> Value {
        let mut result = match self.ended {
            Ok(finished) => json!({
                "exit": exit_json(&finished.exit),
                "wall_ms": u64::try_from(finished.wall.as_millis()).unwrap_or(u64::MAX),
                "denials": finished.denials,
            }),
            Err(error) => output::failure(error),
        };
        result["event"] = json!("result");
        result["session"] = json!(self.session);
        result["kept"] = json!(self.kept);
        if let Some(signal) = self.signal {
            result["interrupted_by"] = json!(signal);
        }
        if let Some(changes) = self.changes {
            result["changes"] = json!(&changes[..changes.len().min(MAX_CHANGES)]);
            result["changes_total"] = json!(changes.len());
        }
        result
    }

    /// What changed, and the next command to type.
    fn about(&self, changes: &[Change], host: &Host) -> String {
        let (program, id) = (host.program(), ids::short(&self.session));
        let mut lines = Vec::new();
        match (changes.len(), self.kept) {
            (0, true) => lines.push(format!("sandbox: nothing changed; session {id} is kept")),
            (0, false) => lines.push("sandbox: nothing changed".to_owned()),
            (total, true) => lines.push(format!(
                "sandbox: {} changed, in session {id}",
                count(total, "entry", "entries")
            )),
            (total, false) => lines.push(format!(
                "sandbox: {} changed; the session is removed",
                count(total, "entry", "entries")
            )),
        }
        for change in changes.iter().take(SHOWN_CHANGES) {
            lines.push(format!("  {} {}", letter(change.kind), change.path));
        }
        if changes.len() > SHOWN_CHANGES {
            lines.push(format!("  … and {} more", changes.len() - SHOWN_CHANGES));
        }
        if self.kept {
            if let Some(path) = example(changes) {
                lines.push(format!(
                    "  to take it over:   {program} session cp {id}:{path} ."
                ));
            }
            lines.push(format!(
                "  to go on in it:    {program} session exec {id} -- COMMAND"
            ));
            lines.push(format!("  to throw it away:  {program} session rm {id}"));
        }
        lines.join("\n")
    }
}

/// A path to copy out; one that a shell would read differently is left to the person.
fn example(changes: &[Change]) -> Option<String> {
    let there = changes
        .iter()
        .find(|change| change.kind != ChangeKind::Removed)?;
    let path = there.path.to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/+@".contains(&byte);
    Some(if path.bytes().all(is_plain) {
        path
    } else {
        "PATH".to_owned()
    })
}

/// An exit as JSON: how it ended, and the number a shell would show.
fn exit_json(exit: &Exit) -> Value {
    let code = exit.shell_code();
    match exit {
        Exit::Exited(_) => json!({ "kind": "exited", "code": code }),
        Exit::Signalled(signal) => json!({ "kind": "signalled", "code": code, "signal": signal }),
        Exit::NotFound => json!({ "kind": "not-found", "code": code }),
        Exit::NotExecutable(why) => json!({ "kind": "not-executable", "code": code, "why": why }),
        Exit::BadCwd(why) => json!({ "kind": "bad-cwd", "code": code, "why": why }),
    }
}

fn letter(kind: ChangeKind) -> char {
    match kind {
        ChangeKind::Added => 'A',
        ChangeKind::Removed => 'D',
        ChangeKind::TypeChanged => 'T',
        _ => 'M',
    }
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use sandbox_core::{EntryName, FileKind};

    use super::*;

    fn change(path: &[u8], kind: ChangeKind) -> Change {
        Change {
            path: EntryName::from_bytes(path),
            kind,
            entry: FileKind::File,
        }
    }

    // CLI-1: the command to type is one that works.
    #[test]
    fn cli_1_the_example_needs_no_quotes() {
        let gone = change(b"a", ChangeKind::Removed);
        let odd = change(b"b c\xff", ChangeKind::Added);
        let plain = change(b"src/main.rs", ChangeKind::Modified);
        let of = |changes: &[Change]| example(changes);
        assert_eq!(of(std::slice::from_ref(&gone)), None);
        assert_eq!(of(&[gone.clone(), plain]), Some("src/main.rs".to_owned()));
        assert_eq!(of(&[gone, odd]), Some("PATH".to_owned()));
    }

    // CLI-1
    #[test]
    fn cli_1_every_exit_has_its_json() {
        let table = [
            (Exit::Exited(3), json!({ "kind": "exited", "code": 3 })),
            (
                Exit::Signalled(9),
                json!({ "kind": "signalled", "code": 137, "signal": 9 }),
            ),
            (Exit::NotFound, json!({ "kind": "not-found", "code": 127 })),
            (
                Exit::NotExecutable("a".into()),
                json!({ "kind": "not-executable", "code": 126, "why": "a" }),
            ),
            (
                Exit::BadCwd("b".into()),
                json!({ "kind": "bad-cwd", "code": 125, "why": "b" }),
            ),
        ];
        for (exit, value) in table {
            assert_eq!(exit_json(&exit), value);
        }
    }
}

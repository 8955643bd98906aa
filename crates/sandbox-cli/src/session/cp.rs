//! `sandbox session cp`: files into a session and out of it.

mod into;
mod out_of;

use std::path::{Path, PathBuf};

use sandbox_core::{ErrorCode, Handle, Result, SandboxError, shown};
use serde_json::json;

use super::reopen;
use crate::arguments::Cp;
use crate::config::Host;
use crate::output::Output;
use crate::signals::{Signals, interrupted};

/// How many entries that were left out a person is shown.
const SHOWN_SKIPPED: usize = 5;

/// One of the two places.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Session { id: String, path: String },
    Host(PathBuf),
}

impl Place {
    /// `ID:PATH`, where ID looks like one; else a path of the host. A host path that looks
    /// like it is written `./abcd:x`.
    fn parse(written: &str) -> Self {
        if let Some((id, path)) = written.split_once(':')
            && id.len() >= 4
            && id
                .bytes()
                .all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit))
        {
            // As scp has it: nothing after the colon is the top folder.
            let path = if path.is_empty() { "." } else { path };
            return Self::Session {
                id: id.to_owned(),
                path: path.to_owned(),
            };
        }
        Self::Host(PathBuf::from(written))
    }
}

/// What was copied.
#[derive(Debug)]
struct Copied {
    /// Where it is now.
    place: String,
    /// What was left out: FIFOs, sockets and devices.
    skipped: Vec<String>,
}

pub(super) async fn run(host: &Host, arguments: Cp, output: Output) -> Result<u8> {
    let places = (Place::parse(&arguments.from), Place::parse(&arguments.to));
    let mut signals = Signals::watch()?;
    let line = ["session cp".to_owned()];
    let (handle, copied) = match places {
        (Place::Session { id, path }, Place::Host(to)) => {
            let handle = reopen(host, &id, &line).await?;
            let copied = out_of::copy(&handle, &path, &to, arguments.force, &mut signals).await;
            (handle, copied)
        }
        (Place::Host(from), Place::Session { id, path }) => {
            let handle = reopen(host, &id, &line).await?;
            let session = handle.session();
            let copied = into::copy(&*session, &from, &path, arguments.force, &mut signals).await;
            (handle, copied)
        }
        _ => {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                "one of the two must be ID:PATH, the other a path of this host",
            )
            .with_hint("`sandbox session cp ID:result.txt .`"));
        }
    };
    let stopped = handle.stop().await;
    let copied = copied?;
    stopped?;
    tell_skipped(&copied.skipped, output);
    let value = json!({ "copied": copied.place, "skipped": copied.skipped });
    output.result(&value, || format!("{}\n", copied.place))?;
    Ok(0)
}

fn tell_skipped(skipped: &[String], output: Output) {
    if skipped.is_empty() {
        return;
    }
    let shown = &skipped[..skipped.len().min(SHOWN_SKIPPED)];
    let more = if skipped.len() > shown.len() {
        ", …"
    } else {
        ""
    };
    output.note(&format!(
        "sandbox: FIFOs, sockets and devices are left out ({}): {}{more}",
        skipped.len(),
        shown.join(", ")
    ));
}

/// Does a part of a copy, unless a signal comes first.
async fn unless_interrupted<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        done = work => done,
        received = signals.more_than(0) => Err(interrupted(received.first.unwrap_or_default())),
    }
}

/// A name beside the copy's place that nothing else has.
fn aside() -> String {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    format!(".sandbox-cp-{}-{nanos}", std::process::id())
}

/// The folder of a path, and the name in it.
fn split(path: &Path) -> Result<(PathBuf, String)> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| {
            SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "{} ends in no name that can be copied: one in UTF-8 is accepted",
                    shown(path.as_os_str().as_encoded_bytes())
                ),
            )
        })?;
    let above = match path.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.to_owned(),
        None => PathBuf::from("/"),
    };
    Ok((above, name.to_owned()))
}

fn occupied(place: &str) -> SandboxError {
    SandboxError::new(
        ErrorCode::Invalid,
        format!("{} is there already", shown(place)),
    )
    .with_hint("replace it with `--force`, or name another place")
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-2
    #[test]
    fn cli_2_a_place_of_a_session_begins_with_its_id() {
        let session = |id: &str, path: &str| Place::Session {
            id: id.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(Place::parse("ab12:src/x"), session("ab12", "src/x"));
        assert_eq!(Place::parse("ab12:"), session("ab12", "."));
        for host in ["src/x", "./ab12:x", "abc:x", "AB12:x", "/ab12:x", "."] {
            assert_eq!(Place::parse(host), Place::Host(host.into()), "{host}");
        }
    }

    // CLI-1: a copy that takes for ever can be ended, and one that is done is done.
    #[tokio::test]
    async fn cli_1_a_signal_ends_a_copy() {
        let mut signals = Signals::watch().unwrap();
        let done = unless_interrupted(&mut signals, async { Ok(1) }).await;
        assert_eq!(done.unwrap(), 1);
        // Caught by this process's own watch.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP)
            .unwrap();
        let copy = std::future::pending::<Result<()>>();
        let error = unless_interrupted(&mut signals, copy).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled);
        assert_eq!(signals.received().first, Some(1));
    }

    // CLI-2
    #[test]
    fn cli_2_a_path_is_split_into_folder_and_name() {
        let of = |path: &str| split(Path::new(path)).map_err(|error| error.code());
        assert_eq!(of("a"), Ok((".".into(), "a".to_owned())));
        assert_eq!(of("/a"), Ok(("/".into(), "a".to_owned())));
        assert_eq!(of("x/y/"), Ok(("x".into(), "y".to_owned())));
        for refused in ["", "/", "..", "a/.."] {
            assert_eq!(of(refused), Err(ErrorCode::Invalid), "{refused}");
        }
    }
}

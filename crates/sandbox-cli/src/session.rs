//! `sandbox session`: workspaces that stay.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_bwrap::{BwrapHandle, OpenOptions};
use sandbox_core::{
    CreateRequest, ErrorCode, Exit, Handle, Result, SandboxError, SavedState, SessionId, shown,
};
use sandbox_storage::{Details, RefName, SessionInfo, Store};
use serde_json::json;

use crate::arguments::{Create, Exec, Rm, Session};
use crate::config::Host;
use crate::drive::{command, drive};
use crate::output::Output;
use crate::record::Record;
use crate::run::{count, exit_json, folder, holder, on_thread, open, template_of};
use crate::signals::Signals;
use crate::{copy, exit, ids};

pub(crate) async fn run(host: &Host, command: Session, output: &Output) -> Result<u8> {
    match command {
        Session::Create(arguments) => create(host, arguments, *output).await,
        Session::List => list(host, *output).await,
        Session::Exec(arguments) => exec(host, arguments, *output).await,
        Session::Cp(arguments) => copy::run(host, arguments, *output).await,
        Session::Rm(arguments) => rm(host, arguments, *output).await,
    }
}

async fn create(host: &Host, arguments: Create, output: Output) -> Result<u8> {
    let signals = Signals::watch()?;
    let folder = folder(arguments.dir.as_deref())?;
    let record = Record::new(&arguments.make, &folder)?;
    let policy = record.resolve()?;
    let backend = host.backend_for(&record)?;
    let template = match &arguments.template {
        Some(name) => {
            let (store, name) = (backend.store().clone(), RefName::new(name)?);
            on_thread(move || store.read_ref(&name))
                .await?
                .ok_or_else(|| {
                    SandboxError::new(
                        ErrorCode::NotFound,
                        format!(
                            "there is no template {}",
                            shown(arguments.template.as_deref().unwrap_or_default())
                        ),
                    )
                    .with_hint("`sandbox template list` shows them")
                })?
        }
        None => template_of(&backend, &folder, &arguments.ingest, &signals, output).await?,
    };
    signals.check()?;
    let handle = open(&backend, template, policy, &record, &[]).await?;
    let id = handle.session().id();
    handle.stop().await?;
    output.result(
        &json!({ "session_id": id, "template_key": template }),
        || format!("{id}\n"),
    );
    Ok(0)
}

async fn list(host: &Host, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let sessions = on_thread(move || store.list_sessions()).await?;
    output.result(&sessions, || {
        if sessions.is_empty() {
            return "no sessions\n".to_owned();
        }
        let mut text = format!(
            "{:14}{:14}{:8}{:10}{}\n",
            "SESSION", "TEMPLATE", "AGE", "EXPIRES", "STATE"
        );
        for session in &sessions {
            text += &row(session);
        }
        text
    });
    Ok(0)
}

fn row(session: &SessionInfo) -> String {
    let id = ids::short(&session.session_id);
    let state = match (session.held, session.dirty) {
        (true, _) => "in use",
        (false, true) => "its last owner died",
        (false, false) => "at rest",
    };
    match &session.details {
        Details::Known {
            template_key,
            created,
            expires,
            ..
        } => {
            let template = template_key.to_string();
            let now = now();
            let left = expires.map_or_else(
                || "never".to_owned(),
                |expires| format!("in {}", span(expires - now)),
            );
            format!(
                "{id:14}{:14}{:8}{left:10}{state}\n",
                &template[..ids::SHOWN_DIGITS],
                span(now - created)
            )
        }
        Details::Damaged(why) => format!("{id:14}damaged: {}\n", shown(why)),
    }
}

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
}

/// A span in its largest unit.
fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

async fn exec(host: &Host, arguments: Exec, output: Output) -> Result<u8> {
    let command = command(&arguments.bounds, &arguments.line.line)?;
    let mut signals = Signals::watch()?;
    let handle = reopen(host, &arguments.id, &arguments.line.line).await?;
    let session = handle.session();
    let ended = drive(&*session, command, &mut signals, output).await;
    let stopped = handle.stop().await;
    let code = match &ended {
        Ok(finished) => {
            if output.is_json() {
                output.event(&json!({
                    "event": "result",
                    "session_id": session.id(),
                    "exit": exit_json(&finished.exit),
                    "wall_ms": u64::try_from(finished.wall.as_millis()).unwrap_or(u64::MAX),
                    "denials": finished.denials,
                }));
            }
            if let Exit::BadCwd(_) | Exit::NotFound | Exit::NotExecutable(_) = finished.exit {
                output.note(&format!(
                    "sandbox: {}: {}",
                    shown(&arguments.line.line[0]),
                    finished.exit
                ));
            }
            exit::of_exit(&finished.exit)
        }
        Err(error) => {
            output.error(error);
            let signal = signals.received().first;
            signal.map_or_else(
                || exit::of_error(error),
                |number| exit::of_exit(&Exit::Signalled(number)),
            )
        }
    };
    match stopped {
        Ok(()) => Ok(code),
        // The command's own end comes first (ERR-4).
        Err(error) => {
            output.error(&error);
            Ok(if code == 0 { exit::OURS } else { code })
        }
    }
}

/// Owns a session that is there, with all that it was made with.
pub(crate) async fn reopen(host: &Host, id: &str, line: &[String]) -> Result<Arc<BwrapHandle>> {
    let store = host.backend()?.store().clone();
    let written = id.to_owned();
    let (saved, record) = on_thread(move || {
        let saved = saved_state(&store, &written)?;
        let record = store.session_policy(&saved.session_id)?;
        Ok((saved, record))
    })
    .await?;
    let record = record
        .as_deref()
        .map(Record::from_bytes)
        .transpose()?
        .ok_or_else(|| {
            SandboxError::new(
                ErrorCode::Storage,
                "the session has no policy.json: it was not made by this program",
            )
        })?;
    let policy = record.resolve()?;
    let backend = host.backend_for(&record)?;
    let mut options = OpenOptions::default();
    options.holder = holder(line);
    backend
        .open(CreateRequest::resume(saved).policy(policy), options)
        .await
}

fn saved_state(store: &Store, written: &str) -> Result<SavedState> {
    let sessions = store.list_sessions()?;
    let ids: Vec<SessionId> = sessions.iter().map(|session| session.session_id).collect();
    let id = ids::find(&ids, written)?;
    let details = sessions
        .into_iter()
        .find(|session| session.session_id == id)
        .map(|session| session.details);
    match details {
        Some(Details::Known {
            backend,
            template_key,
            ..
        }) => Ok(SavedState {
            backend,
            session_id: id,
            template_key,
        }),
        Some(Details::Damaged(why)) => Err(SandboxError::new(
            ErrorCode::Storage,
            format!("the session {} is damaged: {}", ids::short(&id), shown(why)),
        )),
        None => Err(SandboxError::new(
            ErrorCode::NotFound,
            "the session has just been removed",
        )),
    }
}

async fn rm(host: &Host, arguments: Rm, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let removed = on_thread(move || {
        let known: Vec<SessionId> = store
            .list_sessions()?
            .iter()
            .map(|session| session.session_id)
            .collect();
        // All names are understood before anything is removed.
        let mut ids = arguments
            .ids
            .iter()
            .map(|written| ids::find(&known, written))
            .collect::<Result<Vec<_>>>()?;
        ids.sort_unstable();
        ids.dedup();
        for id in &ids {
            store.delete_session(id)?;
        }
        Ok(ids)
    })
    .await?;
    output.result(&json!({ "removed": removed }), || {
        format!("{} removed\n", count(removed.len(), "session", "sessions"))
    });
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_one_unit() {
        let spans = [-5, 59, 60, 3599, 3600, 86_399, 604_800].map(span);
        assert_eq!(spans, ["0s", "59s", "1m", "59m", "1h", "23h", "7d"]);
    }
}

//! `sandbox session`: workspaces that stay.

mod cp;
mod create;
mod exec;
mod list;
mod rm;

use std::sync::Arc;
use std::time::Duration;

use sandbox_bwrap::{BwrapBackend, BwrapHandle, OpenOptions};
use sandbox_core::{
    CreateRequest, ErrorCode, FileLimits, Policy, Result, SandboxError, SavedState, SessionId,
    SessionLimits, TemplateKey, shown,
};
use sandbox_storage::{Details, Store};

use crate::arguments::Session;
use crate::config::Host;
use crate::ids;
use crate::output::Output;
use crate::record::Record;
use crate::thread::on_thread;

/// How long a session that nobody removes is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What one copy may move: what an ingest may read, as an archive.
const FILE_LIMITS: FileLimits = FileLimits {
    max_read_bytes: 1 << 20,
    max_write_bytes: 1 << 20,
    max_stream_bytes: 64 << 30,
    max_entries: 1_000_000,
};

pub(crate) async fn run(host: &Host, command: Session, output: Output) -> Result<u8> {
    match command {
        Session::Create(arguments) => create::run(host, arguments, output).await,
        Session::List => list::run(host, output).await,
        Session::Exec(arguments) => exec::run(host, arguments, output).await,
        Session::Cp(arguments) => cp::run(host, arguments, output).await,
        Session::Rm(arguments) => rm::run(host, arguments, output).await,
    }
}

/// A fresh session of a template.
pub(crate) async fn open(
    backend: &BwrapBackend,
    template: TemplateKey,
    policy: Policy,
    record: &Record,
    line: &[String],
) -> Result<Arc<BwrapHandle>> {
    let mut options = OpenOptions::default();
    options.expires = Some(KEPT_FOR);
    options.holder = holder(line);
    options.record = Some(record.to_bytes()?);
    backend
        .open(CreateRequest::fresh(template).policy(policy), options)
        .await
}

/// Owns a session that is there, with all that it was made with.
async fn reopen(host: &Host, id: &str, line: &[String]) -> Result<Arc<BwrapHandle>> {
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
    let limits = SessionLimits {
        files: FILE_LIMITS,
        ..SessionLimits::default()
    };
    backend
        .open(
            CreateRequest::resume(saved).policy(policy).limits(limits),
            options,
        )
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
        )
        .with_hint(format!(
            "remove it: `sandbox session rm {}`",
            ids::short(&id)
        ))),
        None => Err(SandboxError::new(
            ErrorCode::NotFound,
            "the session has just been removed",
        )),
    }
}

/// What another owner is told about this one. Arguments may hold secrets: only the name.
fn holder(line: &[String]) -> String {
    line.first().map_or_else(
        || "sandbox".to_owned(),
        |name| format!("sandbox … -- {}", shown(name)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // ERR-3: whoever asks for a session in use sees no argument.
    #[test]
    fn err_3_a_holder_is_named_without_its_arguments() {
        let line = ["curl".to_owned(), "--token=hunter2".to_owned()];
        assert_eq!(holder(&line), "sandbox … -- \"curl\"");
        assert_eq!(holder(&[]), "sandbox");
    }
}

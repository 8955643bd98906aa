//! `sandbox session rm`.

use sandbox_core::{Result, SandboxError, SessionId};
use sandbox_storage::Store;
use serde_json::json;

use crate::arguments::Rm;
use crate::config::Host;
use crate::exit;
use crate::ids;
use crate::output::{Output, failure};
use crate::summary::count;
use crate::thread::on_thread;

pub(super) async fn run(host: &Host, arguments: Rm, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let (removed, failed) = on_thread(move || remove(&store, &arguments.ids)).await?;
    let failures: Vec<_> = failed
        .iter()
        .map(|(id, error)| {
            let mut value = failure(error);
            value["session"] = json!(id);
            value
        })
        .collect();
    output.result(&json!({ "removed": removed, "failed": failures }), || {
        format!("{} removed\n", count(removed.len(), "session", "sessions"))
    })?;
    for (_, error) in &failed {
        output.error(error);
    }
    Ok(if failed.is_empty() { 0 } else { exit::OURS })
}

type Removed = (Vec<SessionId>, Vec<(SessionId, SandboxError)>);

/// Removes what can be removed, once all names are understood.
fn remove(store: &Store, written: &[String]) -> Result<Removed> {
    let known: Vec<SessionId> = store
        .list_sessions()?
        .iter()
        .map(|session| session.session_id)
        .collect();
    let mut ids = written
        .iter()
        .map(|written| ids::find(&known, written))
        .collect::<Result<Vec<_>>>()?;
    ids.sort_unstable();
    ids.dedup();
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for id in ids {
        match store.delete_session(&id) {
            Ok(()) => removed.push(id),
            Err(error) => failed.push((id, error)),
        }
    }
    Ok((removed, failed))
}

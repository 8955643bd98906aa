//! `sandbox session exec`.

use sandbox_core::{Handle, Result};
use serde_json::json;

use super::reopen;
use crate::arguments::Exec;
use crate::config::Host;
use crate::drive::{command, drive};
use crate::exit;
use crate::output::Output;
use crate::signals::Signals;
use crate::summary::Summary;

pub(super) async fn run(host: &Host, arguments: Exec, output: Output) -> Result<u8> {
    let command = command(&arguments.bounds, &arguments.line.line)?;
    let mut signals = Signals::watch()?;
    let handle = reopen(host, &arguments.id, &arguments.line.line).await?;
    let session = handle.session();
    let begun = if output.is_json() {
        output.event(&json!({ "event": "session", "id": session.id() }))
    } else {
        Ok(())
    };
    let ended = match begun {
        Ok(()) => drive(&*session, command, &mut signals, output).await,
        Err(error) => Err(error),
    };
    let stopped = handle.stop().await;
    let summary = Summary {
        session: session.id(),
        executable: &arguments.line.line[0],
        ended: &ended,
        signal: signals.received().first,
        kept: true,
        changes: None,
    };
    let code = summary.tell(host, output)?;
    // The command's own end comes first (ERR-4).
    match stopped {
        Ok(()) => Ok(code),
        Err(error) => {
            output.error(&error);
            Ok(if code == 0 { exit::OURS } else { code })
        }
    }
}

//! `sandbox run`: a command in a private copy of a folder.

use sandbox_core::{Handle, Result};
use serde_json::json;

use crate::arguments::Run;
use crate::config::Host;
use crate::drive::{command, drive};
use crate::output::Output;
use crate::record::Record;
use crate::session::open;
use crate::signals::Signals;
use crate::summary::Summary;
use crate::{exit, folder, gc};

pub(crate) async fn run(host: &Host, arguments: Run, output: Output) -> Result<u8> {
    let project = folder::resolve(arguments.dir.as_deref())?;
    // Everything that can be refused is, before anything is made.
    let command = command(&arguments.bounds, &arguments.line.line)?;
    let record = Record::new(&arguments.make, &project)?;
    let policy = record.resolve()?;
    let mut signals = Signals::watch()?;
    let backend = host.backend_for(&record)?;

    let ingested = folder::template_of(&backend, &project, &arguments.ingest, &signals).await?;
    folder::tell(&ingested, output);
    signals.check()?;
    let template = ingested.prewarmed.template_key;
    let handle = open(&backend, template, policy, &record, &arguments.line.line).await?;
    let session = handle.session();
    let begun = if output.is_json() {
        let copied = folder::to_json(&ingested);
        output.event(&json!({ "event": "session", "id": session.id(), "copied": copied }))
    } else {
        Ok(())
    };
    let ended = match begun {
        Ok(()) => drive(&*session, command, &mut signals, output).await,
        Err(error) => Err(error),
    };
    let changes = handle.changes().await;
    // What could not be compared may hold something.
    let changed = changes.as_ref().map_or(true, |changes| !changes.is_empty());
    let kept = arguments.keep || (changed && !arguments.rm);
    let closed = if kept {
        handle.stop().await
    } else {
        handle.delete().await
    };
    gc::when_due(&backend).await;

    let summary = Summary {
        session: session.id(),
        executable: &arguments.line.line[0],
        ended: &ended,
        signal: signals.received().first,
        kept: kept || closed.is_err(),
        changes: changes.as_deref().ok(),
    };
    // The command's own end comes first, what failed around it after (ERR-4).
    let mut code = summary.tell(host, output)?;
    for failure in [changes.err(), closed.err()].into_iter().flatten() {
        output.error(&failure);
        if code == 0 {
            code = exit::OURS;
        }
    }
    Ok(code)
}

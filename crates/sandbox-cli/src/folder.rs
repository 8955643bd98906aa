//! A folder of the host that becomes a template.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandbox_bwrap::BwrapBackend;
use sandbox_core::{ErrorCode, Result, SandboxError, TemplateId, shown};
use sandbox_storage::{IngestOptions, Ingested, RefName};
use serde_json::{Value, json};

use crate::arguments::Ingest;
use crate::output::Output;
use crate::signals::{Signals, interrupted};
use crate::thread::on_thread;

/// How long the template of a project's last run is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many names of files a person is shown.
const SHOWN_NAMES: usize = 5;

/// The folder that is copied, resolved.
pub(crate) fn resolve(given: Option<&Path>) -> Result<PathBuf> {
    let path = given.unwrap_or_else(|| Path::new("."));
    path.canonicalize().map_err(|error| {
        SandboxError::new(
            ErrorCode::NotFound,
            format!(
                "the folder {} can't be used",
                shown(path.as_os_str().as_encoded_bytes())
            ),
        )
        .with_source(error)
    })
}

/// Makes the template of a project folder, under the one ref that each run of it replaces.
pub(crate) async fn template_of(
    backend: &BwrapBackend,
    folder: &Path,
    ingest: &Ingest,
    signals: &Signals,
) -> Result<Ingested> {
    let ingested = read(backend, "run", folder, ingest, signals).await?;
    let key = ingested.prewarmed.template_key;
    let (store, name) = (backend.store().clone(), RefName::for_folder(folder));
    on_thread(move || store.set_ref(&name, &key, Some(KEPT_FOR))).await?;
    Ok(ingested)
}

/// Copies a folder into the store; a signal ends it.
pub(crate) async fn read(
    backend: &BwrapBackend,
    id: &str,
    folder: &Path,
    ingest: &Ingest,
    signals: &Signals,
) -> Result<Ingested> {
    let mut options = IngestOptions::default();
    options.respect_ignore = ingest.respect_ignore;
    options.exclude = ingest.exclude.clone();
    let watched = signals.clone();
    options.progress = Some(Arc::new(move |_| match watched.received().first {
        None => ControlFlow::Continue(()),
        Some(_) => ControlFlow::Break(()),
    }));
    let ingested = backend.ingest(&TemplateId::new(id)?, folder, options).await;
    match signals.received().first {
        Some(number) if ingested.is_err() => Err(interrupted(number)),
        _ => ingested,
    }
}

/// Names what a person should know about what went in, and what did not.
pub(crate) fn tell(ingested: &Ingested, output: Output) {
    let credential_like = ingested.credential_like.iter().map(ToString::to_string);
    tell_names(
        "these look like credentials, and the command can read them",
        ingested.stats.credential_like,
        credential_like,
        output,
    );
    let skipped = ingested
        .skipped
        .iter()
        .map(|skipped| format!("{} ({})", skipped.path, word(&skipped.why)));
    tell_names("left out", ingested.stats.skipped, skipped, output);
}

fn tell_names(what: &str, total: u64, names: impl Iterator<Item = String>, output: Output) {
    if total == 0 {
        return;
    }
    let shown: Vec<String> = names.take(SHOWN_NAMES).collect();
    let more = if total > shown.len() as u64 {
        ", …"
    } else {
        ""
    };
    output.note(&format!(
        "sandbox: {what} ({total}): {}{more}",
        shown.join(", ")
    ));
}

/// The one word that a value is in JSON.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The same for a program, in full.
pub(crate) fn to_json(ingested: &Ingested) -> Value {
    let stats = &ingested.stats;
    json!({
        "template_key": ingested.prewarmed.template_key,
        "reused": ingested.prewarmed.reused,
        "files": stats.files,
        "directories": stats.directories,
        "symlinks": stats.symlinks,
        "bytes": stats.bytes,
        "ignored": stats.ignored,
        "excluded": stats.excluded,
        "credential_like": ingested.credential_like,
        "skipped": ingested.skipped,
        "stripped": ingested.stripped,
    })
}

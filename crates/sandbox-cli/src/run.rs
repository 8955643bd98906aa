//! `sandbox run`: a command in a private copy of a folder.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandbox_bwrap::{BwrapBackend, BwrapHandle, OpenOptions};
use sandbox_core::{
    CreateRequest, ErrorCode, Exit, Finished, Handle, Policy, Result, SandboxError, SessionId,
    TemplateId, TemplateKey, shown,
};
use sandbox_storage::{Change, ChangeKind, GcOptions, IngestOptions, Ingested, RefName};
use serde_json::{Value, json};

use crate::arguments::{Ingest, Run};
use crate::config::Host;
use crate::drive::{command, drive};
use crate::output::Output;
use crate::record::Record;
use crate::signals::{Signals, interrupted};
use crate::{exit, ids};

/// How many changes, and how many names of files, a person is shown.
const SHOWN_CHANGES: usize = 20;
const SHOWN_NAMES: usize = 5;

/// How long a session that a command changed is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) async fn run(host: &Host, arguments: Run, output: &Output) -> Result<u8> {
    let output = *output;
    let folder = folder(arguments.dir.as_deref())?;
    // Everything that can be refused is, before anything is made.
    let command = command(&arguments.bounds, &arguments.line.line)?;
    let record = Record::new(&arguments.make, &folder)?;
    let policy = record.resolve()?;
    let mut signals = Signals::watch()?;
    let backend = host.backend_for(&record)?;

    let template = template_of(&backend, &folder, &arguments.ingest, &signals, output).await?;
    signals.check()?;
    let handle = open(&backend, template, policy, &record, &arguments.line.line).await?;
    let session = handle.session();
    if output.is_json() {
        output.event(&json!({ "event": "session", "session_id": session.id() }));
    }
    let ended = match signals.check() {
        Ok(()) => drive(&*session, command, &mut signals, output).await,
        Err(error) => Err(error),
    };
    let changes = handle.changes().await;
    let keep = arguments.keep
        || (!arguments.rm && changes.as_ref().map_or(true, |changes| !changes.is_empty()));
    let closed = if keep {
        handle.stop().await
    } else {
        handle.delete().await
    };
    collect(&backend).await;

    let end = End {
        id: session.id(),
        kept: keep,
        ended: &ended,
        changes: changes.as_deref().unwrap_or_default(),
    };
    if output.is_json() {
        output.event(&end.to_json());
    } else {
        end.tell(output);
    }
    // The command's own end comes first, what failed around it after (ERR-4).
    let code = match &ended {
        Ok(finished) => {
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
            signals
                .received()
                .first
                .map_or_else(|| exit::of_error(error), signal_code)
        }
    };
    for failure in [changes.err(), closed.err()].into_iter().flatten() {
        output.error(&failure);
        if code == 0 {
            return Ok(exit::OURS);
        }
    }
    Ok(code)
}

/// What a shell shows for a signal.
fn signal_code(number: i32) -> u8 {
    exit::of_exit(&Exit::Signalled(number))
}

/// The folder that is copied, resolved.
pub(crate) fn folder(given: Option<&Path>) -> Result<PathBuf> {
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

/// The template of a project folder, under the one ref that each run of it replaces.
pub(crate) async fn template_of(
    backend: &BwrapBackend,
    folder: &Path,
    ingest: &Ingest,
    signals: &Signals,
    output: Output,
) -> Result<TemplateKey> {
    let ingested = ingest_folder(backend, "run", folder, ingest, signals).await?;
    tell(&ingested, output);
    let key = ingested.prewarmed.template_key;
    let (store, name) = (backend.store().clone(), RefName::for_folder(folder));
    on_thread(move || store.set_ref(&name, &key, Some(KEPT_FOR))).await?;
    Ok(key)
}

/// Copies a folder into the store; a signal ends it.
pub(crate) async fn ingest_folder(
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
    let names = |what: &str, total: u64, names: Vec<String>| {
        if total > 0 {
            let shown: Vec<&str> = names.iter().take(SHOWN_NAMES).map(String::as_str).collect();
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
    };
    names(
        "these look like credentials, and the command can read them",
        ingested.stats.credential_like,
        ingested
            .credential_like
            .iter()
            .map(ToString::to_string)
            .collect(),
    );
    names(
        "left out",
        ingested.stats.skipped,
        ingested
            .skipped
            .iter()
            .map(|skipped| format!("{} ({})", skipped.path, reason(&skipped.why)))
            .collect(),
    );
}

fn reason(why: &impl serde::Serialize) -> String {
    serde_json::to_value(why)
        .ok()
        .and_then(|value| Some(value.as_str()?.to_owned()))
        .unwrap_or_default()
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

/// What another owner is told about this one. Arguments may hold secrets: only the name.
pub(crate) fn holder(line: &[String]) -> String {
    line.first().map_or_else(
        || "sandbox".to_owned(),
        |name| format!("sandbox … -- {}", shown(name)),
    )
}

/// Removes what is expired, so that runs don't pile up. Another collector is as good.
async fn collect(backend: &BwrapBackend) {
    let store = backend.store().clone();
    // The run itself has ended: what is left is left for the next one.
    let _ = on_thread(move || store.gc(&GcOptions::default())).await;
}

/// Runs what blocks beside the runtime.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(SandboxError::new(
                ErrorCode::Unavailable,
                "a thread of the program did not end",
            )
            .with_source(error))
        })
}

/// How a run ended.
struct End<'a> {
    id: SessionId,
    kept: bool,
    ended: &'a Result<Finished>,
    changes: &'a [Change],
}

impl End<'_> {
    fn to_json(&self) -> Value {
        let mut result = json!({
            "event": "result",
            "session_id": self.id,
            "kept": self.kept,
            "changes": self.changes,
        });
        let fields = match self.ended {
            Ok(finished) => json!({
                "exit": exit_json(&finished.exit),
                "wall_ms": u64::try_from(finished.wall.as_millis()).unwrap_or(u64::MAX),
                "denials": finished.denials,
            }),
            Err(error) => json!({ "error": error.refusal() }),
        };
        if let (Value::Object(result), Value::Object(fields)) = (&mut result, fields) {
            result.extend(fields);
        }
        result
    }

    /// What changed, and the next command to type.
    fn tell(&self, output: Output) {
        if self.changes.is_empty() {
            if self.kept {
                output.note(&format!(
                    "sandbox: nothing changed; the session {} is kept",
                    ids::short(&self.id)
                ));
            }
            return;
        }
        output.note(&format!(
            "sandbox: {} changed",
            count(self.changes.len(), "entry", "entries")
        ));
        for change in self.changes.iter().take(SHOWN_CHANGES) {
            output.note(&format!("  {} {}", letter(change.kind), change.path));
        }
        if self.changes.len() > SHOWN_CHANGES {
            output.note(&format!(
                "  … and {} more",
                self.changes.len() - SHOWN_CHANGES
            ));
        }
        if self.kept {
            let id = ids::short(&self.id);
            output.note(&format!(
                "take something over:  sandbox session cp {id}:PATH ."
            ));
            output.note(&format!(
                "look around:          sandbox session exec {id} -- sh"
            ));
            output.note(&format!("throw it away:        sandbox session rm {id}"));
        }
    }
}

/// An exit as JSON: how it ended, and the number a shell would show.
pub(crate) fn exit_json(exit: &Exit) -> Value {
    let (how, detail) = match exit {
        Exit::Exited(_) => ("exited", None),
        Exit::Signalled(signal) => ("signalled", Some(json!({ "signal": signal }))),
        Exit::NotFound => ("not-found", None),
        Exit::NotExecutable(why) => ("not-executable", Some(json!({ "why": why }))),
        Exit::BadCwd(why) => ("bad-cwd", Some(json!({ "why": why }))),
    };
    let mut value = json!({ "how": how, "code": exit.shell_code() });
    if let (Value::Object(value), Some(Value::Object(detail))) = (&mut value, detail) {
        value.extend(detail);
    }
    value
}

fn letter(kind: ChangeKind) -> char {
    match kind {
        ChangeKind::Added => 'A',
        ChangeKind::Removed => 'D',
        ChangeKind::Mode => 'm',
        ChangeKind::TypeChanged => 'T',
        _ => 'M',
    }
}

pub(crate) fn count(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

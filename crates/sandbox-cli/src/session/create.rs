//! `sandbox session create`.

use sandbox_core::{ErrorCode, Handle, Result, SandboxError, TemplateKey, shown};
use sandbox_storage::{RefName, Store};
use serde_json::json;

use super::open;
use crate::arguments::Create;
use crate::config::Host;
use crate::folder;
use crate::output::Output;
use crate::record::Record;
use crate::signals::Signals;
use crate::thread::on_thread;

pub(super) async fn run(host: &Host, arguments: Create, output: Output) -> Result<u8> {
    let project = folder::resolve(arguments.dir.as_deref())?;
    let record = Record::new(&arguments.make, &project)?;
    let policy = record.resolve()?;
    let signals = Signals::watch()?;
    let backend = host.backend_for(&record)?;
    let (template, copied) = match arguments.template {
        Some(name) => {
            let store = backend.store().clone();
            (on_thread(move || named(&store, &name)).await?, None)
        }
        None => {
            let ingested =
                folder::template_of(&backend, &project, &arguments.ingest, &signals).await?;
            folder::tell(&ingested, output);
            (
                ingested.prewarmed.template_key,
                Some(folder::to_json(&ingested)),
            )
        }
    };
    signals.check()?;
    let handle = open(&backend, template, policy, &record, &[]).await?;
    let id = handle.session().id();
    handle.stop().await?;
    let mut value = json!({ "session": id, "template_key": template });
    if let Some(copied) = copied {
        value["copied"] = copied;
    }
    output.result(&value, || format!("{id}\n"))?;
    Ok(0)
}

/// The template of a name.
fn named(store: &Store, name: &str) -> Result<TemplateKey> {
    store.read_ref(&RefName::new(name)?)?.ok_or_else(|| {
        SandboxError::new(
            ErrorCode::NotFound,
            format!("there is no template {}", shown(name)),
        )
        .with_hint("`sandbox template list` shows them")
    })
}

//! `sandbox template`: what workspaces are made from.

use sandbox_core::Result;
use sandbox_storage::RefName;
use serde_json::json;

use crate::arguments::{Add, Template};
use crate::config::Host;
use crate::ids::SHOWN_DIGITS;
use crate::output::Output;
use crate::run::{folder, ingest_folder, on_thread, tell};
use crate::signals::Signals;

pub(crate) async fn run(host: &Host, command: Template, output: &Output) -> Result<u8> {
    match command {
        Template::Add(arguments) => add(host, arguments, *output).await,
        Template::List => list(host, *output).await,
    }
}

async fn add(host: &Host, arguments: Add, output: Output) -> Result<u8> {
    let name = RefName::new(&arguments.name)?;
    let folder = folder(arguments.dir.as_deref())?;
    let signals = Signals::watch()?;
    let backend = host.backend()?;
    let ingested = ingest_folder(
        &backend,
        &arguments.name,
        &folder,
        &arguments.ingest,
        &signals,
    )
    .await?;
    tell(&ingested, output);
    let key = ingested.prewarmed.template_key;
    let store = backend.store().clone();
    on_thread(move || store.set_ref(&name, &key, None)).await?;
    let reused = ingested.prewarmed.reused;
    output.result(&json!({ "name": arguments.name, "template_key": key, "reused": reused, "stats": ingested.stats }), || {
        format!("{key}\n")
    });
    Ok(0)
}

async fn list(host: &Host, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let templates = on_thread(move || store.list_templates()).await?;
    output.result(&templates, || {
        if templates.is_empty() {
            return "no templates\n".to_owned();
        }
        let mut text = format!(
            "{:14}{:>9}{:>15}  {}\n",
            "TEMPLATE", "ENTRIES", "BYTES", "NAMES"
        );
        for template in &templates {
            let key = template.template_key.to_string();
            text += &format!(
                "{:14}{:>9}{:>15}  {}\n",
                &key[..SHOWN_DIGITS],
                template.entries,
                template.bytes,
                template.refs.join(", ")
            );
        }
        text
    });
    Ok(0)
}

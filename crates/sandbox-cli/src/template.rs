//! `sandbox template`: what workspaces are made from.

use sandbox_core::{ErrorCode, Result, SandboxError, shown};
use sandbox_storage::{RefName, Source, TemplateInfo};
use serde_json::{Value, json};

use crate::arguments::{Add, Template};
use crate::config::Host;
use crate::folder;
use crate::ids::SHOWN_DIGITS;
use crate::output::Output;
use crate::signals::Signals;
use crate::thread::on_thread;

/// How the refs of runs begin.
const RESERVED: &str = "run-";

pub(crate) async fn run(host: &Host, command: Template, output: Output) -> Result<u8> {
    match command {
        Template::Add(arguments) => add(host, arguments, output).await,
        Template::List => list(host, output).await,
    }
}

async fn add(host: &Host, arguments: Add, output: Output) -> Result<u8> {
    let name = RefName::new(&arguments.name)?;
    if is_of_a_run(&arguments.name) {
        return Err(SandboxError::new(
            ErrorCode::Invalid,
            format!(
                "the template name {} is refused: what begins with `{RESERVED}` belongs to `sandbox run`",
                shown(&arguments.name)
            ),
        ));
    }
    let project = folder::resolve(arguments.dir.as_deref())?;
    let signals = Signals::watch()?;
    let backend = host.backend()?;
    let ingested = folder::read(
        &backend,
        &arguments.name,
        &project,
        &arguments.ingest,
        &signals,
    )
    .await?;
    folder::tell(&ingested, output);
    let key = ingested.prewarmed.template_key;
    let store = backend.store().clone();
    on_thread(move || store.set_ref(&name, &key, None)).await?;
    let mut value = folder::to_json(&ingested);
    value["name"] = json!(arguments.name);
    output.result(&value, || format!("{key}\n"))?;
    Ok(0)
}

async fn list(host: &Host, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let templates = on_thread(move || store.list_templates()).await?;
    let values: Vec<Value> = templates.iter().map(to_json).collect();
    output.result(&values, || {
        if templates.is_empty() {
            return "no templates\n".to_owned();
        }
        let mut text = format!(
            "{:14}{:>9}{:>15}  {:20}{}\n",
            "TEMPLATE", "ENTRIES", "BYTES", "NAMES", "FOLDER"
        );
        for template in &templates {
            text += &row(template);
        }
        text
    })?;
    Ok(0)
}

fn to_json(template: &TemplateInfo) -> Value {
    json!({
        "template_key": template.template_key,
        "template_id": template.template_id,
        "names": template.refs,
        "entries": template.entries,
        "bytes": template.bytes,
        "created": template.created,
        "source": template.source,
    })
}

fn row(template: &TemplateInfo) -> String {
    let key = template.template_key.to_string();
    let names = template.refs.iter().filter(|name| !is_of_a_run(name));
    let names: Vec<&str> = names.map(String::as_str).collect();
    let folder = match &template.source {
        Source::Folder { path } => path.to_string(),
        Source::Bytes => "-".to_owned(),
    };
    let names = if names.is_empty() {
        "-".to_owned()
    } else {
        names.join(", ")
    };
    format!(
        "{:14}{:>9}{:>15}  {names:20}{folder}\n",
        &key[..SHOWN_DIGITS],
        template.entries,
        template.bytes,
    )
}

/// Whether a ref is one that runs of a folder replace, and no name that a person gave.
fn is_of_a_run(name: &str) -> bool {
    name.starts_with(RESERVED)
}

//! `sandbox gc`: what is expired or no longer needed goes.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_bwrap::BwrapBackend;
use sandbox_core::{Result, TemplateKey};
use sandbox_storage::{Details, GcOptions, SessionInfo, Store, TemplateInfo};
use serde_json::json;

use crate::config::Host;
use crate::output::Output;
use crate::summary::count;
use crate::thread::on_thread;

pub(crate) async fn run(host: &Host, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let report = on_thread(move || store.gc(&GcOptions::default())).await?;
    let value = json!({
        "sessions": report.sessions,
        "refs": report.refs,
        "templates": report.templates,
        "blobs": report.blobs,
        "bytes": report.bytes,
        "leftovers": report.leftovers,
    });
    output.result(&value, || {
        let of = |number: u64, one: &str, several: &str| {
            count(usize::try_from(number).unwrap_or(usize::MAX), one, several)
        };
        format!(
            "removed {}, {}, {} of {}, {}\n",
            count(report.sessions.len(), "expired session", "expired sessions"),
            count(report.templates.len(), "template", "templates"),
            of(report.blobs, "file's content", "files' contents"),
            of(report.bytes, "byte", "bytes"),
            of(report.leftovers, "leftover", "leftovers"),
        )
    })?;
    Ok(0)
}

/// Collects after a run, where the store's lists show that something would go.
///
/// The run has ended well or badly by then: what can't be collected is left for the next.
pub(crate) async fn when_due(backend: &BwrapBackend) {
    let store = backend.store().clone();
    let collected = on_thread(move || {
        if is_due(&store)? {
            store.gc(&GcOptions::default())?;
        }
        Ok(())
    });
    // `SANDBOX_BUSY` among it: another collector is as good.
    let _ = collected.await;
}

fn is_due(store: &Store) -> Result<bool> {
    let options = GcOptions::default();
    let seconds = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    };
    let now = seconds(options.now);
    let before = now.saturating_sub(options.grace.as_secs());
    Ok(is_any_expired(&store.list_sessions()?, now)
        || is_any_unused(&store.list_templates()?, &store.list_sessions()?, before))
}

fn is_any_expired(sessions: &[SessionInfo], now: u64) -> bool {
    sessions.iter().any(|session| {
        let expires = match &session.details {
            Details::Known { expires, .. } => *expires,
            Details::Damaged(_) => None,
        };
        !session.held
            && expires.is_some_and(|expires| expires <= i64::try_from(now).unwrap_or(i64::MAX))
    })
}

/// Whether there is a template, made before this, that no ref and no session names.
fn is_any_unused(templates: &[TemplateInfo], sessions: &[SessionInfo], before: u64) -> bool {
    let used: HashSet<TemplateKey> = sessions
        .iter()
        .filter_map(|session| match &session.details {
            Details::Known { template_key, .. } => Some(*template_key),
            Details::Damaged(_) => None,
        })
        .collect();
    templates.iter().any(|template| {
        template.refs.is_empty()
            && template.created < before
            && !used.contains(&template.template_key)
    })
}

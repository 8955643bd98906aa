//! `sandbox gc`: what is expired or no longer needed goes.

use sandbox_core::Result;
use sandbox_storage::GcOptions;

use crate::config::Host;
use crate::output::Output;
use crate::run::{count, on_thread};

pub(crate) async fn run(host: &Host, output: &Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let report = on_thread(move || store.gc(&GcOptions::default())).await?;
    output.result(&report, || {
        format!(
            "removed {}, {}, {} with {} bytes, {}\n",
            count(report.sessions.len(), "expired session", "expired sessions"),
            count(report.templates.len(), "template", "templates"),
            count(
                usize::try_from(report.blobs).unwrap_or(usize::MAX),
                "blob",
                "blobs"
            ),
            report.bytes,
            count(
                usize::try_from(report.leftovers).unwrap_or(usize::MAX),
                "leftover",
                "leftovers"
            ),
        )
    });
    Ok(0)
}

//! `sandbox doctor`: what this host has and lacks.

use sandbox_bwrap::doctor::{Check, Status, examine, is_usable};
use sandbox_core::Result;
use serde_json::json;

use crate::config::Host;
use crate::exit;
use crate::output::Output;

pub(crate) async fn run(host: &Host, output: Output) -> Result<u8> {
    let checks = examine(host.config()).await;
    let usable = is_usable(&checks);
    output.result(&json!({ "usable": usable, "checks": checks }), || {
        text(&checks, usable)
    })?;
    Ok(if usable { 0 } else { exit::OURS })
}

fn text(checks: &[Check], usable: bool) -> String {
    let mut text = String::new();
    for check in checks {
        let mark = match check.status {
            Status::Ok => "ok",
            Status::Warning => "weak",
            Status::Missing => "MISSING",
        };
        text += &format!("{mark:8}{:20}{}\n", check.name, check.found);
        if let Some(fix) = &check.fix {
            text += &format!("{:28}fix: {fix}\n", "");
        }
    }
    text += if usable {
        "sandboxes can run here\n"
    } else {
        "sandboxes can't run here until what is MISSING is mended\n"
    };
    text
}

//! `sandbox session list`.

use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_core::{Result, shown};
use sandbox_storage::{Details, SessionInfo};
use serde_json::{Value, json};

use crate::config::Host;
use crate::ids;
use crate::output::Output;
use crate::thread::on_thread;

pub(super) async fn run(host: &Host, output: Output) -> Result<u8> {
    let store = host.backend()?.store().clone();
    let sessions = on_thread(move || store.list_sessions()).await?;
    let values: Vec<Value> = sessions.iter().map(to_json).collect();
    output.result(&values, || {
        if sessions.is_empty() {
            return "no sessions\n".to_owned();
        }
        let mut text = format!(
            "{:14}{:14}{:8}{:10}{}\n",
            "SESSION", "TEMPLATE", "AGE", "EXPIRES", "STATE"
        );
        let now = now();
        for session in &sessions {
            text += &row(session, now);
        }
        text
    })?;
    Ok(0)
}

fn to_json(session: &SessionInfo) -> Value {
    let mut value = match &session.details {
        Details::Known {
            template_key,
            template_id,
            created,
            expires,
            ..
        } => json!({
            "template_key": template_key,
            "template_id": template_id,
            "created": created,
            "expires": expires,
        }),
        Details::Damaged(why) => json!({ "damaged": why }),
    };
    value["session"] = json!(session.session_id);
    value["held"] = json!(session.held);
    value["dirty"] = json!(session.dirty);
    value
}

fn row(session: &SessionInfo, now: i64) -> String {
    let id = ids::short(&session.session_id);
    let state = match (session.held, session.dirty) {
        (true, _) => "in use",
        (false, true) => "its last owner died",
        (false, false) => "at rest",
    };
    match &session.details {
        Details::Known {
            template_key,
            created,
            expires,
            ..
        } => {
            let template = template_key.to_string();
            let left =
                expires.map_or_else(|| "never".to_owned(), |expires| remaining(expires - now));
            format!(
                "{id:14}{:14}{:8}{left:10}{state}\n",
                &template[..ids::SHOWN_DIGITS],
                span(now - created)
            )
        }
        Details::Damaged(why) => format!("{id:14}damaged: {}\n", shown(why)),
    }
}

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    i64::try_from(since).unwrap_or(i64::MAX)
}

fn remaining(seconds: i64) -> String {
    if seconds <= 0 {
        "expired".to_owned()
    } else {
        format!("in {}", span(seconds))
    }
}

/// A span in its largest unit.
fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-2
    #[test]
    fn cli_2_spans_have_one_unit() {
        let spans = [-5, 59, 60, 3599, 3600, 86_399, 604_800].map(span);
        assert_eq!(spans, ["0s", "59s", "1m", "59m", "1h", "23h", "7d"]);
        assert_eq!(
            (remaining(0), remaining(61)),
            ("expired".into(), "in 1m".into())
        );
    }
}

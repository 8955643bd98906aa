//! A command's output, shown as it comes.

use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sandbox_core::{Chunk, OutputStream, Process};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::output::{self, Output};

/// Shows all output to its end; fails where it can't be written.
///
/// It is written on a thread of its own: one that nobody reads must not hold up signals.
/// What waits there is one piece; the rest slows the command down (SPEC PROC-8).
pub(crate) async fn show(process: &dyn Process, output: Output) -> io::Result<()> {
    let (pieces, received) = mpsc::channel(1);
    let (tell_end, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("output".to_owned())
        .spawn(move || {
            // Whoever waited for it has given up.
            let _ = tell_end.send(write_all(received, output));
        })?;
    while let Some(chunk) = process.next_output().await {
        if pieces.send(chunk).await.is_err() {
            break;
        }
    }
    drop(pieces);
    ended
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the writing thread did not end")))
}

fn write_all(mut pieces: mpsc::Receiver<Chunk>, output: Output) -> io::Result<()> {
    while let Some(chunk) = pieces.blocking_recv() {
        if output.is_json() {
            output::write(OutputStream::Stdout, &event(&chunk))?;
        } else {
            output::write(chunk.stream, &chunk.bytes)?;
        }
    }
    Ok(())
}

/// A line of JSON: as text where the piece is UTF-8, else in base64 (RFC 4648).
fn event(chunk: &Chunk) -> Vec<u8> {
    let name = match chunk.stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    let value = match std::str::from_utf8(&chunk.bytes) {
        Ok(text) => json!({ "event": name, "utf8": text }),
        Err(_) => json!({ "event": name, "base64": BASE64_STANDARD.encode(&chunk.bytes) }),
    };
    format!("{value}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    // CLI-1: a line of JSON holds any bytes.
    #[test]
    fn cli_1_output_events_lose_nothing() {
        let table: [(OutputStream, &[u8], &str); 3] = [
            (
                OutputStream::Stdout,
                b"a\n",
                r#"{"event":"stdout","utf8":"a\n"}"#,
            ),
            (
                OutputStream::Stdout,
                b"\x1b\0",
                r#"{"event":"stdout","utf8":"\u001b\u0000"}"#,
            ),
            (
                OutputStream::Stderr,
                b"\xff\n",
                r#"{"base64":"/wo=","event":"stderr"}"#,
            ),
        ];
        for (stream, bytes, line) in table {
            let chunk = Chunk {
                stream,
                bytes: bytes.into(),
            };
            assert_eq!(event(&chunk), format!("{line}\n").into_bytes());
        }
    }
}

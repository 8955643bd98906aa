//! Standard input, passed on to a command.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use bytes::Bytes;
use sandbox_core::Process;
use tokio::sync::mpsc;

/// The size of one read.
const READ_BYTES: usize = 64 * 1024;

/// Passes standard input on to its end, no faster than the command takes it.
///
/// The reading thread may wait for ever: nobody waits for it.
pub(crate) async fn feed(process: Arc<dyn Process>) {
    let (sender, mut pieces) = mpsc::channel::<Bytes>(1);
    let reading = std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || read(&sender));
    if reading.is_ok() {
        while let Some(piece) = pieces.recv().await {
            if process.write_stdin(piece).await.is_err() {
                return;
            }
        }
    }
    // Closing what is closed is no error.
    let _ = process.close_stdin().await;
}

/// Reads until the end, or until nobody takes it. An input that can't be read is an empty one.
fn read(sender: &mpsc::Sender<Bytes>) {
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => {
                let piece = Bytes::copy_from_slice(&buffer[..length]);
                if sender.blocking_send(piece).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

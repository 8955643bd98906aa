//! Work that blocks.

use sandbox_core::{ErrorCode, Result, SandboxError};

/// Runs what blocks beside the runtime; it goes on when the future is dropped.
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

//! Signals to the program, passed on to the command.

use std::sync::OnceLock;

use sandbox_core::{ErrorCode, Result, SandboxError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The first signal that this process got while it watched for them.
static FIRST: OnceLock<i32> = OnceLock::new();

/// The first signal that this process got while it watched for them.
pub(crate) fn first() -> Option<i32> {
    FIRST.get().copied()
}

/// What has come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    /// The first signal's number.
    pub(crate) first: Option<i32>,
    /// How many came.
    pub(crate) count: u32,
}

/// Counts SIGINT, SIGTERM and SIGHUP from the moment it is made.
#[derive(Clone, Debug)]
pub(crate) struct Signals(watch::Receiver<Received>);

impl Signals {
    pub(crate) fn watch() -> Result<Self> {
        let failed = |error| {
            SandboxError::new(ErrorCode::Unavailable, "signals can't be watched").with_source(error)
        };
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
        let (sender, receiver) = watch::channel(Received::default());
        tokio::spawn(async move {
            loop {
                let number = tokio::select! {
                    _ = interrupt.recv() => 2,
                    _ = terminate.recv() => 15,
                    _ = hangup.recv() => 1,
                };
                FIRST.get_or_init(|| number);
                sender.send_modify(|received| {
                    received.first.get_or_insert(number);
                    received.count += 1;
                });
            }
        });
        Ok(Self(receiver))
    }

    /// What has come so far.
    pub(crate) fn received(&self) -> Received {
        *self.0.borrow()
    }

    /// Waits until more than `seen` have come.
    pub(crate) async fn more_than(&mut self, seen: u32) -> Received {
        match self.0.wait_for(|received| received.count > seen).await {
            Ok(received) => *received,
            // The counting task ends only with the program.
            Err(_) => std::future::pending().await,
        }
    }

    /// Refuses to begin something new once a signal has come.
    pub(crate) fn check(&self) -> Result<()> {
        match self.received().first {
            None => Ok(()),
            Some(number) => Err(interrupted(number)),
        }
    }
}

pub(crate) fn interrupted(number: i32) -> SandboxError {
    SandboxError::new(ErrorCode::Cancelled, format!("signal {number} came first"))
}

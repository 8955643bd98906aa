//! One end of a SEQPACKET pair, on the host's side.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::OFlags;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use sandbox_helper::wire::{self, Message};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::Cause;

/// The host's only copy of its end: a second one would keep alive what this one ends.
///
/// The stream's type is only what registers the descriptor with the runtime without `unsafe`:
/// everything that is sent and received goes through [`wire`], datagram by datagram.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    /// A pair: this side's end, and the descriptor to pass on, which blocks.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::fs::fcntl_setfl(&ours, rustix::fs::fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
        let stream = UnixStream::from_std(StdUnixStream::from(ours))?;
        Ok((Self(stream), theirs))
    }

    /// Sends a message, waiting while the other side's queue is full.
    pub(super) async fn send(
        &self,
        message: &Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = message.encode();
        self.0
            .async_io(Interest::WRITABLE, || {
                wire::send(&self.0, &bytes, descriptors)
            })
            .await
    }

    /// Sends a message without descriptors if the other side's queue has room for it.
    pub(super) fn try_send(&self, message: &Message) -> io::Result<()> {
        let bytes = message.encode();
        // Not through the runtime's readiness: this may be the first use of the socket.
        wire::send(&self.0, &bytes, &[])
    }

    /// The next message; none at the end.
    pub(super) async fn receive(&self) -> Result<Option<(Message, Vec<OwnedFd>)>, Cause> {
        let received = self
            .0
            .async_io(Interest::READABLE, || wire::receive(&self.0))
            .await;
        let received = match received {
            Ok(received) => received,
            // What was never read by the other side is reported so.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(Cause::Socket(error)),
        };
        if received.bytes.is_empty() {
            return Ok(None);
        }
        let message = Message::decode(&received.bytes).map_err(Cause::Wire)?;
        Ok(Some((message, received.descriptors)))
    }

    /// Ends the lifeline; what the other side still says can be read.
    pub(super) fn hang_up(&self) {
        // Only a socket without a peer refuses, and that lifeline has ended.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Write);
    }
}

/// A pipe whose read end does not block: read end, write end.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

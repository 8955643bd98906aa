//! Datagrams with descriptors, and memfds for what does not fit in one.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use super::message::MAX_MESSAGE_BYTES;

/// The most descriptors of one message: the kernel's own bound (unix(7), `SCM_MAX_FD`).
const MAX_DESCRIPTORS: usize = 253;

/// A datagram and its descriptors.
#[derive(Debug)]
pub struct Received {
    /// Its bytes; empty is the end of the stream, since no message is empty.
    pub bytes: Vec<u8>,
    /// Its descriptors, all close-on-exec, in the order they were sent.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends one datagram with these descriptors, and never SIGPIPE.
///
/// Blocks as the socket does.
///
/// # Errors
/// Of sendmsg(2): `EPIPE` when the other side is gone, `ETOOMANYREFS` when too many descriptors
/// of this user are on their way, `EINVAL` for more than 253 of them.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(rustix::io::Errno::INVAL.into());
    }
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(
            socket.as_fd(),
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(())
}

/// Receives one datagram; at the end of the stream, one without bytes.
///
/// Blocks as the socket does.
///
/// # Errors
/// Of recvmsg(2); `EMSGSIZE` for a datagram that was cut, or whose descriptors were. What came
/// of them is closed.
pub fn receive(socket: impl AsFd) -> io::Result<Received> {
    let mut bytes = vec![0; MAX_MESSAGE_BYTES];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    if message
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(rustix::io::Errno::MSGSIZE.into());
    }
    bytes.truncate(message.bytes);
    Ok(Received { bytes, descriptors })
}

/// A memfd that holds these bytes and can never change again (memfd_create(2)).
///
/// # Errors
/// Of the calls that make, fill and seal it.
pub fn memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let memfd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut at = 0;
    while at < bytes.len() {
        at += rustix::io::retry_on_intr(|| rustix::io::pwrite(&memfd, &bytes[at..], at as u64))?;
    }
    rustix::fs::fcntl_add_seals(
        &memfd,
        SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE,
    )?;
    Ok(memfd)
}

/// The bytes of a memfd of at most this length, whatever its offset.
///
/// # Errors
/// Of the calls that read it; `EFBIG` for a longer one.
pub fn read_memfd(memfd: impl AsFd, limit: usize) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(memfd.as_fd())?.st_size;
    let length = usize::try_from(size)
        .ok()
        .filter(|length| *length <= limit)
        .ok_or(rustix::io::Errno::FBIG)?;
    let mut bytes = vec![0; length];
    let mut at = 0;
    while at < length {
        match rustix::io::retry_on_intr(|| {
            rustix::io::pread(memfd.as_fd(), &mut bytes[at..], at as u64)
        })? {
            0 => break,
            count => at += count,
        }
    }
    bytes.truncate(at);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap()
    }

    // FI-25: what is cut is refused, and the end of the stream is no message.
    #[test]
    fn fi_25_an_oversized_datagram_is_refused_and_the_end_is_empty() {
        let (ours, theirs) = pair();
        send(&theirs, &vec![7; MAX_MESSAGE_BYTES + 1], &[]).unwrap();
        let error = receive(&ours).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        send(&theirs, &vec![7; MAX_MESSAGE_BYTES], &[]).unwrap();
        assert_eq!(receive(&ours).unwrap().bytes, vec![7; MAX_MESSAGE_BYTES]);
        drop(theirs);
        let end = receive(&ours).unwrap();
        assert!(end.bytes.is_empty() && end.descriptors.is_empty());
        let broken = send(&ours, b"x", &[]).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn descriptors_arrive_in_order_and_close_on_exec() {
        let (ours, theirs) = pair();
        let memfds = ["first", "second"].map(|text| memfd("test", text.as_bytes()).unwrap());
        send(&theirs, b"two", &memfds.each_ref().map(AsFd::as_fd)).unwrap();
        let received = receive(&ours).unwrap();
        let texts: Vec<Vec<u8>> = received
            .descriptors
            .iter()
            .map(|memfd| read_memfd(memfd, 100).unwrap())
            .collect();
        assert_eq!(texts, [b"first".to_vec(), b"second".to_vec()]);
        for descriptor in &received.descriptors {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn a_memfd_is_sealed_and_a_longer_one_than_allowed_is_refused() {
        let memfd = memfd("test", b"12345").unwrap();
        assert!(rustix::io::pwrite(&memfd, b"x", 0).is_err());
        assert_eq!(read_memfd(&memfd, 5).unwrap(), b"12345");
        let error = read_memfd(&memfd, 4).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
    }
}

//! What host, keeper and init say to each other.
//!
//! One message is one datagram of a SEQPACKET socket, little-endian, of at most
//! [`MAX_MESSAGE_BYTES`]; descriptors travel with it at fixed positions; what is larger goes in
//! a sealed memfd ([`memfd`]). Every decoder is total: any bytes give a value or an [`Error`].
//!
//! | message | from → to | descriptors |
//! | --- | --- | --- |
//! | [`Body::Configure`] | host → keeper | [`Config`] memfd, lease, session folder, bubblewrap, then the passed mounts |
//! | [`Body::Ready`] | keeper → host | workspace |
//! | [`Body::Mismatch`], [`Body::Failed`] | keeper → host | |
//! | [`Body::Spawn`] | host → keeper | init's socket, report socket, bubblewrap's standard error |
//! | [`Body::Started`] | keeper → host, on the report socket | bubblewrap's pidfd |
//! | [`Body::InitStarted`] | keeper → host, on the report socket | init's pidfd |
//! | [`Body::Ended`] | keeper → host, on the report socket | |
//! | [`Body::Run`] | host → init | [`Request`] memfd, stdin, stdout, stderr |
//! | [`Body::Signal`] | host → init | |
//! | [`Body::Record`] | init → host | |

pub mod build;
mod codec;
mod config;
mod message;
mod request;
mod socket;

pub use build::BUILD_ID;
pub use codec::Error;
pub(crate) use config::MAX_CONFIG_BYTES;
pub use config::{Config, EtcEntry, MountSource, Owner, RootEntry, TmpfsSize};
pub use message::{Body, Failure, MAX_MESSAGE_BYTES, Message, PROTOCOL, Record, Status};
pub(crate) use request::MAX_REQUEST_BYTES;
pub use request::{Limits, Request};
pub use socket::{Received, memfd, read_memfd, receive, send};

//! The messages that fit in a datagram.

use super::codec::{Error, Reader, Writer};
use crate::Step;

/// The longest datagram: the kernel takes three times as much.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;

/// The number of this protocol, counted up with every change of a message.
pub const PROTOCOL: u16 = 1;

/// The first four bytes of every message, in every protocol there will be.
const MAGIC: [u8; 4] = *b"sbxH";

/// One datagram: the number of the request that it belongs to, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The number that the asker chose; an answer repeats it.
    pub request: u32,
    /// What it says.
    pub body: Body,
}

/// What a message says; who sends it, and with which descriptors, is in the table of [`super`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// Set the session up. Holds the host's build id.
    Configure {
        /// [`super::BUILD_ID`] of the sender.
        build: Vec<u8>,
    },
    /// The session is set up.
    Ready,
    /// The keeper is of another build than the host. This message and [`Body::Configure`] keep
    /// their form in every protocol.
    Mismatch {
        /// [`PROTOCOL`] of the sender.
        protocol: u16,
        /// [`super::BUILD_ID`] of the sender.
        build: Vec<u8>,
    },
    /// A step of the set-up failed.
    Failed(Failure),
    /// Start a bubblewrap.
    Spawn,
    /// bubblewrap is about to be executed.
    Started,
    /// Pid 1 of the command exists.
    InitStarted,
    /// bubblewrap has ended.
    Ended(Status),
    /// Run the command of the attached request.
    Run,
    /// Send this signal to the command's process group.
    Signal(i32),
    /// How the command ended.
    Record(Record),
}

/// A step and the error number that it failed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// What could not be done.
    pub step: Step,
    /// errno(3), or 0 where there is none.
    pub errno: i32,
}

/// How a process ended, as wait(2) tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It returned this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
}

/// How a command ended, or why it never ran. No two share a number (SPEC CMD-4, PROC-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// It ran and ended.
    Ended(Status),
    /// It could not be executed.
    NotExecuted {
        /// errno(3) of execve(2).
        errno: i32,
        /// Whether a file of that name is there: then ENOENT speaks of its interpreter.
        exists: bool,
    },
    /// The working directory could not be entered; errno(3).
    BadCwd(i32),
    /// A step between the request and the execution failed.
    Failed(Failure),
}

impl Message {
    /// A message of this request.
    #[must_use]
    pub fn new(request: u32, body: Body) -> Self {
        Self { request, body }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        for byte in MAGIC {
            out.u8(byte);
        }
        out.u16(PROTOCOL);
        out.u16(self.body.kind());
        out.u32(self.request);
        self.body.write(&mut out);
        out.finish()
    }

    /// The message of these bytes.
    ///
    /// # Errors
    /// [`Error`], whatever the bytes are; never a panic. [`Body::Configure`] and
    /// [`Body::Mismatch`] are read whatever their protocol, since they tell two builds apart.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        for expected in MAGIC {
            if input.u8().map_err(|_| Error::Magic)? != expected {
                return Err(Error::Magic);
            }
        }
        let protocol = input.u16()?;
        let kind = input.u16()?;
        if protocol != PROTOCOL && kind != CONFIGURE && kind != MISMATCH {
            return Err(Error::Protocol(protocol));
        }
        let request = input.u32()?;
        let body = Body::read(kind, &mut input)?;
        input.finish()?;
        Ok(Self { request, body })
    }
}

impl Body {
    fn kind(&self) -> u16 {
        match self {
            Self::Configure { .. } => CONFIGURE,
            Self::Mismatch { .. } => MISMATCH,
            Self::Ready => 3,
            Self::Failed(_) => 4,
            Self::Spawn => 5,
            Self::Started => 6,
            Self::InitStarted => 7,
            Self::Ended(_) => 8,
            Self::Run => 9,
            Self::Signal(_) => 10,
            Self::Record(_) => 11,
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Self::Configure { build } => out.bytes(build),
            Self::Mismatch { protocol, build } => {
                out.u16(*protocol);
                out.bytes(build);
            }
            Self::Failed(failure) => failure.write(out),
            Self::Ended(status) => status.write(out),
            Self::Signal(signal) => out.i32(*signal),
            Self::Record(record) => record.write(out),
            Self::Ready | Self::Spawn | Self::Started | Self::InitStarted | Self::Run => {}
        }
    }

    fn read(kind: u16, input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match kind {
            CONFIGURE => Self::Configure {
                build: input.bytes()?.to_vec(),
            },
            MISMATCH => Self::Mismatch {
                protocol: input.u16()?,
                build: input.bytes()?.to_vec(),
            },
            3 => Self::Ready,
            4 => Self::Failed(Failure::read(input)?),
            5 => Self::Spawn,
            6 => Self::Started,
            7 => Self::InitStarted,
            8 => Self::Ended(Status::read(input)?),
            9 => Self::Run,
            10 => Self::Signal(input.i32()?),
            11 => Self::Record(Record::read(input)?),
            _ => return Err(Error::Malformed("an unknown kind")),
        })
    }
}

impl Failure {
    fn write(self, out: &mut Writer) {
        out.u16(self.step.number());
        out.i32(self.errno);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            step: Step::from_number(input.u16()?),
            errno: input.i32()?,
        })
    }
}

impl Status {
    fn write(self, out: &mut Writer) {
        let (tag, number) = match self {
            Self::Exited(code) => (0, code),
            Self::Signalled(signal) => (1, signal),
        };
        out.u8(tag);
        out.i32(number);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Error> {
        let (tag, number) = (input.u8()?, input.i32()?);
        match tag {
            0 => Ok(Self::Exited(number)),
            1 => Ok(Self::Signalled(number)),
            _ => Err(Error::Malformed("an unknown kind of end")),
        }
    }
}

impl Record {
    fn write(self, out: &mut Writer) {
        match self {
            Self::Ended(status) => {
                out.u8(0);
                status.write(out);
            }
            Self::NotExecuted { errno, exists } => {
                out.u8(1);
                out.i32(errno);
                out.u8(u8::from(exists));
            }
            Self::BadCwd(errno) => {
                out.u8(2);
                out.i32(errno);
            }
            Self::Failed(failure) => {
                out.u8(3);
                failure.write(out);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match input.u8()? {
            0 => Self::Ended(Status::read(input)?),
            1 => Self::NotExecuted {
                errno: input.i32()?,
                exists: match input.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Error::Malformed("a flag is neither 0 nor 1")),
                },
            },
            2 => Self::BadCwd(input.i32()?),
            3 => Self::Failed(Failure::read(input)?),
            _ => return Err(Error::Malformed("an unknown kind of record")),
        })
    }
}

const CONFIGURE: u16 = 1;
const MISMATCH: u16 = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bodies() -> impl Strategy<Value = Body> {
        let status = prop_oneof![
            any::<i32>().prop_map(Status::Exited),
            any::<i32>().prop_map(Status::Signalled)
        ];
        let failure = (any::<u16>(), any::<i32>()).prop_map(|(step, errno)| Failure {
            step: Step::from_number(step),
            errno,
        });
        let record = prop_oneof![
            status.clone().prop_map(Record::Ended),
            (any::<i32>(), any::<bool>())
                .prop_map(|(errno, exists)| Record::NotExecuted { errno, exists }),
            any::<i32>().prop_map(Record::BadCwd),
            failure.clone().prop_map(Record::Failed),
        ];
        let build = proptest::collection::vec(any::<u8>(), 0..80);
        prop_oneof![
            build.clone().prop_map(|build| Body::Configure { build }),
            (any::<u16>(), build).prop_map(|(protocol, build)| Body::Mismatch { protocol, build }),
            failure.prop_map(Body::Failed),
            status.prop_map(Body::Ended),
            any::<i32>().prop_map(Body::Signal),
            record.prop_map(Body::Record),
            Just(Body::Ready),
            Just(Body::Spawn),
            Just(Body::Started),
            Just(Body::InitStarted),
            Just(Body::Run),
        ]
    }

    proptest! {
        // FI-25: the wire is total, and exact.
        #[test]
        fn messages_round_trip_and_their_prefixes_are_refused(request: u32, body in bodies()) {
            let message = Message::new(request, body);
            let bytes = message.encode();
            prop_assert!(bytes.len() <= MAX_MESSAGE_BYTES);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
            for cut in 0..bytes.len() {
                prop_assert!(Message::decode(&bytes[..cut]).is_err());
            }
            let mut longer = bytes;
            longer.push(0);
            prop_assert!(Message::decode(&longer).is_err());
        }

        #[test]
        fn any_bytes_decode_to_a_message_or_an_error(
            kind in 0_u16..16,
            tail in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(PROTOCOL.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(tail);
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }

    // FI-19: another protocol is named, but the two messages that tell builds apart are read.
    #[test]
    fn another_protocol_is_named_and_its_hello_is_read() {
        let with_protocol = |body: Body| {
            let mut bytes = Message::new(0, body).encode();
            bytes[4..6].copy_from_slice(&99_u16.to_le_bytes());
            Message::decode(&bytes)
        };
        assert_eq!(with_protocol(Body::Ready), Err(Error::Protocol(99)));
        let hello = Body::Configure {
            build: b"0.2.0".to_vec(),
        };
        assert_eq!(with_protocol(hello.clone()).unwrap().body, hello);
        assert_eq!(Message::decode(b"GET / HTTP/1.1"), Err(Error::Magic));
    }
}

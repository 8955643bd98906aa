//! Fixed-width little-endian fields, written and read back.

use std::ffi::CString;
use std::fmt;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// They do not begin as a message of ours does.
    Magic,
    /// They are of another protocol, with this number.
    Protocol(u16),
    /// They end too early, go on too long, or hold a value that is none.
    Malformed(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => f.write_str("not a message of the sandbox's helper"),
            Self::Protocol(found) => write!(f, "a message of protocol {found}"),
            Self::Malformed(what) => write!(f, "a malformed message: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// Puts fields one after the other.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.0.extend(value.to_le_bytes());
    }

    /// A length and that many bytes.
    ///
    /// A value of 4 GiB or more is cut, which its reader then refuses: everything that is
    /// written here is bounded far below that.
    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend(value);
    }

    /// A byte that says whether a number follows, and the number.
    pub(super) fn optional(&mut self, value: Option<u64>) {
        self.u8(u8::from(value.is_some()));
        self.u64(value.unwrap_or(0));
    }

    /// A count and that many items.
    pub(super) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        for value in items {
            item(self, value);
        }
    }
}

/// Takes fields off the front.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Refuses what is left over.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::Malformed("bytes after its end"))
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Error::Malformed("it ends early"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Error> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Error> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Error> {
        self.take().map(i32::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u32()? as usize;
        let (head, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Error::Malformed("a field is longer than the message"))?;
        self.0 = rest;
        Ok(head)
    }

    /// Bytes that a system call takes as a string.
    pub(super) fn c_string(&mut self) -> Result<CString, Error> {
        CString::new(self.bytes()?).map_err(|_| Error::Malformed("a string holds NUL"))
    }

    pub(super) fn optional(&mut self) -> Result<Option<u64>, Error> {
        let (tag, value) = (self.u8()?, self.u64()?);
        match (tag, value) {
            (0, 0) => Ok(None),
            (1, value) => Ok(Some(value)),
            _ => Err(Error::Malformed(
                "an optional field is neither there nor not",
            )),
        }
    }

    /// A list; its count is believed only as far as the bytes reach.
    pub(super) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(Error::Malformed("a list is longer than the message"));
        }
        (0..count).map(|_| item(self)).collect()
    }
}

//! What init runs.

use std::ffi::CString;

use super::codec::{Error, Reader, Writer};

/// The longest request that is read: the kernel's own bound of arguments and environment is
/// below 6 MiB by default (execve(2)).
pub(crate) const MAX_REQUEST_BYTES: usize = 16 * 1024 * 1024;

/// One command, as init gets it (SPEC ARG-4).
///
/// A string that holds NUL can't be in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// A path, or a name that is looked up along the `PATH` of [`Request::environment`], inside.
    pub executable: CString,
    /// All arguments, the zeroth included.
    pub arguments: Vec<CString>,
    /// `NAME=value`, exactly what the command sees.
    pub environment: Vec<CString>,
    /// The working directory below `/workspace`; empty is `/workspace` itself.
    pub cwd: CString,
    /// Bounds of the command.
    pub limits: Limits,
    /// A seccomp program, an array of `struct sock_filter` (seccomp(2)); empty is none.
    pub filter: Vec<u8>,
}

/// Resource limits, each left as it is where none is given (getrlimit(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_NPROC`, counted inside the command's own user namespace.
    pub processes: Option<u64>,
    /// `RLIMIT_NOFILE`.
    pub open_files: Option<u64>,
    /// `RLIMIT_FSIZE`, in bytes.
    pub file_bytes: Option<u64>,
    /// `RLIMIT_MEMLOCK`, in bytes.
    pub locked_bytes: Option<u64>,
    /// `RLIMIT_MSGQUEUE`, in bytes.
    pub message_queue_bytes: Option<u64>,
}

impl Request {
    /// Its bytes, for a memfd.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(self.executable.as_bytes());
        for list in [&self.arguments, &self.environment] {
            out.list(list, |out, value| out.bytes(value.as_bytes()));
        }
        out.bytes(self.cwd.as_bytes());
        let Limits {
            processes,
            open_files,
            file_bytes,
            locked_bytes,
            message_queue_bytes,
        } = self.limits;
        for limit in [
            processes,
            open_files,
            file_bytes,
            locked_bytes,
            message_queue_bytes,
        ] {
            out.optional(limit);
        }
        out.bytes(&self.filter);
        out.finish()
    }

    /// The request of these bytes.
    ///
    /// # Errors
    /// [`Error`], whatever the bytes are; never a panic.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let request = Self {
            executable: input.c_string()?,
            arguments: input.list(Reader::c_string)?,
            environment: input.list(Reader::c_string)?,
            cwd: input.c_string()?,
            limits: Limits {
                processes: input.optional()?,
                open_files: input.optional()?,
                file_bytes: input.optional()?,
                locked_bytes: input.optional()?,
                message_queue_bytes: input.optional()?,
            },
            filter: input.bytes()?.to_vec(),
        };
        input.finish()?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn strings() -> impl Strategy<Value = CString> {
        vec(1_u8.., 0..20).prop_map(|bytes| CString::new(bytes).unwrap())
    }

    proptest! {
        // ARG-4: whatever a caller's strings hold, init gets the same ones.
        #[test]
        fn arg_4_requests_round_trip(
            executable in strings(),
            arguments in vec(strings(), 0..6),
            environment in vec(strings(), 0..6),
            cwd in strings(),
            processes: Option<u64>,
            file_bytes: Option<u64>,
            filter in vec(any::<u8>(), 0..32),
        ) {
            let limits = Limits { processes, file_bytes, ..Limits::default() };
            let request = Request { executable, arguments, environment, cwd, limits, filter };
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            for cut in 0..bytes.len() {
                prop_assert!(Request::decode(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_decode_to_a_request_or_an_error(bytes in vec(0_u8..4, 0..200)) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes);
            }
        }
    }
}

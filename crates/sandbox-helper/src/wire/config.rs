//! What the keeper makes of a session.

use std::ffi::CString;

use super::codec::{Error, Reader, Writer};

/// The longest configuration that is read.
pub(crate) const MAX_CONFIG_BYTES: usize = 4 * 1024 * 1024;

/// One session, as the keeper gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The user and group to change to, for a host that is kernel root; none keeps its own.
    pub owner: Option<Owner>,
    /// The inode of the host's own network namespace, which the session's must differ from.
    pub host_network: u64,
    /// The bounds of the session's `/tmp`.
    pub tmp: TmpfsSize,
    /// The bounds of the keeper's own root, which holds the helper and `/etc`.
    pub root_size: TmpfsSize,
    /// `RLIMIT_NPROC` of the whole session.
    pub processes: Option<u64>,
    /// What stands beside `/usr` in the keeper's root, and so in what bubblewrap can bind.
    pub root: Vec<RootEntry>,
    /// What `/etc` holds.
    pub etc: Vec<EtcEntry>,
    /// Where the trees at `/k/r/0`, `/k/r/1`, … come from.
    pub read_only: Vec<MountSource>,
    /// bubblewrap's options, in order.
    pub arguments: Vec<CString>,
}

/// A user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The user; never 0.
    pub uid: u32,
    /// The group; never 0.
    pub gid: u32,
}

/// The bounds of a tmpfs(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmpfsSize {
    /// `size`.
    pub bytes: u64,
    /// `nr_inodes`.
    pub inodes: u64,
}

/// A name below `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootEntry {
    /// A symbolic link, as a merged `/usr` has them.
    Link {
        /// The name, without a slash.
        name: CString,
        /// What it points to.
        target: CString,
    },
    /// A folder of the host's.
    Bind {
        /// The name, without a slash.
        name: CString,
    },
}

/// Something below `/etc`, at a path without a leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtcEntry {
    /// A file with these bytes.
    File {
        /// Where.
        path: CString,
        /// What it holds.
        bytes: Vec<u8>,
    },
    /// What the host has there: a file, a link or a whole folder, as far as all may read it.
    /// Not being there is no failure.
    Copy {
        /// Where, on both sides.
        path: CString,
    },
}

/// Where a read-only tree comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// The next of the descriptors that came with the configuration: a detached mount.
    Passed,
    /// A path of the host's, which the keeper opens as itself.
    Path(CString),
}

impl Config {
    /// Its bytes, for a memfd.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(u8::from(self.owner.is_some()));
        let owner = self.owner.unwrap_or(Owner { uid: 0, gid: 0 });
        out.u32(owner.uid);
        out.u32(owner.gid);
        out.u64(self.host_network);
        for size in [self.tmp, self.root_size] {
            out.u64(size.bytes);
            out.u64(size.inodes);
        }
        out.optional(self.processes);
        out.list(&self.root, |out, entry| match entry {
            RootEntry::Link { name, target } => {
                out.u8(0);
                out.bytes(name.as_bytes());
                out.bytes(target.as_bytes());
            }
            RootEntry::Bind { name } => {
                out.u8(1);
                out.bytes(name.as_bytes());
            }
        });
        out.list(&self.etc, |out, entry| match entry {
            EtcEntry::File { path, bytes } => {
                out.u8(0);
                out.bytes(path.as_bytes());
                out.bytes(bytes);
            }
            EtcEntry::Copy { path } => {
                out.u8(1);
                out.bytes(path.as_bytes());
            }
        });
        out.list(&self.read_only, |out, source| match source {
            MountSource::Passed => out.u8(0),
            MountSource::Path(path) => {
                out.u8(1);
                out.bytes(path.as_bytes());
            }
        });
        out.list(&self.arguments, |out, value| out.bytes(value.as_bytes()));
        out.finish()
    }

    /// The configuration of these bytes.
    ///
    /// # Errors
    /// [`Error`], whatever the bytes are; never a panic. An owner of 0 is refused here.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let owner = read_owner(&mut input)?;
        let host_network = input.u64()?;
        let mut size = || {
            Ok(TmpfsSize {
                bytes: input.u64()?,
                inodes: input.u64()?,
            })
        };
        let (tmp, root_size) = (size()?, size()?);
        let config = Self {
            owner,
            host_network,
            tmp,
            root_size,
            processes: input.optional()?,
            root: input.list(read_root)?,
            etc: input.list(read_etc)?,
            read_only: input.list(read_source)?,
            arguments: input.list(Reader::c_string)?,
        };
        input.finish()?;
        Ok(config)
    }
}

fn read_owner(input: &mut Reader<'_>) -> Result<Option<Owner>, Error> {
    match (input.u8()?, input.u32()?, input.u32()?) {
        (0, 0, 0) => Ok(None),
        (1, uid, gid) if uid != 0 && gid != 0 => Ok(Some(Owner { uid, gid })),
        _ => Err(Error::Malformed("an owner that is none")),
    }
}

fn read_root(input: &mut Reader<'_>) -> Result<RootEntry, Error> {
    match input.u8()? {
        0 => Ok(RootEntry::Link {
            name: input.c_string()?,
            target: input.c_string()?,
        }),
        1 => Ok(RootEntry::Bind {
            name: input.c_string()?,
        }),
        _ => Err(Error::Malformed("an unknown kind of name")),
    }
}

fn read_etc(input: &mut Reader<'_>) -> Result<EtcEntry, Error> {
    match input.u8()? {
        0 => Ok(EtcEntry::File {
            path: input.c_string()?,
            bytes: input.bytes()?.to_vec(),
        }),
        1 => Ok(EtcEntry::Copy {
            path: input.c_string()?,
        }),
        _ => Err(Error::Malformed("an unknown kind of file")),
    }
}

fn read_source(input: &mut Reader<'_>) -> Result<MountSource, Error> {
    match input.u8()? {
        0 => Ok(MountSource::Passed),
        1 => Ok(MountSource::Path(input.c_string()?)),
        _ => Err(Error::Malformed("an unknown kind of mount")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn strings() -> impl Strategy<Value = CString> {
        vec(1_u8.., 0..12).prop_map(|bytes| CString::new(bytes).unwrap())
    }

    fn configs() -> impl Strategy<Value = Config> {
        let owner =
            proptest::option::of((1_u32.., 1_u32..).prop_map(|(uid, gid)| Owner { uid, gid }));
        let size =
            || (any::<u64>(), any::<u64>()).prop_map(|(bytes, inodes)| TmpfsSize { bytes, inodes });
        let root = prop_oneof![
            (strings(), strings()).prop_map(|(name, target)| RootEntry::Link { name, target }),
            strings().prop_map(|name| RootEntry::Bind { name }),
        ];
        let etc = prop_oneof![
            (strings(), vec(any::<u8>(), 0..20))
                .prop_map(|(path, bytes)| EtcEntry::File { path, bytes }),
            strings().prop_map(|path| EtcEntry::Copy { path }),
        ];
        let source = prop_oneof![
            Just(MountSource::Passed),
            strings().prop_map(MountSource::Path)
        ];
        (
            (owner, any::<u64>(), size(), size(), any::<Option<u64>>()),
            (
                vec(root, 0..4),
                vec(etc, 0..4),
                vec(source, 0..4),
                vec(strings(), 0..6),
            ),
        )
            .prop_map(
                |(
                    (owner, host_network, tmp, root_size, processes),
                    (root, etc, read_only, arguments),
                )| Config {
                    owner,
                    host_network,
                    tmp,
                    root_size,
                    processes,
                    root,
                    etc,
                    read_only,
                    arguments,
                },
            )
    }

    proptest! {
        #[test]
        fn configurations_round_trip_and_their_prefixes_are_refused(config in configs()) {
            let bytes = config.encode();
            prop_assert_eq!(Config::decode(&bytes), Ok(config));
            for cut in 0..bytes.len() {
                prop_assert!(Config::decode(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn any_bytes_decode_to_a_configuration_or_an_error(bytes in vec(0_u8..3, 0..200)) {
            if let Ok(config) = Config::decode(&bytes) {
                prop_assert_eq!(config.encode(), bytes);
            }
        }
    }
}

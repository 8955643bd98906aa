//! Trees as tar archives, in memory.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use sandbox_core::{ErrorCode, Result, SandboxError, WorkspacePath, shown};
use tar::{Archive, Builder, EntryType, Header};

use super::tree::{Entity, Name, Node, Tree};

/// Packs an entry and what is below it, as [`Session::pack`](sandbox_core::Session::pack) says.
pub(super) fn pack(tree: &Tree, path: &WorkspacePath, max_entries: usize) -> Result<Vec<u8>> {
    let at = tree.reach(path)?;
    let Some(entity) = tree.node(&at) else {
        return Err(SandboxError::new(
            ErrorCode::NotFound,
            format!("{} is not there", shown(path.to_string())),
        ));
    };
    let mut packing = Packing {
        archive: Builder::new(Vec::new()),
        left: max_entries,
    };
    let name = at.last().cloned().unwrap_or_default();
    packing.append(&name, entity)?;
    packing.archive.into_inner().map_err(failed)
}

struct Packing {
    archive: Builder<Vec<u8>>,
    left: usize,
}

impl Packing {
    fn append(&mut self, name: &[u8], entity: &Entity) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        let mut header = Header::new_gnu();
        header.set_mode(entity.mode & 0o777);
        header.set_size(0);
        let path = Path::new(OsStr::from_bytes(name));
        match &entity.node {
            Node::File(content) => {
                header.set_size(content.len() as u64);
                self.archive
                    .append_data(&mut header, path, &content[..])
                    .map_err(failed)
            }
            Node::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                let target = Path::new(OsStr::from_bytes(target));
                self.archive
                    .append_link(&mut header, path, target)
                    .map_err(failed)
            }
            Node::Fifo => Ok(()),
            Node::Folder(entries) => {
                // The root has no name of its own.
                if !name.is_empty() {
                    header.set_entry_type(EntryType::Directory);
                    self.archive
                        .append_data(&mut header, path, io::empty())
                        .map_err(failed)?;
                }
                for (inner, entity) in entries {
                    let inner = if name.is_empty() {
                        inner.clone()
                    } else {
                        [name, inner].join(&b'/')
                    };
                    self.append(&inner, entity)?;
                }
                Ok(())
            }
        }
    }
}

/// Unpacks an archive below a folder, as [`Session::unpack`](sandbox_core::Session::unpack) says.
pub(super) fn unpack(
    tree: &mut Tree,
    path: &WorkspacePath,
    archive: &[u8],
    max_entries: usize,
) -> Result<()> {
    tree.make_dir(path)?;
    let base = tree.follow(path)?;
    let mut archive = Archive::new(archive);
    for (index, entry) in archive.entries().map_err(damaged)?.enumerate() {
        if index >= max_entries {
            return Err(too_many());
        }
        let mut entry = entry.map_err(damaged)?;
        let name = entry.path_bytes().into_owned();
        check_name(&name)?;
        let at = tree.reach_below(&base, &name)?;
        if at == base {
            continue;
        }
        let mode = entry.header().mode().map_err(damaged)? & 0o777;
        let linked = entry.link_name_bytes().map(std::borrow::Cow::into_owned);
        match entry.header().entry_type() {
            EntryType::Directory => tree.put_folder(&at, mode)?,
            EntryType::Symlink => {
                let target = linked.unwrap_or_default();
                replace(tree, &at, Node::Link(target.into()), 0o777)?;
            }
            EntryType::Link => {
                let target = linked.unwrap_or_default();
                check_name(&target)?;
                let source = tree.reach_below(&base, &target)?;
                let linked = tree.node(&source).map(|entity| entity.node.clone());
                let Some(Node::File(content)) = linked else {
                    return Err(damaged(io::Error::other("a link to what is no file")));
                };
                replace(tree, &at, Node::File(content), mode)?;
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let size = entry.size();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).map_err(damaged)?;
                if content.len() as u64 != size {
                    return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
                }
                replace(tree, &at, Node::File(Bytes::from(content)), mode)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn replace(tree: &mut Tree, at: &[Name], node: Node, mode: u32) -> Result<()> {
    if tree
        .node(at)
        .is_some_and(|entity| matches!(entity.node, Node::Folder(_)))
    {
        return Err(SandboxError::new(
            ErrorCode::Invalid,
            "the archive has something else where a folder is",
        ));
    }
    tree.put(at, node, mode);
    Ok(())
}

/// Refuses a name that is absolute or goes up.
fn check_name(name: &[u8]) -> Result<()> {
    if name.starts_with(b"/") || name.split(|&byte| byte == b'/').any(|part| part == b"..") {
        return Err(SandboxError::new(
            ErrorCode::Path,
            format!(
                "the archive's entry {} leads out of its folder",
                shown(name)
            ),
        ));
    }
    Ok(())
}

fn too_many() -> SandboxError {
    SandboxError::new(ErrorCode::Limit, "there are more entries than the limit")
}

fn damaged(error: io::Error) -> SandboxError {
    SandboxError::new(ErrorCode::Invalid, "the tar archive is damaged").with_source(error)
}

fn failed(error: io::Error) -> SandboxError {
    SandboxError::new(ErrorCode::Storage, "the tree can't be packed").with_source(error)
}

//! The files of a session, in memory.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sandbox_core::{
    Entry, EntryName, ErrorCode, FileKind, Node as TemplateNode, Result, SandboxError, Stat,
    TemplateFile, Timestamp, WorkspacePath, shown,
};

/// How many links may lead from a name to a file (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// A name of one entry.
pub(super) type Name = Vec<u8>;

/// What stands somewhere.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Bytes),
    Folder(BTreeMap<Name, Entity>),
    Link(Bytes),
    Fifo,
}

/// A node with what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) node: Node,
    pub(super) mode: u32,
    modified: i64,
}

impl Entity {
    fn stat(&self) -> Stat {
        let (kind, size) = match &self.node {
            Node::File(content) => (FileKind::File, content.len()),
            Node::Folder(_) => (FileKind::Directory, 0),
            Node::Link(target) => (FileKind::Symlink, target.len()),
            Node::Fifo => (FileKind::Fifo, 0),
        };
        Stat {
            kind,
            size: size as u64,
            mode: self.mode,
            modified: Timestamp {
                seconds: self.modified,
                nanoseconds: 0,
            },
        }
    }
}

/// Why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stray {
    Missing,
    Out,
    Endless,
    NoFolder,
}

impl Stray {
    fn error(self, path: impl AsRef<[u8]>) -> SandboxError {
        let (code, what) = match self {
            Self::Missing => (ErrorCode::NotFound, "is not there"),
            Self::Out => (ErrorCode::Path, "leads out of the workspace over a link"),
            Self::Endless => (ErrorCode::Path, "goes over links that never end"),
            Self::NoFolder => (
                ErrorCode::Invalid,
                "goes through something that is no folder",
            ),
        };
        SandboxError::new(code, format!("{} {what}", shown(path)))
    }
}

/// A workspace.
#[derive(Debug)]
pub(super) struct Tree {
    root: Entity,
    /// Each change has a moment of its own.
    now: i64,
}

impl Tree {
    pub(super) fn new<'a>(files: impl Iterator<Item = &'a TemplateFile>) -> Self {
        let mut tree = Self {
            root: Entity {
                node: Node::Folder(BTreeMap::new()),
                mode: 0o755,
                modified: 0,
            },
            now: 0,
        };
        for file in files {
            let at: Vec<Name> = names(file.path.relative().as_bytes()).collect();
            for depth in 1..at.len() {
                tree.fill(&at[..depth]);
            }
            let node = match &file.node {
                TemplateNode::File(content) => Node::File(content.clone()),
                TemplateNode::Directory => {
                    tree.fill(&at);
                    continue;
                }
                TemplateNode::Symlink(target) => Node::Link(target.clone()),
            };
            tree.put(&at, node, file.mode.bits());
        }
        tree
    }

    /// What stands at exactly these names.
    pub(super) fn node(&self, at: &[Name]) -> Option<&Entity> {
        at.iter()
            .try_fold(&self.root, |above, name| match &above.node {
                Node::Folder(entries) => entries.get(name),
                _ => None,
            })
    }

    fn folder(&mut self, at: &[Name]) -> Option<&mut BTreeMap<Name, Entity>> {
        let mut above = &mut self.root;
        for name in at {
            let Node::Folder(entries) = &mut above.node else {
                return None;
            };
            above = entries.get_mut(name)?;
        }
        match &mut above.node {
            Node::Folder(entries) => Some(entries),
            _ => None,
        }
    }

    /// Puts a node at names whose folder is there.
    pub(super) fn put(&mut self, at: &[Name], node: Node, mode: u32) {
        self.now += 1;
        let modified = self.now;
        if let Some((name, above)) = at.split_last()
            && let Some(entries) = self.folder(above)
        {
            let entity = Entity {
                node,
                mode,
                modified,
            };
            entries.insert(name.clone(), entity);
        }
    }

    /// Makes a folder where nothing stands.
    fn fill(&mut self, at: &[Name]) {
        if self.node(at).is_none() {
            self.put(at, Node::Folder(BTreeMap::new()), 0o755);
        }
    }

    fn take(&mut self, at: &[Name]) -> Option<Entity> {
        let (name, above) = at.split_last()?;
        self.folder(above)?.remove(name)
    }

    /// The names that a path below `base` ends at; the last one may be missing.
    ///
    /// Links are followed while they stay below `base`, the last one only if asked.
    fn resolve(&self, base: &[Name], path: &[u8], last: bool) -> Result<Vec<Name>, Stray> {
        let mut todo: VecDeque<Name> = names(path).collect();
        let mut at = base.to_vec();
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            match self.node(&at).map(|entity| &entity.node) {
                Some(Node::Folder(_)) => {}
                Some(_) => return Err(Stray::NoFolder),
                None => return Err(Stray::Missing),
            }
            if name == b".." {
                if at.len() == base.len() {
                    return Err(Stray::Out);
                }
                at.pop();
                continue;
            }
            at.push(name);
            if let Some(Node::Link(target)) = self.node(&at).map(|entity| &entity.node)
                && (last || !todo.is_empty())
            {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Stray::Endless);
                }
                if target.starts_with(b"/") {
                    return Err(Stray::Out);
                }
                at.pop();
                for name in names(target).collect::<Vec<_>>().into_iter().rev() {
                    todo.push_front(name);
                }
            }
        }
        Ok(at)
    }

    /// The names that a caller's path ends at, links followed.
    pub(super) fn follow(&self, path: &WorkspacePath) -> Result<Vec<Name>> {
        self.resolve(&[], path.relative().as_bytes(), true)
            .map_err(|stray| stray.error(path.to_string()))
    }

    /// The same, the last name as it is.
    pub(super) fn reach(&self, path: &WorkspacePath) -> Result<Vec<Name>> {
        self.resolve(&[], path.relative().as_bytes(), false)
            .map_err(|stray| stray.error(path.to_string()))
    }

    /// The names of a path of raw bytes, its folders made, the last name as it is; nothing
    /// leads out of `base`.
    pub(super) fn reach_below(&mut self, base: &[Name], path: &[u8]) -> Result<Vec<Name>> {
        let parts: Vec<Name> = names(path).collect();
        for depth in 1..parts.len() {
            let above = self
                .resolve(base, &parts[..depth].join(&b'/'), true)
                .map_err(|stray| stray.error(path))?;
            self.fill(&above);
        }
        self.resolve(base, path, false)
            .map_err(|stray| stray.error(path))
    }

    pub(super) fn stat(&self, path: &WorkspacePath) -> Result<Stat> {
        let at = self.reach(path)?;
        self.node(&at)
            .map(Entity::stat)
            .ok_or_else(|| Stray::Missing.error(path.to_string()))
    }

    pub(super) fn list(&self, path: &WorkspacePath, max_entries: usize) -> Result<Vec<Entry>> {
        let at = self.follow(path)?;
        match self.node(&at).map(|entity| &entity.node) {
            None => Err(Stray::Missing.error(path.to_string())),
            Some(Node::Folder(entries)) if entries.len() > max_entries => Err(SandboxError::new(
                ErrorCode::Limit,
                format!("{path} has more than {max_entries} entries"),
            )),
            Some(Node::Folder(entries)) => Ok(entries
                .iter()
                .map(|(name, entity)| Entry {
                    name: EntryName::from_bytes(name.clone()),
                    stat: entity.stat(),
                })
                .collect()),
            Some(_) => Err(invalid(path, "is no folder")),
        }
    }

    pub(super) fn read(&self, path: &WorkspacePath) -> Result<Bytes> {
        let at = self.follow(path)?;
        match self.node(&at).map(|entity| &entity.node) {
            Some(Node::File(content)) => Ok(content.clone()),
            Some(_) => Err(invalid(path, "is no regular file")),
            None => Err(Stray::Missing.error(path.to_string())),
        }
    }

    pub(super) fn write(&mut self, path: &WorkspacePath, content: Bytes) -> Result<()> {
        if let Some(above) = path.parent() {
            self.make_dir(&above)?;
        }
        let at = self.follow(path)?;
        let mode = match self.node(&at) {
            None => 0o644,
            Some(Entity {
                node: Node::File(_),
                mode,
                ..
            }) => *mode,
            Some(_) => return Err(invalid(path, "is no regular file")),
        };
        self.put(&at, Node::File(content), mode);
        Ok(())
    }

    pub(super) fn make_dir(&mut self, path: &WorkspacePath) -> Result<()> {
        let mut part = WorkspacePath::root();
        for name in path.components() {
            part = part.join(name)?;
            let at = self.follow(&part)?;
            match self.node(&at).map(|entity| &entity.node) {
                None => self.fill(&at),
                Some(Node::Folder(_)) => {}
                Some(_) => return Err(invalid(&part, "is there and is no folder")),
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &WorkspacePath, to: &WorkspacePath) -> Result<()> {
        let (source, target) = (self.reach(from)?, self.reach(to)?);
        let moved = self
            .node(&source)
            .ok_or_else(|| Stray::Missing.error(from.to_string()))?;
        let is_folder = matches!(moved.node, Node::Folder(_));
        if source == target {
            return Ok(());
        }
        if target.starts_with(&source) {
            return Err(invalid(from, "can't be moved below itself"));
        }
        match self.node(&target).map(|entity| &entity.node) {
            Some(Node::Folder(entries)) if !is_folder || !entries.is_empty() => {
                return Err(invalid(to, "is a folder that can't be replaced by this"));
            }
            Some(node) if is_folder && !matches!(node, Node::Folder(_)) => {
                return Err(invalid(to, "is no folder, and a folder can't replace it"));
            }
            _ => {}
        }
        if let Some(Entity { node, mode, .. }) = self.take(&source) {
            self.put(&target, node, mode);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &WorkspacePath) -> Result<()> {
        match self.resolve(&[], path.relative().as_bytes(), false) {
            Ok(at) => {
                self.take(&at);
                Ok(())
            }
            Err(Stray::Missing) => Ok(()),
            Err(stray) => Err(stray.error(path.to_string())),
        }
    }

    /// Makes a folder at exactly these names, or gives one that is there this mode.
    pub(super) fn put_folder(&mut self, at: &[Name], mode: u32) -> Result<()> {
        let entries = match self.node(at).map(|entity| &entity.node) {
            None => BTreeMap::new(),
            Some(Node::Folder(entries)) => entries.clone(),
            Some(_) => {
                return Err(SandboxError::new(
                    ErrorCode::Invalid,
                    "the archive has a folder where something else is",
                ));
            }
        };
        self.put(at, Node::Folder(entries), mode);
        Ok(())
    }

    pub(super) fn chmod(&mut self, path: &WorkspacePath, mode: u32) -> Result<()> {
        let at = self.follow(path)?;
        if let Some(Entity { node, .. }) = self.take(&at) {
            self.put(&at, node, mode);
        }
        Ok(())
    }
}

/// The names of a path, but for those that lead nowhere.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Name> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
}

fn invalid(path: &WorkspacePath, what: &str) -> SandboxError {
    SandboxError::new(
        ErrorCode::Invalid,
        format!("{} {what}", shown(path.to_string())),
    )
}

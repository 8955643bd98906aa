//! The fake backend: templates and sessions in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
use sandbox_core::{
    Backend, BackendName, CreateRequest, Driver, DriverSession, ErrorCode, Finding, Handle, Node,
    Posture, Prewarmed, Restriction, Result, SandboxError, SavedState, SessionId, Standing,
    TemplateFile, TemplateFiles, TemplateId, TemplateKey, TemplateSource,
};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex as AsyncMutex;

use super::command::Workspace;
use super::driver::{FakeDriver, Shared};
use super::fault::Fault;
use super::handle::{FakeHandle, Life, Stage};
use super::lock;
use super::program::Program;
use super::tree::Tree;

/// A [`Backend`] in memory; its clones share everything.
///
/// Session ids count up, so that a test sees the same ones each time.
#[derive(Clone, Debug)]
pub struct FakeBackend {
    name: BackendName,
    store: Arc<Store>,
    shared: Arc<Shared>,
}

/// What outlives a session's owner.
#[derive(Debug, Default)]
pub(super) struct Store {
    templates: Mutex<BTreeMap<TemplateKey, TemplateFiles>>,
    pub(super) sessions: Mutex<BTreeMap<SessionId, Record>>,
    next: AtomicU64,
}

/// One session, owned or not.
#[derive(Debug)]
pub(super) struct Record {
    template: TemplateKey,
    workspace: Arc<Workspace>,
    lease: Weak<()>,
}

impl Record {
    /// Takes the lease, which is free once nobody holds a share of it.
    pub(super) fn take_lease(&mut self) -> Result<Arc<()>> {
        if self.lease.strong_count() > 0 {
            return Err(SandboxError::new(
                ErrorCode::Busy,
                "the session has an owner already",
            ));
        }
        let lease = Arc::new(());
        self.lease = Arc::downgrade(&lease);
        Ok(lease)
    }
}

impl Default for FakeBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeBackend {
    /// A backend named `fake`, with nothing in it.
    ///
    /// # Panics
    /// Never: the name is one.
    #[must_use]
    pub fn new() -> Self {
        #[expect(clippy::unwrap_used, reason = "a constant that is a name")]
        let name = BackendName::new("fake").unwrap();
        Self {
            name,
            store: Arc::default(),
            shared: Arc::default(),
        }
    }

    /// Lets something go wrong, once, where it fits next.
    pub fn inject(&self, fault: Fault) {
        self.shared.faults.add(fault);
    }

    /// How many faults have not happened yet.
    #[must_use]
    pub fn waiting_faults(&self) -> usize {
        self.shared.faults.waiting()
    }

    /// Installs a program that commands name by `executable`, replacing an earlier one.
    pub fn install(&self, executable: impl Into<String>, program: Program) {
        lock(&self.shared.installed).insert(executable.into(), program);
    }

    /// Sets what every probe measures from now on; without it nothing holds.
    pub fn measure(&self, posture: Posture) {
        *lock(&self.shared.posture) = Some(posture);
    }

    /// The sessions that are there, owned or not.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionId> {
        lock(&self.store.sessions).keys().copied().collect()
    }

    fn fresh(&self, template: TemplateKey) -> Result<Claim> {
        let Some(files) = lock(&self.store.templates).get(&template).cloned() else {
            return Err(SandboxError::new(
                ErrorCode::NotFound,
                format!("there is no template {template}"),
            ));
        };
        let number = self.store.next.fetch_add(1, Ordering::Relaxed);
        let id = SessionId::from_bytes(Sha256::digest(number.to_be_bytes()).into());
        let mut record = Record {
            template,
            workspace: Arc::new(Workspace::new(Tree::new(files.iter()))),
            lease: Weak::new(),
        };
        let claim = Claim {
            id,
            workspace: Arc::clone(&record.workspace),
            lease: record.take_lease()?,
        };
        lock(&self.store.sessions).insert(id, record);
        Ok(claim)
    }

    fn again(&self, template: TemplateKey, saved: &SavedState) -> Result<Claim> {
        let mut sessions = lock(&self.store.sessions);
        let mismatch = |what: &str| {
            Err(SandboxError::new(
                ErrorCode::StateMismatch,
                format!("the saved state names another {what}"),
            ))
        };
        if saved.backend != self.name {
            return mismatch("backend");
        }
        if saved.template_key != template {
            return mismatch("template than the caller");
        }
        let Some(record) = sessions.get_mut(&saved.session_id) else {
            return Err(SandboxError::new(
                ErrorCode::NotFound,
                format!("there is no session {}", saved.session_id),
            ));
        };
        if record.template != template {
            return mismatch("template than the record");
        }
        Ok(Claim {
            id: saved.session_id,
            lease: record.take_lease()?,
            workspace: Arc::clone(&record.workspace),
        })
    }

    async fn open(&self, request: &CreateRequest, claim: Claim) -> Result<Arc<dyn Handle>> {
        tokio::task::yield_now().await;
        let refused = |fault: &Fault| matches!(fault, Fault::Create).then_some(());
        if self.shared.faults.take(refused).is_some() {
            return Err(SandboxError::new(
                ErrorCode::Unavailable,
                "the session can't be isolated",
            ));
        }
        let Claim {
            id,
            workspace,
            lease,
        } = claim;
        let shared = Arc::clone(&self.shared);
        let driver = Arc::new(FakeDriver::new(shared, workspace, Arc::downgrade(&lease)));
        let session = DriverSession::new(
            id,
            Arc::clone(&driver) as Arc<dyn Driver>,
            request.limits,
            request.policy.clone(),
        )?;
        Ok(Arc::new(FakeHandle::new(Life {
            session: Arc::new(session),
            driver,
            saved: SavedState {
                backend: self.name.clone(),
                session_id: id,
                template_key: request.template,
            },
            store: Arc::clone(&self.store),
            stage: AsyncMutex::new(Stage::Live(lease)),
        })))
    }
}

/// A session under its lease.
struct Claim {
    id: SessionId,
    workspace: Arc<Workspace>,
    lease: Arc<()>,
}

/// Removes a fresh session again unless it came to live (SPEC STO-6).
struct Undo<'a> {
    store: &'a Store,
    id: Option<SessionId>,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&self.store.sessions).remove(&id);
        }
    }
}

#[async_trait]
impl Backend for FakeBackend {
    fn name(&self) -> &BackendName {
        &self.name
    }

    async fn posture(&self) -> Result<Posture> {
        tokio::task::yield_now().await;
        Ok(posture(&self.shared))
    }

    async fn prewarm(&self, id: &TemplateId, source: TemplateSource) -> Result<Prewarmed> {
        tokio::task::yield_now().await;
        let TemplateSource::Files(files) = source else {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                "this source of a template is not known here: files are accepted",
            ));
        };
        let template_key = key(&self.name, id, &files);
        let earlier = lock(&self.store.templates).insert(template_key, files);
        Ok(Prewarmed {
            template_key,
            reused: earlier.is_some(),
        })
    }

    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn Handle>> {
        tokio::task::yield_now().await;
        match &request.resume {
            Some(saved) => {
                let claim = self.again(request.template, saved)?;
                self.open(&request, claim).await
            }
            None => {
                let claim = self.fresh(request.template)?;
                let mut undo = Undo {
                    store: &self.store,
                    id: Some(claim.id),
                };
                let handle = self.open(&request, claim).await?;
                undo.id = None;
                Ok(handle)
            }
        }
    }
}

/// What a probe measures.
pub(super) fn posture(shared: &Shared) -> Posture {
    lock(&shared.posture).clone().unwrap_or_else(|| {
        let finding = |restriction| Finding {
            restriction,
            standing: Standing::Missing,
            evidence: "a fake in memory isolates nothing".to_owned(),
        };
        Posture::new(Restriction::ALL.map(finding).to_vec())
    })
}

/// The key of a template: SHA-256 over everything that SPEC STO-1 names, each with its length.
fn key(backend: &BackendName, id: &TemplateId, files: &TemplateFiles) -> TemplateKey {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(backend.as_str().as_bytes());
    part(id.as_str().as_bytes());
    for TemplateFile { path, node, mode } in with_parents(files) {
        part(path.relative().as_bytes());
        part(&mode.bits().to_be_bytes());
        match node {
            Node::File(content) => {
                part(b"file");
                part(&content);
            }
            Node::Directory => part(b"directory"),
            Node::Symlink(target) => {
                part(b"symlink");
                part(&target);
            }
        }
    }
    TemplateKey::from_bytes(hash.finalize().into())
}

/// The entries with the folders that were left out, in order.
fn with_parents(files: &TemplateFiles) -> impl Iterator<Item = TemplateFile> {
    let mut all: BTreeMap<_, _> = BTreeMap::new();
    for file in files.iter() {
        let mut above = file.path.parent();
        while let Some(folder) = above.filter(|folder| !folder.is_root()) {
            above = folder.parent();
            all.entry(folder.clone())
                .or_insert_with(|| TemplateFile::directory(folder));
        }
    }
    for file in files.iter() {
        all.insert(file.path.clone(), file.clone());
    }
    all.into_values()
}

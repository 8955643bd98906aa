//! The factory of bubblewrap sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_core::{
    Backend, BackendName, CreateRequest, Driver, DriverSession, ErrorCode, Handle, Posture,
    Prewarmed, Result, SandboxError, TemplateFiles, TemplateId, TemplateSource,
};
use sandbox_helper::wire::TmpfsSize;
use sandbox_storage::{HostFolder, IngestOptions, Ingested, SessionOptions, Store};

use tokio::sync::oneshot;

use crate::argv::HostShape;
use crate::config::{Config, Owner};
use crate::driver::{BwrapDriver, check_policy};
use crate::files::Files;
use crate::handle::{BwrapHandle, blocking, sole, still_used};
use crate::identity;
use crate::keeper::{Executable, Keeper, Setup};
use crate::launch::Launcher;
use crate::locate;

/// How long a session that nobody comes back to is kept.
const DEFAULT_EXPIRY: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The most processes and threads of a whole session (`RLIMIT_NPROC` in its user namespace).
const MAX_SESSION_PROCESSES: u64 = 2048;

/// Makes sessions whose commands run in bubblewrap.
///
/// ```no_run
/// # async fn run() -> sandbox_core::Result<()> {
/// use sandbox_bwrap::{BwrapBackend, Config};
/// use sandbox_core::{Backend, Command, CreateRequest, TemplateFiles, TemplateId, TemplateSource};
///
/// let backend = BwrapBackend::new(Config::new("/var/tmp/sandbox-state"))?;
/// let empty = TemplateSource::Files(TemplateFiles::default());
/// let template = backend.prewarm(&TemplateId::new("empty")?, empty).await?;
/// let handle = backend.create(CreateRequest::fresh(template.template_key)).await?;
/// let output = handle.session().run(Command::builder("id").build()?).await?;
/// println!("{}", output.captured.stdout_lossy());
/// handle.delete().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BwrapBackend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    owner: Option<Owner>,
    bubblewrap: PathBuf,
    helper: PathBuf,
    store: Store,
}

/// How a session is opened, beside what every backend is asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// How long a session that nobody comes back to is kept; none is for good. 7 days.
    pub expires: Option<Duration>,
    /// What a second owner is told about this one: the command line, say.
    pub holder: String,
    /// What is kept with the session for later owners (`policy.json`): policy by
    /// reference, mounts, names of variables. No secret goes in.
    pub record: Option<Vec<u8>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            expires: Some(DEFAULT_EXPIRY),
            holder: String::new(),
            record: None,
        }
    }
}

impl BwrapBackend {
    /// Opens the store, and finds and checks bubblewrap and the helper.
    ///
    /// # Errors
    /// `SANDBOX_UNAVAILABLE` for an executable that is missing or that others could
    /// change, with how to install it, and for a root without a uid to change to;
    /// `SANDBOX_STORAGE` for a state directory that can't be used.
    ///
    /// # Security
    /// Whoever can write to bubblewrap, the helper or a folder above them runs code as the
    /// caller: hence the checks. Neither is looked for where a project could put one.
    pub fn new(config: Config) -> Result<Self> {
        let owner = identity::owner(config.owner)?;
        let bubblewrap = locate::bubblewrap(config.bubblewrap.as_deref())?;
        let helper = locate::helper(config.helper.as_deref())?;
        // Checked anew for each session, which may start long after; here to fail early.
        Executable::bubblewrap(&bubblewrap)?;
        Executable::helper(&helper)?;
        let mut options = sandbox_storage::Options::default();
        options.owner = owner.map(|owner| (owner.uid, owner.gid));
        let store = Store::open(&config.state_dir, &options)?;
        Ok(Self(Arc::new(Inner {
            config,
            owner,
            bubblewrap,
            helper,
            store,
        })))
    }

    /// The store of its templates and sessions.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Makes a template of a folder of the host, which is read by descriptor and never
    /// written.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND`, `SANDBOX_BUSY` for a file that keeps changing, `SANDBOX_LIMIT`
    /// naming the bound, `SANDBOX_STORAGE`.
    ///
    /// # Cancel safety
    /// Dropped, the ingest goes on; the template appears whole or not at all.
    pub async fn ingest(
        &self,
        id: &TemplateId,
        folder: &Path,
        options: IngestOptions,
    ) -> Result<Ingested> {
        let (store, name, id, folder) = (
            self.0.store.clone(),
            self.0.config.name.clone(),
            id.clone(),
            folder.to_owned(),
        );
        blocking(move || store.ingest(&name, &id, &HostFolder::open(&folder)?, &options)).await
    }

    /// As [`Backend::create`], with more to say.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn open(
        &self,
        request: CreateRequest,
        options: OpenOptions,
    ) -> Result<Arc<BwrapHandle>> {
        let (inner, fresh) = (Arc::clone(&self.0), request.resume.is_none());
        let (give, opened) = oneshot::channel();
        // In a task of its own: a caller that goes away must leave no session behind.
        tokio::spawn(async move {
            let outcome = inner.open(request, options).await;
            if let Err(Ok(handle)) = give.send(outcome) {
                let ended = if fresh {
                    handle.delete().await
                } else {
                    handle.stop().await
                };
                if let Err(error) = ended {
                    tracing::warn!(%error, "a session whose caller has gone was not cleaned up");
                }
            }
        });
        let lost = |_| {
            SandboxError::new(
                ErrorCode::Unavailable,
                "the task that made the session has ended",
            )
        };
        opened.await.map_err(lost)?.map(Arc::new)
    }
}

impl Inner {
    async fn open(&self, request: CreateRequest, options: OpenOptions) -> Result<BwrapHandle> {
        check_policy(&request.policy)?;
        let fresh = request.resume.is_none();
        let stored = Arc::new(self.stored(&request, options).await?);
        let enlivened = self.enliven(&request, Arc::clone(&stored)).await;
        if enlivened.is_err()
            && fresh
            && let Err(second) = undone(stored).await
        {
            tracing::warn!(error = %second, "a session that could not be made was not removed");
        }
        enlivened
    }

    /// The session's folder under its lease.
    async fn stored(
        &self,
        request: &CreateRequest,
        options: OpenOptions,
    ) -> Result<sandbox_storage::Session> {
        let (store, name, template) = (
            self.store.clone(),
            self.config.name.clone(),
            request.template,
        );
        let mut session = SessionOptions::default();
        session.durable = self.config.durable;
        session.expires_in = options.expires;
        session.holder = options.holder;
        session.policy = options.record;
        match request.resume.clone() {
            None => blocking(move || store.create(&name, &template, &session)).await,
            Some(saved) if saved.template_key != template => Err(SandboxError::new(
                ErrorCode::StateMismatch,
                format!(
                    "the saved state names the template {} and the caller {template}",
                    saved.template_key
                ),
            )),
            Some(saved) => blocking(move || store.reconnect(&name, &saved, &session.holder)).await,
        }
    }

    /// Namespaces, files and the proof that they hold (SPEC BAK-3).
    async fn enliven(
        &self,
        request: &CreateRequest,
        stored: Arc<sandbox_storage::Session>,
    ) -> Result<BwrapHandle> {
        let bounds = &self.config.bounds;
        let setup = Setup {
            helper: Executable::helper(&self.helper)?,
            bubblewrap: Executable::bubblewrap(&self.bubblewrap)?,
            session: stored
                .session_dir()
                .try_clone_to_owned()
                .map_err(no_descriptor)?,
            lease: stored.lease_fd()?,
            owner: self.owner,
            host: HostShape::of_host()?,
            read_only: self.config.mounts.clone(),
            tmp: TmpfsSize {
                bytes: bounds.tmp_bytes.get(),
                inodes: bounds.tmp_entries.get(),
            },
            shm_bytes: bounds.shm_bytes.get(),
            processes: Some(MAX_SESSION_PROCESSES),
        };
        blocking({
            let stored = Arc::clone(&stored);
            move || stored.mark_dirty()
        })
        .await?;
        let (keeper, workspace) = Keeper::start(setup).await?;
        let files = Files::new(workspace, self.store.clone(), Arc::clone(&stored));
        let driver = Arc::new(BwrapDriver::new(keeper, Launcher::new(&self.config), files));
        let proof = driver.probe().await;
        let session = match proof {
            Ok(_) => DriverSession::new(
                stored.id(),
                Arc::clone(&driver) as Arc<dyn Driver>,
                request.limits,
                request.policy.clone(),
            ),
            Err(error) => Err(error),
        };
        match session {
            Ok(session) => Ok(BwrapHandle::new(
                Arc::new(session),
                self.store.clone(),
                Arc::clone(&stored),
                stored.saved_state(),
            )),
            Err(error) => {
                if let Err(second) = driver.stop().await {
                    tracing::warn!(error = %second, "a session that could not be proved did not stop");
                }
                Err(error)
            }
        }
    }
}

#[async_trait]
impl Backend for BwrapBackend {
    fn name(&self) -> &BackendName {
        &self.0.config.name
    }

    /// Measured in a session of an empty template, which is gone afterwards.
    async fn posture(&self) -> Result<Posture> {
        let id = TemplateId::new("posture")?;
        let empty = TemplateSource::Files(TemplateFiles::default());
        let template = self.prewarm(&id, empty).await?;
        let handle = self
            .create(CreateRequest::fresh(template.template_key))
            .await?;
        let measured = handle.session().posture().await;
        let deleted = handle.delete().await;
        // What the probe said comes first (SPEC ERR-4).
        let (posture, _) = measured?;
        deleted?;
        Ok(posture)
    }

    async fn prewarm(&self, id: &TemplateId, source: TemplateSource) -> Result<Prewarmed> {
        let (store, name, id) = (self.0.store.clone(), self.0.config.name.clone(), id.clone());
        let TemplateSource::Files(files) = source else {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                "this source of a template is not known here: files are accepted",
            ));
        };
        blocking(move || store.prewarm(&name, &id, &files)).await
    }

    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn Handle>> {
        let handle = self.open(request, OpenOptions::default()).await?;
        Ok(handle)
    }
}

/// Removes a fresh session that could not be made (SPEC STO-6).
async fn undone(stored: Arc<sandbox_storage::Session>) -> Result<()> {
    match sole(stored).await {
        Ok(stored) => blocking(move || stored.delete()).await,
        Err(_) => Err(still_used()),
    }
}

fn no_descriptor(error: std::io::Error) -> SandboxError {
    SandboxError::new(ErrorCode::Limit, "this process may open no more files")
        .with_source(error)
        .with_hint("raise the limit of open files (`ulimit -n`)")
}

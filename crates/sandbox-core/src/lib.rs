//! The nouns of the sandbox, its plug traits, and the one checking session.
//!
//! **Owns** what every part agrees on: errors with stable codes ([`SandboxError`]),
//! parsed types that do the refusing ([`WorkspacePath`], [`Command`], [`Origin`],
//! [`TemplateFiles`]), policies ([`PolicyDocument`] as written, [`Policy`] as enforced),
//! postures that are measured ([`Posture`]), and the traits that a backend plugs into
//! ([`Backend`], [`Handle`], [`Session`], [`Driver`], [`Process`]).
//!
//! **Never knows** an async runtime, a clock, a file, an environment or a process: a
//! backend may be a container, a pod or a machine far away.
//!
//! **Start** as a caller with [`Session`]; as the author of a backend with [`Driver`] and
//! [`DriverSession`], then run the contract suite of `sandbox-testkit`.
//!
//! ```
//! use sandbox_core::{Command, CreateRequest, Result, TemplateFile, TemplateFiles, TemplateId, TemplateSource};
//! use sandbox_core::{Backend, WorkspacePath};
//!
//! async fn hello(backend: &dyn Backend) -> Result<()> {
//!     let script = TemplateFile::executable(WorkspacePath::parse("hello.sh")?, "#!/bin/sh\necho hello\n");
//!     let source = TemplateSource::Files(TemplateFiles::new(vec![script])?);
//!     let template = backend.prewarm(&TemplateId::new("hello")?, source).await?;
//!
//!     let handle = backend.create(CreateRequest::fresh(template.template_key)).await?;
//!     let output = handle.session().run(Command::builder("./hello.sh").build()?).await?;
//!     assert_eq!(output.captured.stdout, "hello\n");
//!     handle.delete().await
//! }
//! ```
#![forbid(unsafe_code)]

pub mod id;

mod backend;
mod cancel;
mod command;
mod driver;
mod driver_session;
mod error;
mod file;
mod gate;
mod handle;
mod name;
mod output;
mod path;
mod policy;
mod posture;
mod process;
mod refusal;
mod restriction;
pub mod schema;
mod secret;
mod session;
mod state;
mod template;
mod text;
mod wait;

pub use backend::{Backend, CreateRequest};
pub use cancel::CancelToken;
pub use command::{Command, CommandBounds, CommandBuilder, CommandDefaults, Deadline, OutputLimit};
pub use driver::{Driver, Start};
pub use driver_session::{DriverSession, SessionLimits};
pub use error::{ErrorCode, Result, SandboxError};
pub use file::{
    ByteStream, Entry, EntryName, FileKind, FileLimits, ReadOptions, Stat, Timestamp, WriteOptions,
};
pub use gate::Permit;
pub use handle::{Handle, Snapshots};
pub use id::{SessionId, TemplateKey};
pub use output::{Captured, Chunk, Exit, Finished, Output, OutputBudget, OutputStream};
pub use path::{WORKSPACE_ROOT, WorkspacePath};
pub use policy::{
    HeaderName, HeaderSource, Origin, Policy, PolicyCell, PolicyDocument, PolicySnapshot, Rule,
    RuleDocument, Scheme,
};
pub use posture::{Grade, Posture, Revision};
pub use process::{Process, Signal, TerminalSize, no_terminal};
pub use refusal::Refusal;
pub use restriction::{Finding, Restriction, Standing};
pub use secret::{Secret, SecretSource};
pub use session::{Session, SpawnOptions, Stdin, When};
pub use state::SavedState;
pub use template::{
    BackendName, Mode, Node, Prewarmed, TemplateFile, TemplateFiles, TemplateId, TemplateSource,
};
pub use text::shown;

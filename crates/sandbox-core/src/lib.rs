//! x
#![forbid(unsafe_code)]
mod error;
pub mod id;
mod name;
mod output;
mod path;
mod posture;
mod refusal;
mod restriction;
mod state;
mod template;
mod text;
pub use error::{ErrorCode, Result, SandboxError};
pub use id::{SessionId, TemplateKey};
pub use output::{Captured, Chunk, Exit, Finished, Output, OutputBudget, OutputStream};
pub use path::{WORKSPACE_ROOT, WorkspacePath};
pub use posture::{Grade, Posture, Revision};
pub use refusal::Refusal;
pub use restriction::{Finding, Restriction, Standing};
pub use state::SavedState;
pub use template::{
    BackendName, Mode, Node, Prewarmed, TemplateFile, TemplateFiles, TemplateId, TemplateSource,
};
pub use text::shown;

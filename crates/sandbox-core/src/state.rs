//! What a caller keeps of a session to come back to it.

use serde::{Deserialize, Serialize};

use crate::id::{SessionId, TemplateKey};
use crate::template::BackendName;

/// The identity of a session, as a caller saves it.
///
/// All three fields are checked against the caller's backend and the record on disk;
/// any difference is `SANDBOX_STATE_MISMATCH` and changes nothing (SPEC STO-4).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SavedState {
    /// The backend that made it.
    pub backend: BackendName,
    /// The session.
    pub session_id: SessionId,
    /// The template its workspace started from.
    pub template_key: TemplateKey,
}

//! The one record of a refusal.

use serde::{Deserialize, Serialize};

use crate::error::ErrorCode;
use crate::posture::Revision;

/// Why something was refused and what would allow it.
///
/// The same record stands in the Rust error, in the program's JSON, in the body of a
/// denied request, in a tool's result and in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The kind.
    pub code: ErrorCode,
    /// What was refused.
    pub what: String,
    /// The rule that refused it, as the policy names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The policy revision that was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// What would allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the same call may succeed later without a change.
    pub retryable: bool,
}

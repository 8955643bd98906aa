//! What a backend may hold a command to, and whether it does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One property of the isolation. SPEC COD-1, CON-4.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Restriction {
    /// A command writes nowhere but to its workspace, home and temporary folder.
    WriteContained,
    /// A command sees and signals no process of the host, and outlives nothing.
    ProcessContained,
    /// A command sees no secret of the host: environment, descriptors, files, keyrings.
    SecretsHidden,
    /// A command reaches no network at all.
    NetworkDenied,
    /// Memory, processes, disk and time of a command are bounded.
    ResourcesBounded,
}

impl Restriction {
    /// Every restriction, in the order of reports.
    pub const ALL: [Self; 5] = [
        Self::WriteContained,
        Self::ProcessContained,
        Self::SecretsHidden,
        Self::NetworkDenied,
        Self::ResourcesBounded,
    ];

    /// The stable string form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WriteContained => "write-contained",
            Self::ProcessContained => "process-contained",
            Self::SecretsHidden => "secrets-hidden",
            Self::NetworkDenied => "network-denied",
            Self::ResourcesBounded => "resources-bounded",
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a restriction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Measured, and it holds.
    Ok,
    /// Measured or known, and it does not hold.
    Missing,
    /// Nothing has measured it.
    Unknown,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        })
    }
}

/// What was found about one restriction, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The restriction.
    pub restriction: Restriction,
    /// Whether it holds.
    pub standing: Standing,
    /// What was seen, for a person to check.
    pub evidence: String,
}

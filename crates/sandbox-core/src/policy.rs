//! What a session may reach.

mod cell;
mod document;
mod header;
mod origin;
mod tree;

use crate::error::{ErrorCode, Result, SandboxError};
use crate::secret::Secret;

pub use cell::{PolicyCell, PolicySnapshot};
pub use document::{HeaderSource, PolicyDocument, RuleDocument};
pub use header::HeaderName;
pub use origin::{Origin, Scheme};

/// A network policy with its secrets resolved: what is enforced.
///
/// It does not serialise; what is written down is the [`PolicyDocument`] it came from
/// (SPEC POL-5).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Every public destination, through the broker.
    AllowAll,
    /// Nothing at all: what every session starts with.
    #[default]
    DenyAll,
    /// What these rules name.
    Allow(Vec<Rule>),
}

impl Policy {
    /// Whether nothing can be reached: `deny-all`, or an empty allow list (SPEC POL-1).
    #[must_use]
    pub fn denies_everything(&self) -> bool {
        match self {
            Self::DenyAll => true,
            Self::AllowAll => false,
            Self::Allow(rules) => rules.is_empty(),
        }
    }
}

/// One origin that may be reached, and what is added on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The origin.
    pub origin: Origin,
    /// Headers that the broker sets, whatever the inside sent.
    pub headers: Vec<(HeaderName, Secret)>,
}

/// Refuses two rules that one request could mean (SPEC POL-3).
fn check_gateway_hosts<'a>(origins: impl Iterator<Item = &'a Origin>) -> Result<()> {
    let mut seen = std::collections::BTreeMap::new();
    for origin in origins {
        if let Some(earlier) = seen.insert(origin.gateway_host(), origin) {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "two rules share the host {}: {earlier} and {origin}; one rule per host and port is accepted",
                    origin.gateway_host()
                ),
            ));
        }
    }
    Ok(())
}

//! What is kept with a session for those who come back to it: `policy.json`.

use std::io::{ErrorKind, Read};
use std::path::Path;

use sandbox_core::{
    ErrorCode, Policy, PolicyDocument, Result, SandboxError, Secret, SecretSource, shown,
};
use serde::{Deserialize, Serialize};

use crate::arguments::{Make, Toolchain};

/// The largest policy file that is read, in bytes.
const MAX_POLICY_BYTES: u64 = 1024 * 1024;

/// The largest file of a header's value that is read, in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// What a session runs under. References and names only: no value of a secret is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The network policy as written.
    pub(crate) policy: PolicyDocument,
    /// The folder that it was made from, which toolchains are chosen for.
    pub(crate) project: String,
    /// What is visible of the host.
    pub(crate) read_only: Vec<String>,
    /// Toolchains of the person's home.
    pub(crate) toolchains: Vec<Toolchain>,
}

impl Record {
    /// What the arguments ask for.
    pub(crate) fn new(make: &Make, project: &Path) -> Result<Self> {
        let utf8 = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                SandboxError::new(
                    ErrorCode::Invalid,
                    format!(
                        "the path {} is not UTF-8",
                        shown(path.as_os_str().as_encoded_bytes())
                    ),
                )
            })
        };
        let read_only = make.ro.iter().map(|path| {
            utf8(&std::path::absolute(path).map_err(|error| {
                SandboxError::new(ErrorCode::Invalid, "a read-only path can't be used")
                    .with_source(error)
            })?)
        });
        Ok(Self {
            policy: make
                .policy
                .as_deref()
                .map_or_else(|| Ok(PolicyDocument::DenyAll), read_policy)?,
            // Only what a toolchain is looked for from: a lossy name finds none.
            project: project.to_string_lossy().into_owned(),
            read_only: read_only.collect::<Result<_>>()?,
            toolchains: make.toolchain.clone(),
        })
    }

    /// What is enforced.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for a policy that can't be resolved, and `SANDBOX_UNAVAILABLE` for
    /// all but `deny-all`: nothing here lets a request through.
    pub(crate) fn resolve(&self) -> Result<Policy> {
        let policy = self.policy.resolve(&HostSecrets)?;
        if policy.denies_everything() {
            return Ok(policy);
        }
        Err(SandboxError::new(
            ErrorCode::Unavailable,
            "this network policy needs the egress broker, which this version lacks",
        )
        .with_hint("leave `--policy` out: there is no network then"))
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        // A literal header value is refused by name before serde meets it.
        self.policy.to_json()?;
        serde_json::to_vec(self).map_err(|error| {
            SandboxError::new(
                ErrorCode::Invalid,
                "what the session runs under can't be written",
            )
            .with_source(error)
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| {
            SandboxError::new(
                ErrorCode::Storage,
                "the session's policy.json is damaged, or of another version",
            )
            .with_source(error)
        })
    }
}

/// Reads a policy file; what does not begin like JSON is TOML.
fn read_policy(path: &Path) -> Result<PolicyDocument> {
    let named = shown(path.as_os_str().as_encoded_bytes());
    let unread = |error: std::io::Error| {
        let code = match error.kind() {
            ErrorKind::NotFound => ErrorCode::NotFound,
            _ => ErrorCode::Invalid,
        };
        SandboxError::new(code, format!("the policy file {named} can't be read")).with_source(error)
    };
    let bytes = read_bounded(path, MAX_POLICY_BYTES).map_err(unread)?;
    let begins = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_json = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => true,
        Some("toml") => false,
        _ => matches!(begins, Some(b'{' | b'"')),
    };
    let document = if is_json {
        PolicyDocument::from_json(&bytes)
    } else {
        PolicyDocument::from_toml(&bytes)
    };
    document.map_err(|error| {
        SandboxError::new(error.code(), format!("the policy file {named} is refused"))
            .with_source(error)
    })
}

/// Reads a regular file up to a bound. A FIFO or a device would never end.
fn read_bounded(path: &Path, max_bytes: u64) -> std::io::Result<Vec<u8>> {
    let refused = |why: String| Err(std::io::Error::new(ErrorKind::InvalidInput, why));
    // Looked at first: opening a FIFO waits for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return refused("it is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(max_bytes + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return refused(format!("it has more than {max_bytes} bytes"));
    }
    Ok(bytes)
}

/// References of a policy, looked up in this process's environment and files.
#[derive(Debug)]
struct HostSecrets;

impl SecretSource for HostSecrets {
    fn env(&self, name: &str) -> Result<Option<Secret>> {
        Ok(std::env::var_os(name).map(|value| Secret::new(value.into_encoded_bytes())))
    }

    fn file(&self, path: &str) -> Result<Option<Secret>> {
        match read_bounded(Path::new(path), MAX_SECRET_BYTES) {
            Ok(mut bytes) => {
                if bytes.last() == Some(&b'\n') {
                    bytes.pop();
                }
                Ok(Some(Secret::new(bytes)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(SandboxError::new(
                ErrorCode::Invalid,
                format!("the file {} of a header can't be read", shown(path)),
            )
            .with_source(error)),
        }
    }
}

//! Commands: what is run, with which bounds.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Result, SandboxError};
use crate::path::WorkspacePath;
use crate::text::shown;

/// The longest deadline, in milliseconds: 2³¹ − 1, about 25 days.
const MAX_TIMEOUT_MS: u64 = 2_147_483_647;

/// What executable, arguments and environment may add up to, in bytes.
///
/// Linux takes at most 6 MiB for all of them and 128 KiB for one (`execve(2)`); what is
/// within this bound and beyond the kernel's ends as `NotExecutable`, with its reason.
const MAX_COMMAND_BYTES: usize = 2 * 1024 * 1024;

/// How long a command may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Deadline {
    /// The session's default.
    #[default]
    Default,
    /// This long, from 1 ms to 2³¹ − 1 ms.
    After(Duration),
    /// As long as it likes. In JSON: `"unlimited"`.
    Unlimited,
}

/// How much a command may write, standard output and error together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OutputLimit {
    /// The session's default.
    #[default]
    Default,
    /// This many bytes.
    Bytes(NonZeroU64),
    /// As much as it likes. In JSON: `"unlimited"`.
    Unlimited,
}

/// A command that fits its schema. SPEC CMD-1.
///
/// [`CommandBuilder::build`] is the only door, and serde goes through it.
///
/// ```
/// use std::time::Duration;
/// use sandbox_core::{Command, Deadline};
///
/// let command = Command::builder("cargo")
///     .arg("test")
///     .cwd("crates/core")
///     .env("RUST_BACKTRACE", "1")
///     .deadline(Deadline::After(Duration::from_secs(60)))
///     .build()?;
/// assert_eq!(command.args(), ["test"]);
///
/// let json = br#"{"executable": "make", "timeout_ms": "unlimited"}"#;
/// assert_eq!(Command::from_json(json)?.deadline(), Deadline::Unlimited);
/// # Ok::<(), sandbox_core::SandboxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    executable: String,
    args: Vec<String>,
    cwd: WorkspacePath,
    environment: BTreeMap<String, String>,
    deadline: Deadline,
    max_output: OutputLimit,
}

impl Command {
    /// Begins a command: a name that is looked up along `PATH` inside, or a path inside.
    pub fn builder(executable: impl Into<String>) -> CommandBuilder {
        CommandBuilder(CommandDocument {
            executable: executable.into(),
            args: Vec::new(),
            cwd: None,
            environment: BTreeMap::new(),
            timeout_ms: None,
            max_output_bytes: None,
        })
    }

    /// Reads a JSON command.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for what does not fit the schema, unknown keys included;
    /// `SANDBOX_PATH` for a working directory that is no workspace path.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let document: CommandDocument = serde_json::from_slice(bytes).map_err(|error| {
            SandboxError::new(
                ErrorCode::Invalid,
                format!("the command does not fit its schema: {error}"),
            )
        })?;
        document.try_into()
    }

    /// What is run.
    #[must_use]
    pub fn executable(&self) -> &str {
        &self.executable
    }

    /// Its arguments, without the name.
    #[must_use]
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// Where it starts; the workspace's root unless given.
    #[must_use]
    pub fn cwd(&self) -> &WorkspacePath {
        &self.cwd
    }

    /// What is added to the session's own environment.
    #[must_use]
    pub fn environment(&self) -> &BTreeMap<String, String> {
        &self.environment
    }

    /// How long it may run.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// How much it may write.
    #[must_use]
    pub fn max_output(&self) -> OutputLimit {
        self.max_output
    }
}

/// Collects a command; [`Self::build`] checks it.
#[derive(Clone, Debug)]
#[must_use]
pub struct CommandBuilder(CommandDocument);

impl CommandBuilder {
    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.0.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.0.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the working directory: a workspace path.
    pub fn cwd(mut self, path: impl Into<String>) -> Self {
        self.0.cwd = Some(path.into());
        self
    }

    /// Adds a variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.0.environment.insert(name.into(), value.into());
        self
    }

    /// Sets the deadline.
    pub fn deadline(mut self, deadline: Deadline) -> Self {
        self.0.timeout_ms = match deadline {
            Deadline::Default => None,
            Deadline::After(after) => Some(Bound::At(
                u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            )),
            Deadline::Unlimited => Some(Bound::Word(Unlimited::Unlimited)),
        };
        self
    }

    /// Sets the output limit.
    pub fn max_output(mut self, limit: OutputLimit) -> Self {
        self.0.max_output_bytes = match limit {
            OutputLimit::Default => None,
            OutputLimit::Bytes(bytes) => Some(Bound::At(bytes.get())),
            OutputLimit::Unlimited => Some(Bound::Word(Unlimited::Unlimited)),
        };
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    /// `SANDBOX_INVALID`, `SANDBOX_PATH`: as [`Command::from_json`].
    pub fn build(self) -> Result<Command> {
        self.0.try_into()
    }
}

/// A command: what is run, with which bounds.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Command")]
struct CommandDocument {
    /// A name that is looked up along `PATH` inside, or a path inside.
    #[schemars(length(min = 1))]
    executable: String,
    /// Arguments, without the name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    /// A workspace path; the root unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    /// Variables; a name is not empty and holds no `=`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    environment: BTreeMap<String, String>,
    /// Milliseconds from 1 to 2147483647, or "unlimited"; 30000 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<Bound>,
    /// Bytes of both streams together, at least 1, or "unlimited"; 1048576 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_output_bytes: Option<Bound>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "a whole number of at least 1, or \"unlimited\"")]
enum Bound {
    At(#[schemars(range(min = 1))] u64),
    Word(Unlimited),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unlimited {
    Unlimited,
}

impl TryFrom<CommandDocument> for Command {
    type Error = SandboxError;

    fn try_from(document: CommandDocument) -> Result<Self> {
        let CommandDocument {
            executable,
            args,
            cwd,
            environment,
            timeout_ms,
            max_output_bytes,
        } = document;
        if executable.is_empty() {
            return Err(SandboxError::invalid(
                "the executable",
                "",
                "a name or a path inside is accepted",
            ));
        }
        for (what, value) in std::iter::once(("the executable", &executable))
            .chain(args.iter().map(|arg| ("the argument", arg)))
        {
            if value.contains('\0') {
                return Err(SandboxError::invalid(
                    what,
                    value,
                    "a string without NUL is accepted",
                ));
            }
        }
        for (name, value) in &environment {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(SandboxError::invalid(
                    "the environment name",
                    name,
                    "a name that is not empty and holds neither `=` nor NUL is accepted",
                ));
            }
            if value.contains('\0') {
                // The value may be a secret: only its name is shown.
                return Err(SandboxError::new(
                    ErrorCode::Invalid,
                    format!(
                        "the value of the environment variable {} holds a NUL",
                        shown(name)
                    ),
                ));
            }
        }
        let strings = std::iter::once(&executable)
            .chain(&args)
            .chain(environment.keys())
            .chain(environment.values());
        let bytes: usize = strings.map(|string| string.len() + 1).sum();
        if bytes > MAX_COMMAND_BYTES {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "the command has {bytes} bytes of arguments and environment: up to {MAX_COMMAND_BYTES} are accepted"
                ),
            ));
        }
        let cwd = cwd.map_or_else(
            || Ok(WorkspacePath::root()),
            |cwd| WorkspacePath::parse(&cwd),
        )?;
        let deadline = match timeout_ms {
            None => Deadline::Default,
            Some(Bound::Word(Unlimited::Unlimited)) => Deadline::Unlimited,
            Some(Bound::At(ms @ 1..=MAX_TIMEOUT_MS)) => Deadline::After(Duration::from_millis(ms)),
            Some(Bound::At(ms)) => {
                return Err(SandboxError::invalid(
                    "the deadline in milliseconds",
                    ms.to_string(),
                    "1 to 2147483647 or \"unlimited\" is accepted",
                ));
            }
        };
        let max_output = match max_output_bytes {
            None => OutputLimit::Default,
            Some(Bound::Word(Unlimited::Unlimited)) => OutputLimit::Unlimited,
            Some(Bound::At(bytes)) => {
                OutputLimit::Bytes(NonZeroU64::new(bytes).ok_or_else(|| {
                    SandboxError::invalid(
                        "the output limit",
                        "0",
                        "at least 1 byte or \"unlimited\" is accepted",
                    )
                })?)
            }
        };
        Ok(Self {
            executable,
            args,
            cwd,
            environment,
            deadline,
            max_output,
        })
    }
}

impl From<&Command> for CommandDocument {
    fn from(command: &Command) -> Self {
        let Command {
            executable,
            args,
            cwd,
            environment,
            deadline,
            max_output,
        } = command.clone();
        CommandBuilder(Self {
            executable,
            args,
            cwd: (!cwd.is_root()).then(|| cwd.to_string()),
            environment,
            timeout_ms: None,
            max_output_bytes: None,
        })
        .deadline(deadline)
        .max_output(max_output)
        .0
    }
}

impl Serialize for Command {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        CommandDocument::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        CommandDocument::deserialize(deserializer)?
            .try_into()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Command {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        CommandDocument::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        CommandDocument::json_schema(generator)
    }
}

/// What a command gets that sets no bounds of its own. SPEC CMD-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandDefaults {
    /// How long it may run; none is no bound. 30 s.
    pub deadline: Option<Duration>,
    /// How much it may write; none is no bound. 1 MiB.
    pub max_output_bytes: Option<NonZeroU64>,
}

impl Default for CommandDefaults {
    fn default() -> Self {
        Self {
            deadline: Some(Duration::from_secs(30)),
            max_output_bytes: NonZeroU64::new(1024 * 1024),
        }
    }
}

impl CommandDefaults {
    /// The bounds of this command: its own, else these.
    #[must_use]
    pub fn apply(&self, command: &Command) -> CommandBounds {
        CommandBounds {
            deadline: match command.deadline {
                Deadline::Default => self.deadline,
                Deadline::After(after) => Some(after),
                Deadline::Unlimited => None,
            },
            max_output_bytes: match command.max_output {
                OutputLimit::Default => self.max_output_bytes,
                OutputLimit::Bytes(bytes) => Some(bytes),
                OutputLimit::Unlimited => None,
            },
        }
    }
}

/// The bounds that one command is held to; none is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandBounds {
    /// From the start to the end.
    pub deadline: Option<Duration>,
    /// Both streams together.
    pub max_output_bytes: Option<NonZeroU64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(json: &str) -> ErrorCode {
        Command::from_json(json.as_bytes()).expect_err(json).code()
    }

    // CMD-1
    #[test]
    fn cmd_1_what_does_not_fit_is_refused() {
        for refused in [
            "",
            "{}",
            "[]",
            "{\"executable\": \"\"}",
            "{\"executable\": \"a\\u0000\"}",
            "{\"executable\": \"a\", \"x\": 1}",
            "{\"executable\": \"a\", \"args\": [\"\\u0000\"]}",
            "{\"executable\": \"a\", \"args\": \"b\"}",
            "{\"executable\": \"a\", \"environment\": {\"\": \"\"}}",
            "{\"executable\": \"a\", \"environment\": {\"A=B\": \"\"}}",
            "{\"executable\": \"a\", \"environment\": {\"A\": \"\\u0000\"}}",
            "{\"executable\": \"a\", \"timeout_ms\": 0}",
            "{\"executable\": \"a\", \"timeout_ms\": 2147483648}",
            "{\"executable\": \"a\", \"timeout_ms\": -1}",
            "{\"executable\": \"a\", \"timeout_ms\": \"forever\"}",
            "{\"executable\": \"a\", \"timeout_ms\": 1.5}",
            "{\"executable\": \"a\", \"max_output_bytes\": 0}",
        ] {
            assert_eq!(code(refused), ErrorCode::Invalid, "{refused}");
        }
        assert_eq!(
            code("{\"executable\": \"a\", \"cwd\": \"/etc\"}"),
            ErrorCode::Path
        );
        assert_eq!(
            Command::builder("a")
                .args(vec!["x".repeat(1 << 20); 3])
                .build()
                .unwrap_err()
                .code(),
            ErrorCode::Invalid
        );
        assert_eq!(
            Command::builder("a")
                .deadline(Deadline::After(Duration::ZERO))
                .build()
                .unwrap_err()
                .code(),
            ErrorCode::Invalid
        );
    }

    // CMD-1, ARG-1: what looks like an option is a value.
    #[test]
    fn cmd_1_odd_strings_are_kept_to_the_byte() {
        let odd = ["", "-", "--", "-rf", "a b", "a\nb", "$HOME", "*", "…"];
        let command = Command::builder("--x")
            .args(odd)
            .env("A", "=\n")
            .build()
            .unwrap();
        assert_eq!(command.args(), odd);
        let json = serde_json::to_string(&command).unwrap();
        assert_eq!(Command::from_json(json.as_bytes()).unwrap(), command);
    }

    // CMD-2, CMD-3
    #[test]
    fn cmd_2_defaults_and_unlimited_are_told_apart() {
        let defaults = CommandDefaults::default();
        let plain = Command::builder("a").build().unwrap();
        assert_eq!(plain.cwd(), &WorkspacePath::root());
        assert_eq!(
            defaults.apply(&plain),
            CommandBounds {
                deadline: Some(Duration::from_millis(30_000)),
                max_output_bytes: NonZeroU64::new(1_048_576)
            }
        );
        let free = Command::builder("a")
            .deadline(Deadline::Unlimited)
            .max_output(OutputLimit::Unlimited)
            .build()
            .unwrap();
        assert_eq!(
            defaults.apply(&free),
            CommandBounds {
                deadline: None,
                max_output_bytes: None
            }
        );
    }

    // ERR-3: the value of a variable may be a secret.
    #[test]
    fn err_3_no_environment_value_is_repeated() {
        let error = Command::builder("a")
            .env("TOKEN", "hunter2\0")
            .build()
            .unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }
}

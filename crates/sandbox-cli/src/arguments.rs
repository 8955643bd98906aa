//! What a person types.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::duration;

/// Shown below the help of `exec`.
const EXIT_CODES: &str = "\
Exit codes:
  the command's own, or
  124    it ran longer than --timeout
  125    the sandbox itself failed, or a bound other than the deadline was passed
  126    the command is there and can't be executed
  127    the command was not found
  128+n  signal n ended it";

/// The heading of what every subcommand takes.
const EVERYWHERE: &str = "Options of every subcommand";

/// Shown below the help of `run`.
const RUN_NOTES: &str = "\
Examples:
  sandbox run -- cargo test
  sandbox run --rm --timeout 5m -- npm test
  sandbox run --env TOKEN --exclude '*.log' -- sh -c 'make && make install'
  sandbox run --json -- python3 script.py < input

Exit codes:
  the command's own, or
  124    it ran longer than --timeout
  125    the sandbox itself failed, or a bound other than the deadline was passed
  126    the command is there and can't be executed
  127    the command was not found
  128+n  signal n ended it";

/// Runs commands that you need not trust, in a private copy of a project.
///
/// A command sees a copy of the folder at /workspace, the system's programs read-only, and
/// no network. What it changes stays in the copy, and is listed when it ends.
#[derive(Debug, Parser)]
#[command(
    name = "sandbox",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    /// Write JSON to standard output: one value, or for `run` and `exec` one event a line.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) json: bool,
    /// Write what happens inside the program to standard error.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Whether JSON is a line for each event, with the result as the last.
    pub(crate) fn streams_events(&self) -> bool {
        matches!(
            self.command,
            Command::Run(_) | Command::Session(Session::Exec(_))
        )
    }
}

/// Where things are; each has a variable too.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Where templates and sessions are kept [env: SANDBOX_STATE_DIR]
    ///
    /// By default $XDG_STATE_HOME/sandbox, ~/.local/state/sandbox, or for root
    /// /var/lib/sandbox.
    #[arg(long, global = true, value_name = "PATH", help_heading = EVERYWHERE, hide_short_help = true)]
    pub(crate) state_dir: Option<PathBuf>,
    /// The program sandbox-helper [env: SANDBOX_HELPER]
    ///
    /// By default beside this program, or in ../libexec/sandbox/.
    #[arg(long, global = true, value_name = "PATH", help_heading = EVERYWHERE, hide_short_help = true)]
    pub(crate) helper: Option<PathBuf>,
    /// bubblewrap [env: SANDBOX_BWRAP]
    ///
    /// By default /usr/bin/bwrap, or the first on PATH.
    #[arg(long, global = true, value_name = "PATH", help_heading = EVERYWHERE, hide_short_help = true)]
    pub(crate) bubblewrap: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
    /// Sessions: workspaces that stay after their command has ended
    #[command(subcommand)]
    Session(Session),
    /// Templates: what workspaces are made from
    #[command(subcommand)]
    Template(Template),
    /// Remove what is expired or no longer needed
    Gc,
    /// Look at this host: what sandboxes need, and how to mend what is missing
    Doctor,
}

/// Run a command in a private copy of the current folder.
///
/// All of the folder goes in, ignored files too; nothing of it is written. There is no
/// network, and neither a deadline nor an output limit unless asked for. What the command
/// changed is listed at its end: a session with changes is kept for 7 days, one without is
/// removed.
#[derive(Debug, Args)]
#[command(after_help = RUN_NOTES)]
pub(crate) struct Run {
    /// The folder that is copied, instead of the current one
    #[arg(long, value_name = "PATH")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ingest: Ingest,
    #[command(flatten)]
    pub(crate) make: Make,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
    /// Keep the session, changed or not
    #[arg(long, conflicts_with = "rm")]
    pub(crate) keep: bool,
    /// Remove the session, changed or not
    #[arg(long)]
    pub(crate) rm: bool,
    #[command(flatten)]
    pub(crate) line: Line,
}

#[derive(Debug, Args)]
pub(crate) struct Ingest {
    /// Leave out what the repository's own ignore rules ignore
    #[arg(long)]
    pub(crate) respect_ignore: bool,
    /// Leave out what matches, in the language of gitignore; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Make {
    /// The network policy, as JSON or TOML; without it there is no network
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Show a file or folder of the host inside, read-only, at its own path; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) ro: Vec<PathBuf>,
    /// Show a toolchain of your home inside
    #[arg(long, value_name = "NAME")]
    pub(crate) toolchain: Vec<Toolchain>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Toolchain {
    /// The Rust toolchain that cargo would use in the folder
    Rustup,
}

#[derive(Debug, Args)]
pub(crate) struct Bounds {
    /// End the command after this long: 500ms, 30s, 5m, 1h
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,
    /// End the command once it has written this many bytes
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_output: Option<u64>,
    /// Pass a variable of this environment on; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Vec<String>,
    /// Where the command starts, below /workspace
    #[arg(long, value_name = "PATH")]
    pub(crate) cwd: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Line {
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) line: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Make a session and print its id
    Create(Create),
    /// List the sessions
    List,
    /// Run a command in a session
    Exec(Exec),
    Cp(Cp),
    /// Remove sessions
    Rm(Rm),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The folder that is copied, instead of the current one
    #[arg(long, value_name = "PATH", conflicts_with = "template")]
    pub(crate) dir: Option<PathBuf>,
    /// A template by its name, instead of a folder
    #[arg(long, value_name = "NAME", conflicts_with_all = ["respect_ignore", "exclude"])]
    pub(crate) template: Option<String>,
    #[command(flatten)]
    pub(crate) ingest: Ingest,
    #[command(flatten)]
    pub(crate) make: Make,
}

#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Exec {
    /// The session: its id, or the first four digits or more
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) bounds: Bounds,
    #[command(flatten)]
    pub(crate) line: Line,
}

/// Copy a file or folder into a session or out of it.
///
/// One of the two is ID:PATH, with a path below /workspace. Copied out, nothing is written
/// through a link of the session's, set-id bits are dropped, and FIFOs, sockets and devices
/// are left out.
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// What is copied
    pub(crate) from: String,
    /// Where to; into it, where it is a folder
    pub(crate) to: String,
    /// Replace what is there
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// The sessions: their ids, or the first four digits or more
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Template {
    /// Make a template of a folder, under a name
    Add(Add),
    /// List the templates
    List,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Its name: 1 to 100 of a-z, 0-9, `.`, `_` and `-`
    pub(crate) name: String,
    /// The folder that is copied, instead of the current one
    #[arg(long, value_name = "PATH")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ingest: Ingest,
}

//! The commands of the contract: plain `/bin/sh` scripts.
//!
//! A backend that runs real processes runs them as they are. They name files by relative
//! paths alone, need nothing but a POSIX shell with `cat`, `chmod`, `head`, `ln`, `mkfifo`
//! and `sleep`, and take what varies as `$1` and `$2`. The fake knows them by their text.

use sandbox_core::{Command, CommandBuilder};

/// Writes `$1`.
pub const ECHO: &str = r#"printf %s "$1""#;
/// Writes to both streams.
pub const BOTH: &str = "printf out; printf err >&2";
/// Exits with `$1`.
pub const EXIT: &str = r#"exit "$1""#;
/// Ends itself by signal `$1`.
pub const KILL_SELF: &str = r#"kill -"$1" $$"#;
/// Writes what it reads.
pub const CAT: &str = "cat";
/// Writes line by line what it reads, each line as it comes.
pub const LINES: &str = r#"while read -r line; do printf '%s\n' "$line"; done"#;
/// Closes its input, says so, and lives on.
pub const DEAF: &str = "exec <&-; printf begun; exec sleep 600";
/// Says that it has begun, and lives on.
pub const SLEEP: &str = "printf begun; exec sleep 600";
/// Takes a moment.
pub const PAUSE: &str = "sleep 0.2";
/// Writes `$1` zero bytes to standard output and `$2` to standard error.
pub const ZEROS: &str = r#"head -c "$1" /dev/zero; head -c "$2" /dev/zero >&2"#;
/// Writes `$1` zero bytes, then the file `done`.
pub const ZEROS_THEN_FILE: &str = r#"head -c "$1" /dev/zero && printf x > done"#;
/// Leaves a child behind that holds both streams open.
pub const ORPHAN: &str = "sleep 600 & printf begun";
/// Answers signal 15 with a word and exit code 3.
pub const TRAP: &str =
    "trap 'printf caught; exit 3' TERM; printf begun; while :; do sleep 0.01; done";
/// Makes the FIFO `$1`.
pub const FIFO: &str = r#"mkfifo "$1""#;
/// Makes the link `$2` that leads to `$1`.
pub const LINK: &str = r#"ln -s "$1" "$2""#;
/// Gives the file `$2` the mode `$1`.
pub const CHMOD: &str = r#"chmod "$1" "$2""#;
/// Makes files with names that are no text: `a`, 255, newline, `z`; and `b`, backslash.
pub const ODD_NAMES: &str = r#"printf odd > "$(printf 'a\377\nz')"; printf odd > 'b\'"#;
/// Writes the file `started`.
pub const TOUCH: &str = "printf x > started";
/// Writes the file `here` of its working directory.
pub const HERE: &str = "cat here";
/// Writes the variable `GIVEN`, and one that `cargo test` has set in the host.
pub const ENVIRONMENT: &str = r#"printf '%s %s' "${GIVEN-none}" "${CARGO_MANIFEST_DIR-none}""#;
/// Ends once every holder of the FIFO `alive` is gone; it waits for a first one.
pub const WATCH: &str = "printf begun; cat alive";
/// Holds the FIFO `alive` open, with a child of its own, and lives on.
pub const HOLD: &str = "exec 3>alive; sleep 600 & printf begun; exec sleep 600";

/// Succeeds.
pub const TRUE: &str = ":";
/// What the executable of the small tree does.
pub const RAN: &str = "printf ran\n";

/// All of them.
pub const ALL: [&str; 24] = [
    ECHO,
    BOTH,
    EXIT,
    KILL_SELF,
    CAT,
    LINES,
    DEAF,
    SLEEP,
    PAUSE,
    ZEROS,
    ZEROS_THEN_FILE,
    ORPHAN,
    TRAP,
    FIFO,
    LINK,
    CHMOD,
    ODD_NAMES,
    TOUCH,
    HERE,
    ENVIRONMENT,
    WATCH,
    HOLD,
    TRUE,
    RAN,
];

/// A script with its arguments, still to be bounded or placed.
pub fn builder(script: &str, arguments: &[&str]) -> CommandBuilder {
    Command::builder("/bin/sh")
        .args(["-c", script, "sh"])
        .args(arguments.iter().copied())
}

/// A script with its arguments.
///
/// # Panics
/// Where an argument holds a NUL.
#[must_use]
pub fn command(script: &str, arguments: &[&str]) -> Command {
    match builder(script, arguments).build() {
        Ok(command) => command,
        Err(error) => panic!("{script}: {error}"),
    }
}

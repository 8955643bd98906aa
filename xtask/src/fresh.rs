//! A stranger's first minutes: a fresh clone, as an ordinary user.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::program::{cargo, is_root, run, workspace};
use crate::user::User;

/// Clones the repository and runs the demo in the clone; as an ordinary user where the
/// caller is root.
pub(crate) fn run_all() -> Outcome {
    if !is_root() {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        run(clone_to(place.path()).current_dir(workspace()))?;
        return run(cargo(&["xtask", "demo"])
            .current_dir(place.path().join("clone"))
            .env_remove("CARGO_TARGET_DIR"));
    }
    let user = User::new()?;
    let home = user.home();
    run(clone_to(&home).current_dir(workspace()))?;
    user.give(&home)?;
    // Its own cargo home, with what the caller's has downloaded and is configured for.
    let script = "mkdir -p \"$HOME/.cargo/registry\"\n\
                  for name in config.toml config registry/cache registry/index; do\n\
                    [ ! -e \"$FROM/$name\" ] || cp -r \"$FROM/$name\" \"$HOME/.cargo/$name\"\n\
                  done\n\
                  cd \"$HOME/clone\"\n\
                  exec env CARGO_HOME=\"$HOME/.cargo\" \"$0\" xtask demo";
    let from = std::env::var("CARGO_HOME")
        .unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap_or_default()));
    let rustup = std::env::var("RUSTUP_HOME")
        .unwrap_or_else(|_| format!("{}/.rustup", std::env::var("HOME").unwrap_or_default()));
    let mut command = user.command(Path::new("/bin/sh"));
    command
        .args(["-ec", script])
        .arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .env("FROM", from)
        .env("RUSTUP_HOME", rustup)
        .env_remove("CARGO_HOME")
        .env_remove("CARGO_TARGET_DIR");
    run(command.current_dir(home))?;
    user.check_clean()
}

fn clone_to(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .args(["clone", "--quiet", "."])
        .arg(folder.join("clone"));
    command
}

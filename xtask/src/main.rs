//! Everything that is run around the code: `cargo xtask COMMAND`.
//!
//! It depends on no crate of the workspace, so that it builds while they don't.
#![forbid(unsafe_code)]

mod ci;
mod demo;
mod examples;
mod fresh;
mod helper;
mod layers;
mod program;
mod readme;
mod setup;
mod skips;
mod suites;
mod supervise;
mod tally;
mod user;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [--full]  set-up, format, lints, layers, all tests as root and as an ordinary user,
               docs, licences, README commands, examples; --full adds a fresh clone
  demo         set-up, build, and the sandbox at work on a sample project
  setup        what the host needs: bubblewrap and a few tools; nothing twice
  helper       builds the static helper and prints its path
  layers       checks that no crate knows what it must not
  fresh-clone  the demo in a fresh clone, as an ordinary user
";

/// What a step gives: nothing, or why it failed.
type Outcome<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["ci"] => ci::check(false),
        ["ci", "--full"] => ci::check(true),
        ["demo"] => demo::run_all(),
        ["setup"] => setup::run_all(),
        ["helper"] => helper::build().map(|path| println!("{}", path.display())),
        ["layers"] => layers::run(),
        ["fresh-clone"] => fresh::run_all(),
        // For this program itself: see the module.
        ["supervise", line @ ..] => match supervise::run(line) {
            Ok(code) => return code,
            Err(why) => Err(why),
        },
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("unknown command\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

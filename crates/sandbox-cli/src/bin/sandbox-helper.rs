//! The program `sandbox-helper`: keeper and init of the sandbox, started by it and never by hand.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    sandbox_helper::entry::main(std::env::args_os())
}

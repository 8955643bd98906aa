//! The one entry of the program.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the role that the arguments name.
///
/// `sandbox-helper keeper` is started by the host with its socket as standard input; without an
/// argument it is init, which only pid 1 can be; `probe` is run inside by the host to look around.
/// Started by hand it says what it is and ends with 2. No role but `probe` reads the environment.
///
/// The process must have one thread.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    match arguments.as_slice() {
        [role] if role == "keeper" => crate::keeper::run(),
        [role] if role == "probe" => crate::probe::run(),
        [] if rustix::process::getpid().is_init() => crate::init::run(),
        _ => {
            let stderr = std::io::stderr();
            // Nobody is left to tell when this fails.
            let _ = std::io::Write::write_all(
                &mut stderr.lock(),
                b"sandbox-helper is started by the sandbox, not by hand\n",
            );
            ExitCode::from(2)
        }
    }
}
